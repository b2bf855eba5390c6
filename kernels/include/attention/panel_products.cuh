// GEMM of panels on mma.sync. T: f16, bf16, or f32 as TF32, an element of which counts as two 16-bit columns.
#pragma once
#include "attention/panels.cuh"

namespace attention {

template <class T> constexpr bool IS_TF32 = Same<T, float>::value;

template <class T, int N> __device__ __forceinline__ void round_operand(u32 (&x)[N]) {
  if constexpr (IS_TF32<T>)
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = round_tf32(x[i]);
}

// sum += a b over STEPS k-steps of 16 (TF32: 8). load(a, b, step) gives the rounded A fragment of block b; at(n, step)
// is the lane's ldmatrix address of B columns 16 n, TRANSPOSED (ldmatrix.trans) where B's rows run along k.
template <class T, int STEPS, bool TRANSPOSED, int BLOCKS, int N, class Load, class At>
__device__ __forceinline__ void multiply(float (&sum)[BLOCKS][N][4], Load load, At at) {
  static_assert(N % 2 == 0);
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    u32 a[BLOCKS][4];
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b) load(a[b], b, step);
#pragma unroll
    for (int n = 0; n < N / 2; ++n) {
      u32 columns[4];
      load_matrices<TRANSPOSED>(columns, at(n, step));
      round_operand<T>(columns);
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) {
        Mma<T>::run(sum[b][2 * n], a[b], columns);
        Mma<T>::run(sum[b][2 * n + 1], a[b], columns + 2);
      }
    }
  }
}

}  // namespace attention
