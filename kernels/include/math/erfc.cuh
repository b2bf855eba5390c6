// 1 - erf(x).
#pragma once
#include "math/upper_tail.cuh"

namespace math {

// For bf16 twice the normal distribution's tail at sqrt(2) |x|, or 2 less that.
template <int digits> __device__ __forceinline__ float erfc(float x) {
  if constexpr (digits > BF16) return ::erfcf(x);
  const float tail = 2.0f * upper_tail<digits>(fabsf(x) * 1.41421356f);
  return x < 0.0f ? 2.0f - tail : tail;
}
template <int> __device__ __forceinline__ double erfc(double x) { return ::erfc(x); }

}  // namespace math
