// Remainders and quotients rounded down. An integer divided by 0 has the quotient 0 and the remainder 0.
#pragma once

namespace math {

template <class C> struct IsFloat { static constexpr bool value = C(0.5) != C(0); };

// Of a's sign.
template <class C> __device__ __forceinline__ C fmod(C a, C b) {
  if constexpr (IsFloat<C>::value) {
    return ::fmod(a, b);
  } else {
    return b == C(0) || (b == C(-1) && C(-1) < C(0)) ? C(0) : C(a % b);
  }
}

// Of b's sign; a zero too.
template <class C> __device__ __forceinline__ C mod(C a, C b) {
  const C rest = fmod(a, b);
  if constexpr (IsFloat<C>::value) {
    if (rest == C(0)) return ::copysign(C(0), b);
  }
  return rest != C(0) && (rest < C(0)) != (b < C(0)) ? C(rest + b) : rest;
}

template <class C> __device__ __forceinline__ C floor_divide(C a, C b) {
  if constexpr (IsFloat<C>::value) {
    if (b == C(0) || a != a || b != b) return a / b;
    const C rest = ::fmod(a, b);
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
