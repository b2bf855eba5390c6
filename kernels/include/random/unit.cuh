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

// Sine and cosine of w / 2^32 or w / 2^64 of a turn. The nearest quarter turn is split off exactly, in integers.
__device__ __forceinline__ float turn_rest(u32 w, u32& quadrant) {
  quadrant = (w + 0x20000000u) >> 30;
  return float(i32(w - (quadrant << 30))) * 1.46291808e-9f;  // 2 pi / 2^32
}
__device__ __forceinline__ double turn_rest(u64 w, u32& quadrant) {
  quadrant = u32((w + 0x2000000000000000ull) >> 62);
  return double(i64(w - (u64(quadrant) << 62))) * 3.4061215800865545e-19;  // 2 pi / 2^64
}
template <class W, class C> __device__ __forceinline__ void turn(W w, C& sine, C& cosine) {
  u32 quadrant;
  const C r = turn_rest(w, quadrant), s = math::sin_near(r), c = math::cos_near(r);
  sine = quadrant & 1 ? c : s;
  cosine = quadrant & 1 ? s : c;
  if (quadrant & 2) sine = -sine;
  if ((quadrant + 1) & 2) cosine = -cosine;
}

}  // namespace philox
