// Prefix sums over the threads of a warp and of a CTA.
#pragma once
#include "core/dtype.cuh"

template <class C> __device__ __forceinline__ C inclusive_sum_of_warp(C x, u32 lane) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const C other = __shfl_up_sync(~0u, x, step);
    if (lane >= step) x += other;
  }
  return x;
}

// Exclusive prefix sum over the CTA's threads; `total` is the sum over all. All THREADS must take part. Consecutive
// calls are safe, since each ends with a barrier.
template <int THREADS, class C> __device__ __forceinline__ C exclusive_sum(C x, C& total) {
  static_assert(THREADS % 32 == 0 && THREADS <= 1024);
  constexpr u32 WARPS = THREADS / 32;
  __shared__ C slots[WARPS];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const C mine = inclusive_sum_of_warp(x, lane);
  if (lane == 31) slots[warp] = mine;
  __syncthreads();
  const C warps = inclusive_sum_of_warp(lane < WARPS ? slots[lane] : C(0), lane);
  total = __shfl_sync(~0u, warps, 31);
  const C before = __shfl_sync(~0u, warps, warp ? warp - 1 : 0);
  __syncthreads();
  return (warp ? before : C(0)) + mine - x;
}
