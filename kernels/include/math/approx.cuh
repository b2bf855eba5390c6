// What the functions of this folder are made of. Each comes as f<digits>(x): `digits` is the significand of the type the result is
// rounded to (8 bf16, 11 f16, 24 f32), so that a 16-bit result costs no more than it shows. The ulps are in the op's table. f64
// is CUDA's own. No function assumes -ftz; those that flush results below 2^-126 say so in their op's bound.
#pragma once

namespace math {

constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;
constexpr int BF16 = 8, F16 = 11;  // significand digits

__device__ __forceinline__ float ex2(float x) { float y; asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ __forceinline__ float ex2_ftz(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ __forceinline__ float rcp_ftz(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }

// p[0] + p[1] x + ... by Horner's rule.
template <int N> __device__ __forceinline__ float polynomial(float x, const float (&p)[N]) {
  float y = p[N - 1];
#pragma unroll
  for (int i = N - 2; i >= 0; --i) y = fmaf(y, x, p[i]);
  return y;
}

}  // namespace math
