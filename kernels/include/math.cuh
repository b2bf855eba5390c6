// Scalar functions. Each comes as f<digits>(x): `digits` is the significand of the type the result is rounded to (8 bf16,
// 11 f16, 24 f32), so that a 16-bit result costs no more than it shows. The ulps are in the op's table. f64 is CUDA's own.
// No function assumes -ftz; those that flush results below 2^-126 say so in their op's bound.
#pragma once
#include "dtype.cuh"

namespace math {

constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;
constexpr int BF16 = 8, F16 = 11;  // significand digits

__device__ __forceinline__ float ex2(float x) { float y; asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ __forceinline__ float ex2_ftz(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ __forceinline__ float rcp_ftz(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }

// p[0] + p[1] x + ... by Horner's rule.
template <int N> __device__ __forceinline__ float polynomial(float x, const float (&p)[N]) {
  float y = p[N - 1];
#pragma unroll
  for (int i = N - 2; i >= 0; --i) y = fmaf(y, x, p[i]);
  return y;
}

template <class C> __device__ __forceinline__ C absolute(C x) { return x < C(0) ? C(-x) : x; }
template <> __device__ __forceinline__ float absolute(float x) { return fabsf(x); }
template <> __device__ __forceinline__ double absolute(double x) { return fabs(x); }

// NumPy's sign: NaN stays NaN, both zeros give +0.
template <class C> __device__ __forceinline__ C sign(C x) { return x > C(0) ? C(1) : x < C(0) ? C(-1) : x == C(0) ? C(0) : x; }

template <int digits> __device__ __forceinline__ float sqrt(float x) {
  if constexpr (digits <= F16) { float y; asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
  return ::sqrtf(x);
}
template <int> __device__ __forceinline__ double sqrt(double x) { return ::sqrt(x); }

template <int> __device__ __forceinline__ float rsqrt(float x) { return ::rsqrtf(x); }
template <int> __device__ __forceinline__ double rsqrt(double x) { return ::rsqrt(x); }

template <int digits> __device__ __forceinline__ float exp(float x) { return digits <= F16 ? ex2(x * LOG2E) : ::expf(x); }
template <int> __device__ __forceinline__ double exp(double x) { return ::exp(x); }

template <int digits> __device__ __forceinline__ float log(float x) {
  if constexpr (digits <= BF16) { float y; asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y * LN2; }
  return ::logf(x);
}
template <int> __device__ __forceinline__ double log(double x) { return ::log(x); }

// tanh.approx is good to 2^-11 relative (PTX ISA): an eighth of a bf16 ulp.
__device__ __forceinline__ float tanh_approx(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }

// 1 - 2 / (exp(2|x|) + 1), and its Taylor series where that cancels.
template <int digits> __device__ __forceinline__ float tanh(float x) {
  if constexpr (digits > F16) return ::tanhf(x);
  if constexpr (digits <= BF16) return tanh_approx(x);
  float large = fmaf(-2.0f, rcp_ftz(ex2_ftz(fabsf(x) * (2 * LOG2E)) + 1.0f), 1.0f);
  float s = x * x;
  float small = x * polynomial(s, {1.0f, -1.0f / 3, 2.0f / 15, -17.0f / 315});
  return fabsf(x) < 0.25f ? small : copysignf(large, x);
}
template <int> __device__ __forceinline__ double tanh(double x) { return ::tanh(x); }

// exp(-|x|) never overflows, so both tails keep their relative accuracy.
template <int digits> __device__ __forceinline__ float sigmoid(float x) {
  if constexpr (digits <= F16) return rcp_ftz(1.0f + ex2_ftz(x * -LOG2E));
  float t = ::expf(-fabsf(x));
  return (x < 0.0f ? t : 1.0f) / (1.0f + t);
}
template <int> __device__ __forceinline__ double sigmoid(double x) {
  double t = ::exp(-fabs(x));
  return (x < 0.0 ? t : 1.0) / (1.0 + t);
}

template <int digits, class C> __device__ __forceinline__ C silu(C x) {
  C s = sigmoid<digits>(x);
  return s == C(0) ? C(-0.0) : x * s;  // not -inf * 0
}

// Phi(-x) for 0 <= x: t G(t) exp(-x^2/2) with t = 1 / (1 + 0.3 x), the form of M. Abramowitz and I. A. Stegun, "Handbook of
// Mathematical Functions", 7.1.26, with our own minimax fit of G (relative error 5.8e-5
// in degree 4 with 0.25, 8.9e-6 in degree 5, 3.5e-9 in degree 9).
// The argument of exp2 is carried in two parts where f32 accuracy is asked for.
template <int digits> __device__ __forceinline__ float upper_tail(float x) {
  float t = rcp_ftz(fmaf(0.3f, x, 1.0f));
  constexpr float HALF_LOG2E = -0.5f * LOG2E;
  float s = x * x;
  float p = s * HALF_LOG2E;
  if constexpr (digits <= BF16) {
    float u = rcp_ftz(fmaf(0.25f, x, 1.0f));
    return u * polynomial(u, {0.10121081f, 0.08162971f, 0.17726853f, -0.1002218f, 0.24008443f}) * ex2_ftz(p);
  } else if constexpr (digits <= F16) {
    return t * polynomial(t, {0.12005742f, 0.11392282f, 0.14347342f, -0.015597691f, 0.21484912f, -0.07670065f}) * ex2_ftz(p);
  } else {
    constexpr float HALF_LOG2E_LOW = -9.6298e-09f;  // -log2(e)/2 - HALF_LOG2E
    float low = fmaf(fmaf(x, x, -s), HALF_LOG2E, fmaf(s, HALF_LOG2E_LOW, fmaf(s, HALF_LOG2E, -p)));
    float r = 2.0f - fmaf(0.3f, x, 1.0f) * t;  // one Newton step: rcp.approx is 1 ulp
    t *= r;
    float g = polynomial(t, {0.119686690f, 0.119571815f, 0.110235414f, 0.0783896950f, 0.0961567100f, -0.0794232694f,
                             0.191784276f, -0.228213410f, 0.112435533f, -0.0206234543f});
    return t * g * fmaf(ex2_ftz(p), low * LN2, ex2_ftz(p));
  }
}

// max(x, 0) - |x| Phi(-|x|): both tails keep their relative accuracy; |x| is capped where Phi has vanished.
template <int digits> __device__ __forceinline__ float gelu(float x) {
  float capped = fminf(fabsf(x), 20.0f);
  float positive;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(positive) : "f"(x));
  return copysignf(fmaf(-capped, upper_tail<digits>(capped), positive), x);  // x Phi(x) has x's sign, that of -0 too
}
template <int> __device__ __forceinline__ double gelu(double x) {
  return x < -40.0 ? -0.0 : x * ::normcdf(x);
}

// 1 - 2 Phi(-sqrt(2) |x|), and the Taylor series where that cancels. For bf16 tanh(x P(x^2)), P our own minimax fit of
// atanh(erf(x)) / x for |x| < 2.6 (5.8e-5 relative), beyond which the result is 1.
template <int digits> __device__ __forceinline__ float erf(float x) {
  if constexpr (digits > F16) return ::erff(x);
  if constexpr (digits <= BF16)
    return tanh_approx(x * polynomial(fminf(x * x, 6.76f), {1.12831377f, 0.103642241f, -0.00161636525f}));
  float a = fminf(fabsf(x), 6.0f), s = x * x;
  float large = copysignf(fmaf(-2.0f, upper_tail<digits>(a * 1.41421356f), 1.0f), x);
  float small = x * polynomial(s, {1.128379167f, -0.3761263890f, 0.1128379167f, -0.02686617064f, 0.005223977625f});
  return a < 0.5f || x != x ? small : large;
}
template <int> __device__ __forceinline__ double erf(double x) { return ::erf(x); }

template <int> __device__ __forceinline__ double divide(double a, double b) { return a / b; }
template <int digits> __device__ __forceinline__ float divide(float a, float b) {
  if constexpr (digits <= F16) { float y; asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
  return a / b;
}

// NumPy's maximum and minimum: a NaN on either side is the result.
template <class C> __device__ __forceinline__ C maximum(C a, C b) { return a > b || a != a ? a : b; }
template <class C> __device__ __forceinline__ C minimum(C a, C b) { return a < b || a != a ? a : b; }
template <> __device__ __forceinline__ float maximum(float a, float b) { float y; asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
template <> __device__ __forceinline__ float minimum(float a, float b) { float y; asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }

__device__ __forceinline__ float copysign(float a, float b) { return ::copysignf(a, b); }
__device__ __forceinline__ double copysign(double a, double b) { return ::copysign(a, b); }

// log2(x) of a normal x as a sum high + low. For 16-bit results one f32 to 2^-22 relative, near 1 too (own minimax fit);
// else to about 2^-30: log(m) = 2 atanh(f / (2 + f)) with the quotient's remainder carried along, m in [sqrt(1/2), sqrt(2)).
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
  float tail = fmaf(s * s2, polynomial(s2, {0.666666667f, 0.4f, 0.285714286f, 0.222222222f, 0.181818182f}), fmaf(rest, s2, rest));
  float log = 2.0f * s + tail;
  tail += 2.0f * s - log;
  float product = log * LOG2E;
  float below = fmaf(tail, LOG2E, fmaf(log, LOG2E_LOW, fmaf(log, LOG2E, -product)));
  float high = float(exponent) + product;
  low = product - (high - float(exponent)) + below;
  return high;
}

// exp2(b log2|a|), with the sign of an odd power. Zeros, subnormals, infinities, NaN and huge exponents go the long way.
template <int digits> __device__ __forceinline__ float pow(float a, float b) {
  float x = fabsf(a);
  if (!(x >= 1.17549435e-38f && x < __int_as_float(0x7f800000) && fabsf(b) < 1.0e18f)) return ::powf(a, b);
  float low, high = log2_parts<digits>(x, low);
  float p = b * high, y = ex2(p);
  if constexpr (digits > F16) y *= fmaf(fmaf(b, high, -p) + b * low, LN2, 1.0f);
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
