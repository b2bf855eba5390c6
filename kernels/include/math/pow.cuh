// Powers of floats and of integers.
#pragma once
#include "math/approx.cuh"

namespace math {

// log2(x) of a normal x as high + low. For 16-bit results one f32, 2^-22 relative, also near 1 (own minimax fit);
// otherwise about 2^-30: log(m) = 2 atanh(f / (2 + f)), with the quotient's remainder as low part, m in [sqrt(1/2),
// sqrt(2)).
template <int digits> __device__ __forceinline__ float log2_parts(float x, float& low) {
  int bits = __float_as_int(x), exponent = (bits - 0x3f3504f3) >> 23;
  float f = __int_as_float(bits - (exponent << 23)) - 1.0f;
  if constexpr (digits <= F16) {
    low = 0.0f;
    return fmaf(f, polynomial(f, {1.44269496f, -0.721352788f, 0.480923242f, -0.360239635f, 0.287098703f, -0.248876935f,
                                  0.234042377f, -0.145811470f}), float(exponent));
  }
  constexpr float LOG2E_LOW = 1.92596303e-8f;  // log2(e) - LOG2E
  float t = rcp_ftz(2.0f + f);
  float s = f * t;
  float rest = 2.0f * t * fmaf(-s, f, 2.0f * (f * 0.5f - s));  // twice (f - s (2 + f)) / (2 + f)
  float s2 = s * s;
  float tail = fmaf(
      s * s2, polynomial(s2, {0.666666667f, 0.4f, 0.285714286f, 0.222222222f, 0.181818182f}), fmaf(rest, s2, rest));
  float log = 2.0f * s + tail;
  tail += 2.0f * s - log;
  float product = log * LOG2E;
  float below = fmaf(tail, LOG2E, fmaf(log, LOG2E_LOW, fmaf(log, LOG2E, -product)));
  float high = float(exponent) + product;
  low = product - (high - float(exponent)) + below;
  return high;
}

// exp2(b log2|a|), with the sign of an odd power. Zeros, subnormals, infinities, NaN and huge exponents take the slow
// path.
template <int digits> __device__ __forceinline__ float pow(float a, float b) {
  float x = fabsf(a);
  if (!(x >= 1.17549435e-38f && x < __int_as_float(0x7f800000) && fabsf(b) < 1.0e18f)) return ::powf(a, b);
  float low, high = log2_parts<digits>(x, low);
  float p = b * high, y = ex2(p);
  // p is rounded; where y is finite and not 0 the factor is near 1, elsewhere it may be anything.
  if constexpr (digits > F16) y *= fmaxf(fmaf(fmaf(b, high, -p) + b * low, LN2, 1.0f), 0.5f);
  if (a < 0.0f) {
    float half = b * 0.5f;
    if (rintf(b) != b) y = __int_as_float(0x7fc00000);
    else if (rintf(half) != half) y = -y;
  }
  return y;
}
template <int> __device__ __forceinline__ double pow(double a, double b) { return ::pow(a, b); }

// Integers wrap as in NumPy; a negative exponent gives the truncated quotient (0, or +-1 for a base of +-1).
template <int, class C> __device__ __forceinline__ C pow(C base, C exponent) {
  if (exponent < C(0)) {
    if (base == C(1)) return C(1);
    if (base == C(-1)) return exponent & 1 ? C(-1) : C(1);
    return C(0);
  }
  C result = 1;
  for (; exponent; exponent = C(exponent >> 1)) {
    if (exponent & 1) result = C(result * base);
    base = C(base * base);
  }
  return result;
}

}  // namespace math
