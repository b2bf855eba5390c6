// Rounding to odd: what is rounded again to a shorter type is then as if it had been rounded once (S. Boldo and G. Melquiond,
// "Emulation of a FMA and correctly rounded sums", IEEE TC 57(4), 2008).
#pragma once
#include "dtype.cuh"

namespace math {

// Toward zero, with the last bit set where anything was lost. NaN stays NaN, and infinities are exact.
__device__ __forceinline__ float odd(double x) {
  const float y = __double2float_rz(x);
  return __uint_as_float(__float_as_uint(y) | u32(double(y) != x));
}
__device__ __forceinline__ float odd(i64 x) {
  const float y = __ll2float_rz(x);
  return __uint_as_float(__float_as_uint(y) | u32(i64(y) != x));
}
__device__ __forceinline__ float odd(u64 x) {
  const float y = __ull2float_rz(x);
  return __uint_as_float(__float_as_uint(y) | u32(u64(y) != x));
}
__device__ __forceinline__ float odd(float x) { return x; }

}  // namespace math
