// Counts of bits of integers of any width.
#pragma once
#include "core/dtype.cuh"

namespace math {

template <class C> __device__ __forceinline__ u64 bits_of(C x) { return u64(typename Word<sizeof(C)>::type(x)); }
template <class C> __device__ __forceinline__ C popcount(C x) { return C(__popcll(bits_of(x))); }
template <class C> __device__ __forceinline__ C clz(C x) { return C(__clzll(bits_of(x)) - (64 - 8 * int(sizeof(C)))); }
template <class C> __device__ __forceinline__ C ctz(C x) {
  return x == C(0) ? C(8 * sizeof(C)) : C(63 - __clzll(bits_of(x) & (0 - bits_of(x))));
}

}  // namespace math
