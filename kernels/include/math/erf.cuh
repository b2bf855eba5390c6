// The error function.
#pragma once
#include "math/approx.cuh"
#include "math/tanh.cuh"
#include "math/upper_tail.cuh"

namespace math {

// 1 - 2 Phi(-sqrt(2) |x|), and the Taylor series for small |x|, where that cancels. For bf16 tanh(x P(x^2)) with our
// own minimax fit P of atanh(erf(x)) / x for |x| < 2.6 (5.8e-5 relative); beyond that the result is 1.
template <int digits> __device__ __forceinline__ float erf(float x) {
  if constexpr (digits > F16) return ::erff(x);
  if constexpr (digits <= BF16)
    return tanh_approx(x * polynomial(fminf(x * x, 6.76f), {1.12831377f, 0.103642241f, -0.00161636525f}));
  float a = fminf(fabsf(x), 6.0f), s = x * x;
  float large = copysignf(fmaf(-2.0f, upper_tail<digits>(a * 1.41421356f), 1.0f), x);
  float small = x * polynomial(s, {1.128379167f, -0.3761263890f, 0.1128379167f, -0.02686617064f, 0.005223977625f});
  return a < 0.5f || x != x ? small : large;
}
template <int> __device__ __forceinline__ double erf(double x) { return ::erf(x); }

}  // namespace math
