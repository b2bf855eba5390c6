// Which pieces of one operand's tiles a thread brings from global to shared memory, K tile after K tile.
//
// A piece is BYTES along the axis that is contiguous (one element: along any axis, with any strides); threads take pieces side
// by side, and rows THREADS / (pieces a row) apart. Rows are those of the shared image.
#pragma once
#include "dtype.cuh"

template <class Tile, int BYTES, int THREADS> struct Feed {
  using T = typename Tile::Element;
  static constexpr bool K_MAJOR = Tile::K_MAJOR;
  static constexpr int SIZE = sizeof(T), PIECES = Tile::PITCH / BYTES, APART = THREADS / PIECES, COUNT = Tile::ROWS / APART;
  static_assert(THREADS % PIECES == 0 && Tile::ROWS % APART == 0 && COUNT >= 1, "every thread has as much to bring");

  const u8* from;   // this thread's next piece
  i64 next, ahead;  // bytes to its next row, and from behind its last row of a tile to the next tile
  int exist, k;     // how much of the axis that is not K exists from the tile's beginning on, and how much of K is left

  // This thread's first row, and the byte in it: computed anew where needed, for registers are scarce.
  static __device__ __forceinline__ int row() { return threadIdx.x / PIECES; }
  static __device__ __forceinline__ int within() { return threadIdx.x % PIECES * BYTES; }

  __device__ __forceinline__ Feed(const T* operand, i64 mn_stride, i64 k_stride, u32 mn, u32 mn_extent, u32 k_first, u32 k_end)
      : exist(int(min(mn_extent - mn, u32(Tile::MN)))), k(int(k_end - k_first)) {
    const i64 across = K_MAJOR ? mn_stride : k_stride, along = K_MAJOR ? k_stride : mn_stride;
    from = reinterpret_cast<const u8*>(operand + mn * mn_stride + k_first * k_stride + row() * across + within() / SIZE * along);
    next = across * (APART * SIZE);
    ahead = k_stride * (Tile::BK * SIZE) - next * COUNT;
  }

  // Share `share` of `shares` of this thread's pieces: visit(i, where in the image, where in the operand, how many bytes exist).
  // `whole`: all of them do. `from` moves on: a tile's shares are visited once, in order, and the last is followed by advance().
  template <class Visit> __device__ __forceinline__ void each(int share, int shares, bool whole, const Visit& visit) {
    const int rows = (K_MAJOR ? exist : k) - row(), width = (K_MAJOR ? min(k, Tile::BK) : exist) * SIZE - within();
    const int bytes = max(0, min(BYTES, width));
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if (i * shares / COUNT != share) continue;
      visit(i, u32(Tile::offset(row() + i * APART, within())), from, whole ? BYTES : i * APART < rows ? bytes : 0);
      from += next;
    }
  }

  __device__ __forceinline__ void advance() {
    from += ahead;
    k -= Tile::BK;
  }
};
