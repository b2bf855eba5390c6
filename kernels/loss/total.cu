// out = sum(partial) / divisor: one CTA adds up what at most PARTIAL_SUMS others have found. Computed in C.
//
// Shared: one value per warp.   Bound: latency.
#include "rows/group.cuh"

constexpr int PARTIAL_SUMS = 1024;

template <class C>
__global__ void __launch_bounds__(PARTIAL_SUMS) pointwise_total(u32 count, C divisor, const C* partial, C* out) {
  const C sum = rows::sum<PARTIAL_SUMS>(threadIdx.x < count ? partial[threadIdx.x] : C(0));
  if (threadIdx.x == 0) *out = sum / divisor;
}
