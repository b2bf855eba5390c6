// GlobalLoader: the tile iterator of one operand, which k_block after k_block assigns vectors of a tile to a
// thread.
//
// A vector is BYTES along the contiguous axis, or one element with any strides. Neighbouring threads take
// neighbouring vectors of a row of the shared tile; a thread's next vector is ROW_STEP rows further, where ROW_STEP is
// THREADS / (vectors per row).
#pragma once
#include "core/dtype.cuh"

template <class Tile, int BYTES, int THREADS> struct GlobalLoader {
  using T = typename Tile::Element;
  static constexpr bool K_MAJOR = Tile::K_MAJOR;
  static constexpr int SIZE = sizeof(T), VECTORS = Tile::PITCH / BYTES, ROW_STEP = THREADS / VECTORS,
                       COUNT = Tile::ROWS / ROW_STEP;
  static_assert(
      THREADS % VECTORS == 0 && Tile::ROWS % ROW_STEP == 0 && COUNT >= 1, "every thread loads as many vectors");

  const u8* from;   // this thread's next vector
  i64 next, ahead;  // byte steps: to its next row, and from past its last row of a tile to the next tile
  int exist, k;     // valid extent of the tile along mn, and what is left of K

  // This thread's first row, and its byte in the row: rematerialized at each use to save registers.
  static __device__ __forceinline__ int row() { return threadIdx.x / VECTORS; }
  static __device__ __forceinline__ int within() { return threadIdx.x % VECTORS * BYTES; }

  __device__ __forceinline__ GlobalLoader(
      const T* operand, i64 mn_stride, i64 k_stride, u32 mn, u32 mn_extent, u32 k_first, u32 k_end)
      : exist(int(min(mn_extent - mn, u32(Tile::MN)))), k(int(k_end - k_first)) {
    const i64 across = K_MAJOR ? mn_stride : k_stride, along = K_MAJOR ? k_stride : mn_stride;
    from = reinterpret_cast<const u8*>(
        operand + mn * mn_stride + k_first * k_stride + row() * across + within() / SIZE * along);
    next = across * (ROW_STEP * SIZE);
    ahead = k_stride * (Tile::BK * SIZE) - next * COUNT;
  }

  // Visits part `share` of `shares` of this thread's vectors: visit(i, offset in the shared tile, global address, valid
  // bytes). `whole`: the tile has no edge. Advances `from`: visit a tile's shares once, in order, then call advance().
  template <class Visit> __device__ __forceinline__ void each(int share, int shares, bool whole, const Visit& visit) {
    const int rows = (K_MAJOR ? exist : k) - row(), width = (K_MAJOR ? min(k, Tile::BK) : exist) * SIZE - within();
    const int bytes = max(0, min(BYTES, width));
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if (i * shares / COUNT != share) continue;
      visit(i, u32(Tile::offset(row() + i * ROW_STEP, within())), from,
          whole ? BYTES : i * ROW_STEP < rows ? bytes : 0);
      from += next;
    }
  }

  __device__ __forceinline__ void advance() {
    from += ahead;
    k -= Tile::BK;
  }
};
