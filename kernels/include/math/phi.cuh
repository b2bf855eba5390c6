// The standard normal distribution function.
#pragma once
#include "math/upper_tail.cuh"

namespace math {

// Phi(-|x|) keeps the relative accuracy of the lower tail; |x| is clamped where it underflows.
template <int digits> __device__ __forceinline__ float phi(float x) {
  float tail = upper_tail<digits>(fminf(fabsf(x), 20.0f));
  return x != x ? x : x < 0.0f ? tail : 1.0f - tail;
}
template <int> __device__ __forceinline__ double phi(double x) { return ::normcdf(x); }

}  // namespace math
