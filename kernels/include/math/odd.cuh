// Round to odd: a second rounding, to a shorter type, then gives the same result as a single one (S. Boldo and G.
// Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE TC 57(4), 2008).
#pragma once
#include "core/dtype.cuh"

namespace math {

// Truncates, and sets the last bit if the result is inexact. NaN stays NaN, infinities are exact.
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
