// partial[stripe] = (sum(grad n), sum(grad)) down columns, for streamed rows (backward.cu); see norm/gradient.cuh.
//
// Grid:      blockIdx.x: 32 V columns; blockIdx.y: stripe of rows. V columns per thread; WARPS rows at a time.
// Order:     the warps' sums are added in warp order.
// Shared:    two sums per thread and column.   Bound: DRAM.
#include "norm/gradient.cuh"
#include "rows/pack.cuh"

using namespace norms;

template <class T, class C, int V, int WARPS, int R, int RC, class I, bool CENTERED, int WITH>
__global__ void __launch_bounds__(WARPS * 32) norm_weight_backward(I count, I length, I stripe, Places<I, R, RC> places,
    C* partial, const T* grad, const T* x, const C* means, const C* rstds) {
  __shared__ C sums[2][WARPS][32 * V];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I column = (I(blockIdx.x) * 32 + lane) * V, first = I(blockIdx.y) * stripe, end = min(count, first + stripe);
  C scale[V] = {}, shift[V] = {};
  // 1. sums over this warp's rows
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
  // 2. all warps' sums to shared memory
#pragma unroll
  for (int v = 0; v < V; ++v) {
    sums[0][warp][v * 32 + lane] = scale[v];
    sums[1][warp][v * 32 + lane] = shift[v];
  }
  __syncthreads();
  // 3. add in warp order, store
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
