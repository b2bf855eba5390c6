// a * 2**b of a whole number b, which may be any.
#pragma once

namespace math {

// Beyond these exponents every number but 0 is 0 or infinite; int holds them.
__device__ __forceinline__ float ldexp(float a, float b) {
  return ::ldexpf(a, int(::fminf(::fmaxf(b, -512.0f), 512.0f)));
}
__device__ __forceinline__ double ldexp(double a, double b) {
  return ::ldexp(a, int(::fmin(::fmax(b, -4096.0), 4096.0)));
}

}  // namespace math
