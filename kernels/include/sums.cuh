// How the sums of a tile's slabs come together: in the tensor cores' own accumulators, or promoted, slab by slab, to f32.
// A consumer thread's accumulators are pairs of a row and of the one 8 below, in turn.
#pragma once
#include "async_copy.cuh"
#include "barrier.cuh"
#include "matrix.cuh"

// STAGED<BM>: bytes of scales that come with each slab of a tile of BM rows.
struct Accumulated {
  static constexpr bool PROMOTED = false;
  template <int BM> static constexpr int STAGED = 0;
};

struct Promoted {
  static constexpr bool PROMOTED = true;
  template <int BM> static constexpr int STAGED = 0;
  struct Scale {};
  template <int BM> static __device__ __forceinline__ void fetch(Scale&, u32, u32) {}
  template <int N> static __device__ __forceinline__ void add(float (&acc)[N], const float (&part)[N], const Scale&) {
#pragma unroll
    for (int i = 0; i < N; ++i) acc[i] += part[i];
  }
};

// Scales of 1 x 128 blocks of A, [M, slabs], and of 128 x 128 blocks of B, [slabs, N / 128]; a tile is not wider than a block.
// With a slab come those of its BM rows, then B's.
struct BlockScaled {
  static constexpr bool PROMOTED = true;
  template <int BM> static constexpr int STAGED = BM * 4 + 16;
  const float *a, *b;
  Walk a_walk, b_walk;
  struct Scale { float of_a[2], of_b; };

  // What the lanes of one warp bring of a tile at (row, col); rows past the last of `m` take its scale.
  template <int BM> struct Bringer {
    static constexpr int ROWS = BM / 32;
    const float *of_a[ROWS], *of_b;
    i64 next_a, next_b;
    __device__ __forceinline__ Bringer(const BlockScaled& scales, const BatchIndex& batch, u32 row, u32 col, u32 m, u32 slab)
        : next_a(scales.a_walk.col), next_b(scales.b_walk.row) {
      const float* const first = scales.a + scales.a_walk.enter(batch) + slab * next_a;
#pragma unroll
      for (int i = 0; i < ROWS; ++i) of_a[i] = first + min(row + i * 32 + threadIdx.x % 32, m - 1) * scales.a_walk.row;
      of_b = scales.b + scales.b_walk.enter(batch) + col / 128 * scales.b_walk.col + slab * next_b;
    }
    // A slab's, asynchronously; the next slab is next.
    __device__ __forceinline__ void bring(u32 to) {
      const u32 lane = threadIdx.x % 32;
#pragma unroll
      for (int i = 0; i < ROWS; ++i, of_a[i - 1] += next_a) copy_async<4>(to + (i * 32 + lane) * 4, of_a[i], 4);
      if (lane == 0) copy_async<4>(to + BM * 4, of_b, 4);
      of_b += next_b;
    }
  };

  // For a thread's two rows of the 64 from `first` on.
  template <int BM> static __device__ __forceinline__ void fetch(Scale& scale, u32 slab, u32 first) {
    const u32 own = slab + (first + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4) * 4;
    scale = {{load_shared<float>(own), load_shared<float>(own + 32)}, load_shared<float>(slab + BM * 4)};
  }
  template <int N> static __device__ __forceinline__ void add(float (&acc)[N], const float (&part)[N], const Scale& scale) {
    const float rows[2] = {scale.of_a[0] * scale.of_b, scale.of_a[1] * scale.of_b};
#pragma unroll
    for (int i = 0; i < N; ++i) acc[i] = fma(part[i], rows[i / 2 % 2], acc[i]);
  }
};
