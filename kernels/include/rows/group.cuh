// Threads that share a row: LANES adjacent lanes of a warp, or a CTA of LANES threads.
#pragma once
#include "core/dtype.cuh"

namespace rows {

template <class S> __device__ __forceinline__ S from_lane(const S& x, int mask) {
  static_assert(sizeof(S) % 4 == 0);
  union Words { S whole; u32 word[sizeof(S) / 4]; __device__ Words() {} } words;
  words.whole = x;
#pragma unroll
  for (int i = 0; i < int(sizeof(S) / 4); ++i) words.word[i] = __shfl_xor_sync(~0u, words.word[i], mask);
  return words.whole;
}

// All-reduce of the states of a group by join(lower lane's, higher lane's): butterfly shuffles, then
// warps in order, so that LANES alone fixes the order and all threads get the same bits. All threads of the CTA take
// part. Consecutive calls without a barrier between them use different SLOT (shared memory) or `parity`.
template <int LANES, int SLOT = 0, class S, class Join>
__device__ __forceinline__ S group_reduce(S x, const Join& join, u32 parity = 0) {
  const u32 lane = threadIdx.x % 32;
#pragma unroll
  for (int mask = 1; mask < 32 && mask < LANES; mask *= 2) {
    const S other = from_lane(x, mask);
    x = lane & mask ? join(other, x) : join(x, other);
  }
  if constexpr (LANES > 32) {
    constexpr int WARPS = LANES / 32;
    __shared__ S slots[2][WARPS];
    if (lane == 0) slots[parity][threadIdx.x / 32] = x;
    __syncthreads();
    x = slots[parity][0];
#pragma unroll
    for (int warp = 1; warp < WARPS; ++warp) x = join(x, slots[parity][warp]);
  }
  return x;
}

template <int LANES, int SLOT = 0, class C> __device__ __forceinline__ C sum(C x, u32 parity = 0) {
  return group_reduce<LANES, SLOT>(x, [](C a, C b) { return a + b; }, parity);
}

}  // namespace rows
