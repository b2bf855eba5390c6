// Products of panels by mma.sync, and the turning of its results into its operands.
#pragma once
#include "attention/panels.cuh"

namespace attention {

// sum += a b along STEPS of 16. `load` brings the a of block `b` and a step into registers, `at` is the address of the 16 columns
// `n` of a step, which are TRANSPOSED on the way where rows run along the sum.
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
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) {
        Mma<T>::run(sum[b][2 * n], a[b], columns);
        Mma<T>::run(sum[b][2 * n + 1], a[b], columns + 2);
      }
    }
  }
}

}  // namespace attention
