// Gradients of norms (norm/gradient.cuh) with respect to weight and bias, down columns: for rows that are streamed (backward.cu).
// The rows of a stripe, blockIdx.y: a thread goes down V columns, WARPS rows side by side, whose sums are then added in order.
// Shared memory: two sums a thread and column. Bound: memory bandwidth.
#include "norm/gradient.cuh"
#include "rows/pack.cuh"

using namespace norms;

template <class T, class C, int V, int WARPS, int R, int RC, class I, bool CENTERED, int WITH>
__global__ void __launch_bounds__(WARPS * 32)
norm_weight_backward(I count, I length, I stripe, Places<I, R, RC> places, C* partial, const T* grad, const T* x, const C* means,
                     const C* rstds) {
  __shared__ C sums[2][WARPS][32 * V];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I column = (I(blockIdx.x) * 32 + lane) * V, first = I(blockIdx.y) * stripe, end = min(count, first + stripe);
  C scale[V] = {}, shift[V] = {};
  if (column < length) {
#pragma unroll 4
    for (I row = first + warp; row < end; row += WARPS) {
      i64 at[OPERANDS];
      places.enter(row, at);
      C raw[V], values[V];
      rows::fetch(raw, places.template at<GRAD>(grad, at, column));
      rows::fetch(values, places.template at<X>(x, at, column));
      const Statistics<CENTERED, C> of(places, at, means, rstds);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        scale[v] += raw[v] * of.normal(values[v]);
        shift[v] += raw[v];
      }
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    sums[0][warp][v * 32 + lane] = scale[v];
    sums[1][warp][v * 32 + lane] = shift[v];
  }
  __syncthreads();
  const Partial<WITH, C, I> to(partial, blockIdx.y, length);
  for (u32 i = threadIdx.x; i < 32 * V; i += WARPS * 32) {
    const I out = I(blockIdx.x) * (32 * V) + i;
    const u32 slot = i % V * 32 + i / V;
    C total[2] = {};
    for (int w = 0; w < WARPS; ++w)
      for (int k = 0; k < 2; ++k) total[k] += sums[k][w][slot];
    if (out < length) {
      if constexpr (WITH & WEIGHT) to.weight[out] = total[0];
      if constexpr (WITH & BIAS) to.bias[out] = total[1];
    }
  }
}
