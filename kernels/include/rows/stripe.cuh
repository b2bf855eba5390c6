// The rows of a persistent CTA (grid-stride, GROUPS rows at a time, one per thread group), and column sums over them.
#pragma once
#include "rows/pack.cuh"

namespace rows {

template <class C> struct Two {
  C first, second;
  __device__ __forceinline__ Two operator+(const Two& other) const {
    return {first + other.first, second + other.second};
  }
};

template <class I, u32 GROUPS> struct Stripe {
  u32 group;  // of this thread
  I first, step, row;  // first row of the CTA; grid stride; first row of the group

  __device__ __forceinline__ explicit Stripe(u32 lanes)
      : group(GROUPS > 1 ? threadIdx.x / lanes : 0), first(I(blockIdx.x) * GROUPS), step(I(gridDim.x) * GROUPS),
        row(first + group) {}

  // Adds the column sums of all groups in group order and stores one row at `to`. A thread has ITEMS vectors of V
  // columns (rows/row.cuh); `slots` is shared memory for GROUPS rows.
  template <int LANES, class C, int ITEMS, int V>
  __device__ __forceinline__ void store(const C (&sums)[ITEMS][V], C* slots, C* to, I length) const {
    constexpr I STEP = I(ITEMS) * LANES * V;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
      if (const I column = I(i * LANES + threadIdx.x % LANES) * V; column < length)
        put(slots + group * STEP + column, sums[i]);
    __syncthreads();
    for (I column = threadIdx.x; column < length; column += GROUPS * LANES) {
      C total = slots[column];
      for (u32 other = 1; other < GROUPS; ++other) total += slots[other * STEP + column];
      to[column] = total;
    }
  }
};

}  // namespace rows
