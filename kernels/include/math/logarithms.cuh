// Logarithms to base 2 and 10, of 1 + x, and of odds.
#pragma once
#include "math/approx.cuh"

namespace math {

// Absolute error within 2^-22 from 1/2 to 2, relative beyond (PTX ISA).
__device__ __forceinline__ float lg2(float x) { float y; asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ __forceinline__ float lg2_ftz(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <int digits> __device__ __forceinline__ float log2(float x) { return digits <= BF16 ? lg2(x) : ::log2f(x); }
template <int> __device__ __forceinline__ double log2(double x) { return ::log2(x); }

template <int digits> __device__ __forceinline__ float log10(float x) {
  return digits <= BF16 ? lg2(x) * 0.30102999566f : ::log10f(x);
}
template <int> __device__ __forceinline__ double log10(double x) { return ::log10(x); }

// For bf16 the Taylor series up to 1/32 (2^-16 relative), where the sum with 1 loses digits of x.
template <int digits> __device__ __forceinline__ float log1p(float x) {
  if constexpr (digits > BF16) return ::log1pf(x);
  const float small = x * polynomial(x, {1.0f, -0.5f, 1.0f / 3});
  return fabsf(x) < 0.03125f ? small : lg2_ftz(1.0f + x) * LN2;
}
template <int> __device__ __forceinline__ double log1p(double x) { return ::log1p(x); }

// log(1 / (1 + exp(-x))). Two terms of one sign.
template <int digits> __device__ __forceinline__ float log_sigmoid(float x) {
  const float e = digits <= BF16 ? ex2(fabsf(x) * -LOG2E) : ::expf(-fabsf(x));
  return fminf(x, 0.0f) - log1p<digits>(e) + (x == x ? 0.0f : x);
}
template <int> __device__ __forceinline__ double log_sigmoid(double x) {
  return ::fmin(x, 0.0) - ::log1p(::exp(-::fabs(x))) + (x == x ? 0.0 : x);
}

// log(x / (1 - x)). 1 - x is exact from 1/2 up, 2 x - 1 from 1/4 up. For bf16, which is no nearer to 1/2 than 2^-9, a
// difference of logarithms.
template <class C> __device__ __forceinline__ C any_logit(C x) {
  return ::fabs(x - C(0.5)) <= C(0.25) ? C(2) * ::atanh(C(2) * x - C(1)) : ::log(x / (C(1) - x));
}
template <int digits> __device__ __forceinline__ float logit(float x) {
  return digits <= BF16 ? (lg2(x) - lg2_ftz(1.0f - x)) * LN2 : any_logit(x);
}
template <int> __device__ __forceinline__ double logit(double x) { return any_logit(x); }

}  // namespace math
