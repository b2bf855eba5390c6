// How the sums of a tile's slabs come together: in the tensor cores' own accumulators, or promoted, slab by slab, to f32.
// A consumer thread's accumulators are pairs of a row and of the one 8 below, in turn.
#pragma once
#include "matrix.cuh"

struct Accumulated { static constexpr bool PROMOTED = false; };

struct Promoted {
  static constexpr bool PROMOTED = true;
  struct Scale {};
  __device__ __forceinline__ Promoted enter(const BatchIndex&, i64, i64, u32) const { return *this; }
  __device__ __forceinline__ void fetch(Scale&, u32) const {}
  template <int N> static __device__ __forceinline__ void add(float (&acc)[N], const float (&part)[N], const Scale&) {
#pragma unroll
    for (int i = 0; i < N; ++i) acc[i] += part[i];
  }
};

// Scales of 1 x 128 blocks of A, [M, slabs], and of 128 x 128 blocks of B, [slabs, N / 128]; a tile is not wider than a block.
struct BlockScaled {
  static constexpr bool PROMOTED = true;
  const float *a, *b;
  Walk a_walk, b_walk;
  i64 below;  // from a thread's first row to its second
  struct Scale { float of_a[2], of_b; };

  // For the 64 x BN of the result at (row, col); rows past the last of `m` take its scale.
  __device__ __forceinline__ BlockScaled enter(const BatchIndex& batch, i64 row, i64 col, u32 m) const {
    const i64 own = row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, last = i64(m) - 1;
    const i64 first = own < last ? own : last, second = own + 8 < last ? own + 8 : last;
    BlockScaled at = *this;
    at.a += a_walk.enter(batch) + first * a_walk.row;
    at.b += b_walk.enter(batch) + col / 128 * b_walk.col;
    at.below = (second - first) * a_walk.row;
    return at;
  }
  __device__ __forceinline__ void fetch(Scale& scale, u32 slab) const {
    const float* of_a = a + slab * a_walk.col;
    scale = {{of_a[0], of_a[below]}, b[slab * b_walk.row]};
  }
  template <int N> static __device__ __forceinline__ void add(float (&acc)[N], const float (&part)[N], const Scale& scale) {
    const float rows[2] = {scale.of_a[0] * scale.of_b, scale.of_a[1] * scale.of_b};
#pragma unroll
    for (int i = 0; i < N; ++i) acc[i] = fma(part[i], rows[i / 2 % 2], acc[i]);
  }
};
