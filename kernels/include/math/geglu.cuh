// x Phi(x) y.
#pragma once
#include "math/gate.cuh"
#include "math/phi.cuh"

namespace math {

// Below `low` Phi(x) = exp(-x^2 / 2) erfcx(-x / sqrt(2)) / 2, the exponential in four factors: a large y would magnify
// the lost digits of one near the subnormal range. The rounding of x^2 is put back after exp.
template <int digits, class C> __device__ __forceinline__ C geglu(C x, C y) {
  constexpr bool wide = sizeof(C) == 8;
  constexpr C low = wide ? C(-20) : C(-8), least = wide ? C(-70) : C(-25);  // exp(-least^2 / 8) is a normal number
  if (x < low) {
    if (x - x != C(0)) return C(-0.0) * y;
    const C c = x < least ? least : x, s = c * c;
    const C e = ::exp(s * C(-0.125)), rest = ::fma(c, c, -s) * C(-0.5);
    const C w = c * (C(0.5) * ::erfcx(c * C(-0.70710678118654752)));
    return ::fma(w, rest, w) * e * (y * e) * e * e;
  }
  return gate(phi<digits>(x), x, y);
}

}  // namespace math
