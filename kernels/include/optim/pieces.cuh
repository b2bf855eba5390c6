// W elements of an array, in accesses of 16 bytes at most; and stochastic rounding.
#pragma once
#include "core/dtype.cuh"
#include "random/chunk.cuh"
#include "random/distributions.cuh"

namespace optim {

template <class T, int W> struct ElementRun {
  static constexpr int ACCESS = W * sizeof(T) > 16 ? 16 / sizeof(T) : W;
  static constexpr u32 ALIGN = ACCESS * sizeof(T);
  Vec<T, ACCESS> part[W / ACCESS];

  __device__ __forceinline__ T at(int i) const { return part[i / ACCESS].at[i % ACCESS]; }
  __device__ __forceinline__ void load(u64 address) {
#pragma unroll
    for (int k = 0; k < W / ACCESS; ++k) part[k] = reinterpret_cast<const Vec<T, ACCESS>*>(address)[k];
  }
  template <class C> static __device__ __forceinline__ void store(u64 address, const C (&x)[W]) {
#pragma unroll
    for (int k = 0; k < W / ACCESS; ++k) {
      C own[ACCESS];
#pragma unroll
      for (int i = 0; i < ACCESS; ++i) own[i] = x[k * ACCESS + i];
      reinterpret_cast<Vec<T, ACCESS>*>(address)[k] = round_to<T, ACCESS>(own);
    }
  }
};

// x as a bf16, one of the two next to it, the farther one with the probability of its distance: 16 random bits are
// added to those that bf16 lacks. NaN and infinities are left to the conversion.
__device__ __forceinline__ float rounded_by_chance(float x, u32 word) {
  const u32 bits = __float_as_uint(x);
  const u32 up = (bits + (word & 0xFFFFu)) & 0xFFFF0000u;
  return (bits & 0x7F800000u) == 0x7F800000u ? x : __uint_as_float(up);
}

// W elements at `position` and on of the stream (seed, step), 32 random bits each.
template <int W> __device__ __forceinline__ void round_by_chance(float (&x)[W], u64 seed, u64 position, u64 step) {
  u32 word[W];
  if constexpr (W % 4 == 0) {
    philox::draw_chunk<philox::RandomBits<u32>>(seed, position, step, philox::Numbers<u64>(), word);
  } else {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const philox::PhiloxBlock block = philox::block_at<4>(seed, (position + i) / 4, step);
      const u32 place = u32(position + i) % 4;
      word[i] = place == 0 ? block.word[0] : place == 1 ? block.word[1] : place == 2 ? block.word[2] : block.word[3];
    }
  }
#pragma unroll
  for (int i = 0; i < W; ++i) x[i] = rounded_by_chance(x[i], word[i]);
}

}  // namespace optim
