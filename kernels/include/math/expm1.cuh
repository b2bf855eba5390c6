// e to the x, less 1, and what is that below zero alone.
#pragma once
#include "math/approx.cuh"

namespace math {

// For bf16 the Taylor series up to 1/8 (2^-18 relative), where the difference cancels.
template <int digits> __device__ __forceinline__ float expm1(float x) {
  if constexpr (digits > BF16) return ::expm1f(x);
  const float small = x * polynomial(x, {1.0f, 0.5f, 1.0f / 6, 1.0f / 24});
  return fabsf(x) < 0.125f ? small : ex2_ftz(x * LOG2E) - 1.0f;
}
template <int> __device__ __forceinline__ double expm1(double x) { return ::expm1(x); }

// `above` where x is positive, factor (e^scaled - 1) elsewhere. For bf16 both are computed, which costs less than a
// branch.
template <int digits> __device__ __forceinline__ float elu(float x, float above, float factor, float scaled) {
  float below = factor * expm1<digits>(scaled);
  if constexpr (digits <= BF16) asm("" : "+f"(below));
  return x > 0.0f ? above : below;
}
template <int> __device__ __forceinline__ double elu(double x, double above, double factor, double scaled) {
  return x > 0.0 ? above : factor * ::expm1(scaled);
}

}  // namespace math
