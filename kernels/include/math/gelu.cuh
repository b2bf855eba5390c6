// x Phi(x).
#pragma once
#include "math/upper_tail.cuh"

namespace math {

// max(x, 0) - |x| Phi(-|x|) keeps the relative accuracy of both tails; |x| is clamped where Phi(-|x|) underflows.
template <int digits> __device__ __forceinline__ float gelu(float x) {
  float capped = fminf(fabsf(x), 20.0f);
  float positive;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(positive) : "f"(x));
  return copysignf(fmaf(-capped, upper_tail<digits>(capped), positive), x);  // x Phi(x) has the sign of x, also for -0
}
template <int> __device__ __forceinline__ double gelu(double x) {
  return x < -40.0 ? -0.0 : x * ::normcdf(x);
}

}  // namespace math
