// 1 / (1 + exp(-x)).
#pragma once
#include "math/approx.cuh"

namespace math {

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

}  // namespace math
