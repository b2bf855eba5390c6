// Building blocks of this folder's functions. Each function is f<digits>(x): `digits` is the significand of the
// result's type (8 bf16, 11 f16, 24 f32), so that a 16-bit result costs no more instructions than it needs. The op's
// table states the ulps. f64 uses CUDA's own functions. No function assumes -ftz; ops whose results below 2^-126 are
// flushed say so in their bound.
#pragma once

namespace math {

constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;
constexpr int BF16 = 8, F16 = 11;  // significand digits

__device__ __forceinline__ float ex2(float x) { float y; asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ __forceinline__ float ex2_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float rcp_ftz(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// p[0] + p[1] x + ... by Horner's rule.
template <int N> __device__ __forceinline__ float polynomial(float x, const float (&p)[N]) {
  float y = p[N - 1];
#pragma unroll
  for (int i = N - 2; i >= 0; --i) y = fmaf(y, x, p[i]);
  return y;
}

}  // namespace math
