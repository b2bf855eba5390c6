// Mixed comparison of u64 and signed integers, as 65-bit numbers: a sign and 64 bits.
#pragma once
#include "core/dtype.cuh"

namespace math {

struct Wide {
  u64 bits;
  bool negative;

  Wide() = default;
  template <class T> __device__ __forceinline__ explicit Wide(T x) : bits(u64(x)), negative(x < T(0)) {}
  __device__ __forceinline__ explicit operator bool() const { return bits != 0; }
  __device__ __forceinline__ bool operator==(const Wide& b) const { return bits == b.bits && negative == b.negative; }
  __device__ __forceinline__ bool operator!=(const Wide& b) const { return !(*this == b); }
  __device__ __forceinline__ bool operator<(const Wide& b) const {
    return negative == b.negative ? bits < b.bits : negative;
  }
  __device__ __forceinline__ bool operator>(const Wide& b) const { return b < *this; }
  __device__ __forceinline__ bool operator<=(const Wide& b) const { return !(b < *this); }
  __device__ __forceinline__ bool operator>=(const Wide& b) const { return !(*this < b); }
};

}  // namespace math
