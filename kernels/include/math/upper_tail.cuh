// The normal distribution's upper tail.
#pragma once
#include "math/approx.cuh"

namespace math {

// Phi(-x) for 0 <= x: t G(t) exp(-x^2/2) with t = 1 / (1 + 0.3 x), the form of M. Abramowitz and I. A. Stegun,
// "Handbook of Mathematical Functions", 7.1.26, with our own minimax fit of G (relative error 5.8e-5 in degree 4 with
// 0.25, 8.9e-6 in degree 5, 3.5e-9 in degree 9). For f32 accuracy the argument of exp2 has a low part.
template <int digits> __device__ __forceinline__ float upper_tail(float x) {
  float t = rcp_ftz(fmaf(0.3f, x, 1.0f));
  constexpr float HALF_LOG2E = -0.5f * LOG2E;
  float s = x * x;
  float p = s * HALF_LOG2E;
  if constexpr (digits <= BF16) {
    float u = rcp_ftz(fmaf(0.25f, x, 1.0f));
    return u * polynomial(u, {0.10121081f, 0.08162971f, 0.17726853f, -0.1002218f, 0.24008443f}) * ex2_ftz(p);
  } else if constexpr (digits <= F16) {
    return t * polynomial(t, {0.12005742f, 0.11392282f, 0.14347342f, -0.015597691f, 0.21484912f, -0.07670065f}) *
        ex2_ftz(p);
  } else {
    constexpr float HALF_LOG2E_LOW = -9.6298e-09f;  // -log2(e)/2 - HALF_LOG2E
    float low = fmaf(fmaf(x, x, -s), HALF_LOG2E, fmaf(s, HALF_LOG2E_LOW, fmaf(s, HALF_LOG2E, -p)));
    float r = 2.0f - fmaf(0.3f, x, 1.0f) * t;  // one Newton step: rcp.approx is 1 ulp
    t *= r;
    float g = polynomial(t, {0.119686690f, 0.119571815f, 0.110235414f, 0.0783896950f, 0.0961567100f, -0.0794232694f,
                             0.191784276f, -0.228213410f, 0.112435533f, -0.0206234543f});
    return t * g * fmaf(ex2_ftz(p), low * LN2, ex2_ftz(p));
  }
}

}  // namespace math
