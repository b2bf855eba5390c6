// out[i] = x[indices[i]] along one axis.
//
// Grid:      UNROLL results per thread, coalesced in the result's order; all index loads in flight, then all gathers.
// Range:     an out-of-range index is never read (indexing/within.cuh); without an element: zero bytes and `status`.
// Shared:    none.   Bound: DRAM, and the sectors that gathered elements share.
#include "indexing/within.cuh"
#include "core/index.cuh"

constexpr int TAKE_THREADS = 256;

// `dims`: the result's axes with byte strides of out, indices and x; x's stride is 0 along the axis taken.
template <class I, class Index, int R, int WIDTH, int MODE, int UNROLL>
__global__ void __launch_bounds__(TAKE_THREADS)
take_along(u8* out, const u8* x, const u8* indices, i32* status, i64 extent, i64 step, I count, Dims<I, R, 3> dims) {
  using T = typename Word<WIDTH>::type;
  const I first = I(blockIdx.x) * (TAKE_THREADS * UNROLL) + threadIdx.x;
  i64 offset[UNROLL][3], at[UNROLL];
  T value[UNROLL];
  bool bad = false;
  // 1. load indices
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    // out-of-range threads repeat the last result
    const I i = first + u * TAKE_THREADS < count ? first + u * TAKE_THREADS : count - 1;
    offset[u][0] = offset[u][1] = offset[u][2] = 0;
    dims.locate(i, offset[u]);
    at[u] = i64(*reinterpret_cast<const Index*>(indices + offset[u][1]));
  }
  // 2. gather
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const i64 from = within<MODE>(at[u], extent);
    value[u] = T{};
    if (from >= 0) value[u] = *reinterpret_cast<const T*>(x + offset[u][2] + from * step);
    bad |= from < 0;
  }
  // 3. store
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (first + u * TAKE_THREADS < count) *reinterpret_cast<T*>(out + offset[u][0]) = value[u];
  // 4. report: one atomic per warp with a bad index
  if constexpr (MODE == RAISE || MODE == STRICT) {
    if (__any_sync(~0u, bad) && threadIdx.x % 32 == 0) atomicOr(status, 1);
  }
}
