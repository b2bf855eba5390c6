// x tanh(log(1 + exp(x))).
#pragma once
#include "math/approx.cuh"

namespace math {

// x n / (n + 2) with n = e^x (e^x + 2); the factor is 1 long before exp overflows.
template <class C> __device__ __forceinline__ C any_mish(C x) {
  const C e = ::exp(x > C(40) ? C(40) : x);
  const C n = e * (e + C(2));
  return n == C(0) ? C(-0.0) : x * (n / (n + C(2)));
}
template <int digits> __device__ __forceinline__ float mish(float x) {
  if constexpr (digits > F16) return any_mish(x);
  const float e = ex2((x > 40.0f ? 40.0f : x) * LOG2E), n = e * (e + 2.0f);
  return n == 0.0f ? -0.0f : x * (n * rcp_ftz(n + 2.0f));
}
template <int> __device__ __forceinline__ double mish(double x) { return any_mish(x); }

}  // namespace math
