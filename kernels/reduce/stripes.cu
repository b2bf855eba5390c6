// out[column] = sum over stripes of partial[stripe][part][column], in stripe order (second pass of a split reduction).
//
// Grid:      32 columns per CTA; blockIdx.y: part (at most two). A warp takes every WARPS-th stripe.
// Shared:    one value per thread.   Bound: latency (there are as many stripes as CTAs).
#include "core/dtype.cuh"
#include "ptx/overlap.cuh"
#include "rows/fold.cuh"

template <class C, class W, int WARPS, class I>
__global__ void __launch_bounds__(WARPS * 32)
    sum_stripes(u32 stripes, I length, const C* partial, W* first, W* second) {
  __shared__ C sums[WARPS][32];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I column = I(blockIdx.x) * 32 + lane;
  overlap::wait();
  C sum = rows::fold<16>(warp, column < length ? stripes : 0, WARPS, C(0),
      [&](u32 s) { return partial[(i64(s) * gridDim.y + blockIdx.y) * length + column]; },
      [](C a, C b) { return a + b; });
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= length) return;
  for (int w = 1; w < WARPS; ++w) sum += sums[w][lane];
  (blockIdx.y == 0 ? first : second)[column] = convert<W>(sum);
}
