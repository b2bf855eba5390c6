// Whether |a - b| <= atol + rtol |b|, without contraction: the result is exact for the type computed in.
#pragma once

namespace math {

__device__ __forceinline__ float tolerance(float atol, float rtol, float size) {
  return __fadd_rn(atol, __fmul_rn(rtol, size));
}
__device__ __forceinline__ double tolerance(double atol, double rtol, double size) {
  return __dadd_rn(atol, __dmul_rn(rtol, size));
}
template <class C> __device__ __forceinline__ bool is_close(C a, C b, C rtol, C atol, C equal_nan) {
  const C difference = ::fabs(a - b);
  const bool near = difference <= tolerance(atol, rtol, ::fabs(b)) && difference - difference == C(0);
  return a == b || near || (equal_nan != C(0) && a != a && b != b);
}

}  // namespace math
