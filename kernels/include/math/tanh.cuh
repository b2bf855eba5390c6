// The hyperbolic tangent.
#pragma once
#include "math/approx.cuh"

namespace math {

// tanh.approx has relative error 2^-11 (PTX ISA), an eighth of a bf16 ulp.
__device__ __forceinline__ float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// tanh(x) from y = 2 log2(e) x, by two approximate instructions and three operations: absolute error within 2^-21.
__device__ __forceinline__ float tanh_from_log2(float y) { return fmaf(-2.0f, rcp_ftz(ex2_ftz(y) + 1.0f), 1.0f); }

// 1 - 2 / (exp(2|x|) + 1), and the Taylor series for small |x|, where that cancels.
template <int digits> __device__ __forceinline__ float tanh(float x) {
  if constexpr (digits > F16) return ::tanhf(x);
  if constexpr (digits <= BF16) return tanh_approx(x);
  float large = fmaf(-2.0f, rcp_ftz(ex2_ftz(fabsf(x) * (2 * LOG2E)) + 1.0f), 1.0f);
  float s = x * x;
  float small = x * polynomial(s, {1.0f, -1.0f / 3, 2.0f / 15, -17.0f / 315});
  return fabsf(x) < 0.25f ? small : copysignf(large, x);
}
template <int> __device__ __forceinline__ double tanh(double x) { return ::tanh(x); }

}  // namespace math
