// Functions of a uniform number in (0, 1), (w + 1/2) / 2^32 of 32 random bits w or (w + 1/2) / 2^64 of 64, with small
// relative errors at both ends.
#pragma once
#include "math/trigonometric.cuh"

namespace philox {

// -log of the number. Where it is above 1/2, 1 minus it is known exactly, and the logarithm is that of 1 - x.
// f32: number = 2^e (1 + m), m in [-1/3, 1/3]; own minimax polynomial of (log(1 + m) - m + m^2 / 2) / m^3, error
// 1.8e-7 m^3.
__device__ __forceinline__ float minus_log(u32 w) {
  const bool upper = w >> 31;
  const float x = ::fmaf(float(upper ? ~w : w), 2.32830644e-10f, 1.16415322e-10f);  // 2^-32, 2^-33
  const float number = upper ? 1.0f - x : x;  // its rounding moves the choice of e only
  const u32 exponent = (__float_as_uint(number) - 0x3f2aaaabu) & 0xff800000u;
  const float scale = __uint_as_float(0x3f800000u - exponent);  // 2^-e
  const float m = ::fmaf(upper ? -x : x, scale, upper ? scale - 1.0f : -1.0f);
  float q = ::fmaf(-0.121255808f, m, 0.134257495f);
  q = ::fmaf(::fmaf(q, m, -0.123461902f), m, 0.141183093f);
  q = ::fmaf(::fmaf(q, m, -0.166701406f), m, 0.200037807f);
  q = ::fmaf(::fmaf(q, m, -0.249999881f), m, 0.333333194f);
  const float log_of_m = ::fmaf(::fmaf(q, m, -0.5f), m * m, m);
  return -::fmaf(float(i32(exponent) >> 23), 0.693147182f, log_of_m);
}
__device__ __forceinline__ double minus_log(u64 w) {
  const bool upper = w >> 63;
  const double x = ::fma(double(upper ? ~w : w), 5.4210108624275222e-20, 2.7105054312137611e-20);  // 2^-64, 2^-65
  return upper ? -::log1p(-x) : -::log(x);
}

// The root of -2 log of the number. f32: one approximate instruction, relative error 2^-23 (PTX ISA, sqrt.approx); what
// it flushes to zero, less than 2^-126, is no logarithm of such a number.
__device__ __forceinline__ float normal_radius(u32 w) {
  float radius;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(radius) : "f"(2.0f * minus_log(w)));
  return radius;
}
__device__ __forceinline__ double normal_radius(u64 w) { return ::sqrt(2.0 * minus_log(w)); }

// Sine and cosine of w / 2^32 of a turn, by two approximate instructions: absolute error 2^-20.5 (PTX ISA, sin.approx)
// and the rounding of an angle of at most half a turn.
__device__ __forceinline__ void turn(u32 w, float& sine, float& cosine) {
  const float angle = float(i32(w)) * 1.46291808e-9f;  // 2 pi / 2^32
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(sine) : "f"(angle));
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(cosine) : "f"(angle));
}

// The same of w / 2^64. The nearest quarter turn is split off exactly, in integers.
__device__ __forceinline__ void turn(u64 w, double& sine, double& cosine) {
  const u32 quadrant = u32((w + 0x2000000000000000ull) >> 62);
  const double r = double(i64(w - (u64(quadrant) << 62))) * 3.4061215800865545e-19;  // 2 pi / 2^64
  const double s = math::sin_near(r), c = math::cos_near(r);
  sine = quadrant & 1 ? c : s;
  cosine = quadrant & 1 ? s : c;
  if (quadrant & 2) sine = -sine;
  if ((quadrant + 1) & 2) cosine = -cosine;
}

}  // namespace philox
