// e to the x, less 1.
#pragma once
#include "math/approx.cuh"

namespace math {

// For bf16 the Taylor series up to 1/8 (2^-18 relative), where the difference cancels.
template <int digits> __device__ __forceinline__ float expm1(float x) {
  if constexpr (digits > BF16) return ::expm1f(x);
  const float small = x * polynomial(x, {1.0f, 0.5f, 1.0f / 6, 1.0f / 24});
  return fabsf(x) < 0.125f ? small : ex2(x * LOG2E) - 1.0f;
}
template <int> __device__ __forceinline__ double expm1(double x) { return ::expm1(x); }

}  // namespace math
