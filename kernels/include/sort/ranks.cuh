// Stable ranks of a CTA's elements by one digit of their keys: a step of an LSD radix sort.
#pragma once
#include "rows/cta_scan.cuh"
#include "sort/lines.cuh"

namespace sort {

constexpr int RADIX_BITS = 8, RADIX = 1 << RADIX_BITS;

// A digit of an element's key. `flip`: all bits for descending order.
template <class T>
__device__ __forceinline__ u32 digit_of(typename Order<T>::Word word, typename Order<T>::Key flip, u32 shift) {
  return u32((Order<T>::key(word) ^ flip) >> shift) & (RADIX - 1);
}

// Elements of a warp are contiguous, and a step of the warp takes 32 of them: item i of a thread is element slot(i) of
// the tile. A warp ranks 32 elements per step: a ballot per bit of the digit gives the lanes with the same digit (A.
// Adinets and D. Merrill, "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs", 2022, section 3).
template <int THREADS, int ITEMS> struct Ranks {
  static constexpr int WARPS = THREADS / 32, TILE = THREADS * ITEMS;
  static_assert(THREADS >= RADIX && TILE < 1 << 16);
  u32 (*counts)[RADIX];  // in shared memory, per warp

  static __device__ __forceinline__ u32 slot(int i) {
    return (threadIdx.x / 32 * ITEMS + i) * 32 + threadIdx.x % 32;
  }

  // to[i]: the place in the tile of item i, whose digit is digit(i). Returns how many elements of the tile have a
  // smaller digit than threadIdx.x, to the first RADIX threads. Two CTA barriers or more; a barrier must follow before
  // the next call.
  template <class Digit> __device__ __forceinline__ u32 rank(const Digit& digit, u32 (&to)[ITEMS]) const {
    const u32 lane = threadIdx.x % 32;
    u32* const own = counts[threadIdx.x / 32];

    // 1. ranks within the warp, in order; each is kept beside its digit
#pragma unroll
    for (u32 d = 0; d < RADIX; d += 32) own[d + lane] = 0;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const u32 mine = digit(i);
      u32 same = ~0u;
#pragma unroll
      for (int bit = 0; bit < RADIX_BITS; ++bit) {
        const u32 ones = __ballot_sync(~0u, mine >> bit & 1);
        same &= mine >> bit & 1 ? ones : ~ones;
      }
      const u32 before = __popc(same & ((1u << lane) - 1)), seen = own[mine];
      to[i] = mine << 16 | (seen + before);
      __syncwarp();
      if (before == 0) own[mine] = seen + __popc(same);
      __syncwarp();
    }
    __syncthreads();

    // 2. the place of each warp's first element of each digit
    u32 found = 0, total;
    if (threadIdx.x < RADIX) {
#pragma unroll 8
      for (int w = 0; w < WARPS; ++w) {
        const u32 of_warp = counts[w][threadIdx.x];
        counts[w][threadIdx.x] = found;
        found += of_warp;
      }
    }
    const u32 smaller = exclusive_sum<THREADS>(found, total);
    if (threadIdx.x < RADIX) {
#pragma unroll 8
      for (int w = 0; w < WARPS; ++w) counts[w][threadIdx.x] += smaller;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) to[i] = (to[i] & 0xffff) + own[to[i] >> 16];
    return smaller;
  }
};

}  // namespace sort
