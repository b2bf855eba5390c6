// Remainders and quotients rounded down. An integer divided by 0 has the quotient 0 and the remainder 0.
#pragma once
#include "math/approx.cuh"

namespace math {

template <class C> struct IsFloat { static constexpr bool value = C(0.5) != C(0); };

// n = floor(a / b) and the remainder a - n b, rounded once: where the quotient is below 2^22 and b far from the ends of
// the range; whether they are. A quotient that is rounded correctly may be rounded up to a whole number, never below
// one.
__device__ __forceinline__ bool quick_floor(float a, float b, float& n, float& rest) {
  const float size = fabsf(b);
  if (!(size > 0x1p-100f && size < 0x1p100f && fabsf(a) < size * 0x1p22f)) return false;
  const float inverse = rcp_ftz(b), near = a * inverse;
  n = floorf(fmaf(fmaf(-near, b, a), inverse, near));
  rest = fmaf(-n, b, a);
  if (rest != 0.0f && (rest < 0.0f) != (b < 0.0f)) {
    n -= 1.0f;
    rest = fmaf(-n, b, a);
  }
  return true;
}
__device__ __forceinline__ bool quick_floor(double, double, double&, double&) { return false; }

// Of a's sign.
template <class C> __device__ __forceinline__ C fmod(C a, C b) {
  if constexpr (IsFloat<C>::value) {
    C n, rest;
    return quick_floor(::fabs(a), ::fabs(b), n, rest) ? ::copysign(rest, a) : ::fmod(a, b);
  } else {
    return b == C(0) || (b == C(-1) && C(-1) < C(0)) ? C(0) : C(a % b);
  }
}

// Of b's sign; a zero too.
template <class C> __device__ __forceinline__ C mod(C a, C b) {
  C n, rest;
  if constexpr (IsFloat<C>::value) {
    const bool quick = quick_floor(a, b, n, rest);
    if (!quick) rest = ::fmod(a, b);
    if (rest == C(0)) return ::copysign(C(0), b);
    if (quick) return rest;
  } else {
    rest = fmod(a, b);
  }
  return rest != C(0) && (rest < C(0)) != (b < C(0)) ? C(rest + b) : rest;
}

template <class C> __device__ __forceinline__ C floor_divide(C a, C b) {
  if constexpr (IsFloat<C>::value) {
    C n, rest;
    if (quick_floor(a, b, n, rest)) return n == C(0) ? ::copysign(C(0), ::copysign(C(1), a) * b) : n;
    if (b == C(0) || a != a || b != b) return a / b;
    rest = ::fmod(a, b);
    C quotient = (a - rest) / b;
    if (rest != C(0) && (rest < C(0)) != (b < C(0))) quotient -= C(1);
    if (quotient == C(0)) return ::copysign(C(0), a / b);
    const C whole = ::floor(quotient);
    return quotient - whole > C(0.5) ? whole + C(1) : whole;
  } else {
    if (b == C(0)) return C(0);
    if (b == C(-1) && C(-1) < C(0)) return C(C(0) - a);
    const C quotient = C(a / b);
    return a % b != C(0) && (a < C(0)) != (b < C(0)) ? C(quotient - 1) : quotient;
  }
}

}  // namespace math
