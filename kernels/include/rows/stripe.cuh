// A stripe of rows: what a persistent CTA of GROUPS groups takes, a row a group at a time, and what its threads sum up over them.
#pragma once
#include "rows/pack.cuh"

namespace rows {

template <class C> struct Two {
  C first, second;
  __device__ __forceinline__ Two operator+(const Two& other) const { return {first + other.first, second + other.second}; }
};

template <class I, u32 GROUPS> struct Stripe {
  u32 group;  // this thread's
  I first, step, row;  // the CTA's first row, from turn to turn, the group's first

  __device__ __forceinline__ explicit Stripe(u32 lanes)
      : group(GROUPS > 1 ? threadIdx.x / lanes : 0), first(I(blockIdx.x) * GROUPS), step(I(gridDim.x) * GROUPS), row(first + group) {}

  // A thread's `sums` of its columns (rows/row.cuh: ITEMS vectors of V) and those of the other groups, added up in their order, as
  // one row at `to`. `slots` is shared memory of GROUPS such rows.
  template <int LANES, class C, int ITEMS, int V>
  __device__ __forceinline__ void leave(const C (&sums)[ITEMS][V], C* slots, C* to, I length) const {
    constexpr I STEP = I(ITEMS) * LANES * V;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
      if (const I column = I(i * LANES + threadIdx.x % LANES) * V; column < length) put(slots + group * STEP + column, sums[i]);
    __syncthreads();
    for (I column = threadIdx.x; column < length; column += GROUPS * LANES) {
      C total = slots[column];
      for (u32 other = 1; other < GROUPS; ++other) total += slots[other * STEP + column];
      to[column] = total;
    }
  }
};

}  // namespace rows
