// The hyperbolic sine, and the inverses of the hyperbolic functions.
#pragma once
#include "math/logarithms.cuh"
#include "math/short_sqrt.cuh"

namespace math {

// For bf16 (e^x - e^-x) / 2, and the Taylor series up to 1/4 (2^-24 relative).
template <int digits> __device__ __forceinline__ float sinh(float x) {
  if constexpr (digits > BF16) return ::sinhf(x);
  const float small = x * polynomial(x * x, {1.0f, 1.0f / 6, 1.0f / 120});
  return fabsf(x) < 0.25f ? small : ex2_ftz(fmaf(x, LOG2E, -1.0f)) - ex2_ftz(fmaf(x, -LOG2E, -1.0f));
}
template <int> __device__ __forceinline__ double sinh(double x) { return ::sinh(x); }

// log(|x| + sqrt(x^2 + 1)) of halves, which do not overflow; the Taylor series up to 1/4 (2^-16 relative).
template <int digits> __device__ __forceinline__ float asinh(float x) {
  if constexpr (digits > BF16) return ::asinhf(x);
  const float a = fabsf(x), small = a * polynomial(x * x, {1.0f, -1.0f / 6, 3.0f / 40});
  const float root = a > 0x1p20f ? a : short_sqrt(fmaf(a, a, 1.0f));
  return copysignf(a < 0.25f ? small : fmaf(lg2_ftz(fmaf(root, 0.5f, 0.5f * a)), LN2, LN2), x);
}
template <int> __device__ __forceinline__ double asinh(double x) { return ::asinh(x); }

// log(x + sqrt(x^2 - 1)), of large numbers log(2 x); below 1 a root is NaN.
template <int digits> __device__ __forceinline__ float acosh(float x) {
  if constexpr (digits > BF16) return ::acoshf(x);
  const bool large = x > 0x1p100f;
  const float sum = fmaf(short_sqrt(x - 1.0f), short_sqrt(x + 1.0f), x);
  return fmaf(lg2_ftz(large ? x : sum), LN2, large ? LN2 : 0.0f);
}
template <int> __device__ __forceinline__ double acosh(double x) { return ::acosh(x); }

// Half of log((1 + x) / (1 - x)); the Taylor series up to 1/8 (2^-20 relative).
template <int digits> __device__ __forceinline__ float atanh(float x) {
  if constexpr (digits > BF16) return ::atanhf(x);
  const float small = x * polynomial(x * x, {1.0f, 1.0f / 3, 0.2f});
  return fabsf(x) < 0.125f ? small : (lg2_ftz(1.0f + x) - lg2_ftz(1.0f - x)) * (0.5f * LN2);
}
template <int> __device__ __forceinline__ double atanh(double x) { return ::atanh(x); }

}  // namespace math
