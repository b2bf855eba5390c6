// GELU by the hyperbolic tangent, x s(x), and its gate, x s(x) y: s(x) = 1 / (1 + exp(-v)),
// v = 2 sqrt(2 / pi) (x + 0.044715 x^3).
#pragma once
#include "math/approx.cuh"
#include "math/gate.cuh"

namespace math {

// v = x (A + B x^2); the LOW parts are what the constants lack as doubles.
constexpr double GELU_A = 1.5957691216057308, GELU_A_LOW = -9.96930880911092e-17;
constexpr double GELU_B = 0.07135481627260025, GELU_B_LOW = -6.175149918155315e-19;

// v is the result plus `low`: exp would multiply the rounding of v by up to |v|.
template <class C> __device__ __forceinline__ C gelu_exponent(C x, C& low) {
  constexpr bool wide = sizeof(C) == 8;
  constexpr C a = C(GELU_A), a_low = wide ? C(GELU_A_LOW) : C(GELU_A - double(a));
  constexpr C b = C(GELU_B), b_low = wide ? C(GELU_B_LOW) : C(GELU_B - double(b));
  const C s = x * x, h = ::fma(b, s, a), z = h - a, v = x * h;
  const C rest = ::fma(b, s, -z) + (a - (h - z)) + (b * ::fma(x, x, -s) + (b_low * s + a_low));
  low = ::fma(x, h, -v) + x * rest;
  return v;
}

// s(x). 16-bit results need no `low`, and two approximate instructions.
template <int digits, class C> __device__ __forceinline__ C gelu_sigmoid(C x) {
  const C c = x > C(40) ? C(40) : x < C(-40) ? C(-40) : x;  // NaN stays
  if constexpr (digits <= F16) {
    constexpr float a = float(-LOG2E * GELU_A), b = float(-LOG2E * GELU_B);
    return rcp_ftz(1.0f + ex2_ftz(c * fmaf(b, c * c, a)));
  } else {
    C low;
    const C v = gelu_exponent(c, low);
    const C e = ::exp(-::fabs(v)), t = ::fma(e, v < C(0) ? low : -low, e);
    return (c < C(0) ? t : C(1)) / (C(1) + t);
  }
}

template <int digits, class C> __device__ __forceinline__ C gelu_tanh(C x) {
  return (x < C(-40) ? C(-40) : x) * gelu_sigmoid<digits>(x);  // -0 from -40 down, -inf included
}

// Below -8 the denominator of s is 1, and exp(v) so small that a large y would magnify its lost digits: four factors of
// it.
template <int digits, class C> __device__ __forceinline__ C geglu_tanh(C x, C y) {
  if (x < C(-8)) {
    if (x - x != C(0)) return C(-0.0) * y;
    constexpr C least = sizeof(C) == 8 ? C(-33) : C(-16);
    const C c = x < least ? least : x;
    C low;
    const C e = ::exp(gelu_exponent(c, low) * C(0.25));
    return ::fma(c, low, c) * e * (y * e) * e * e;
  }
  return gate(gelu_sigmoid<digits>(x), x, y);
}

}  // namespace math
