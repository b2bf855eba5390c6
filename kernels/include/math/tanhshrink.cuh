// x - tanh(x).
#pragma once
#include "math/tanh.cuh"

namespace math {

// Near zero (x cosh(x) - sinh(x)) / cosh(x): the terms 2 k / (2 k + 1)! x^(2 k + 1) of the numerator have one sign.
template <class C> __device__ __forceinline__ C any_tanhshrink(C x) {
  if (!(::fabs(x) < C(2))) return x - ::tanh(x);
  constexpr int TERMS = sizeof(C) == 4 ? 8 : 14;
  const C s = x * x;
  C sum = C(0);
#pragma unroll
  for (int k = TERMS; k > 0; --k)  // the ratio of one term's coefficient to that of the one before
    sum = C(1) + sum * s * C(double(k + 1) / (double(k) * (2 * k + 2) * (2 * k + 3)));
  const C y = x * (s * sum) * C(1.0 / 3);
  return x == C(0) ? x : y / ::cosh(x);
}
// For bf16 a difference, within 2^-14 relative, and the Taylor series up to 1/4 (2^-16).
template <int digits> __device__ __forceinline__ float tanhshrink(float x) {
  if constexpr (digits > BF16) return any_tanhshrink(x);
  const float s = x * x, small = x * (s * polynomial(s, {1.0f / 3, -2.0f / 15, 17.0f / 315}));
  return fabsf(x) < 0.25f ? (x == 0.0f ? x : small) : x - tanh_from_log2(x * (2 * LOG2E));
}
template <int> __device__ __forceinline__ double tanhshrink(double x) { return any_tanhshrink(x); }

}  // namespace math
