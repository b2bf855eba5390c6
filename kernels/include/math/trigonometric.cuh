// sin, cos and tan of any argument: x = (4 k + quadrant) pi / 2 + rest, |rest| up to little more than pi / 4, and
// polynomials of the rest.
#pragma once
#include "core/dtype.cuh"

namespace math {

// The bits of 2 / pi, after 64 zeros.
__constant__ const u32 TWO_OVER_PI[38] = {
    0, 0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a,
    0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41,
    0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf,
    0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08};

// 64 bits from bit `at` of the table.
__device__ __forceinline__ u64 two_over_pi(u32 at) {
  const u32 word = at >> 5, shift = at & 31;
  const u32 a = TWO_OVER_PI[word], b = TWO_OVER_PI[word + 1], c = TWO_OVER_PI[word + 2];
  return u64(__funnelshift_l(b, a, shift)) << 32 | __funnelshift_l(c, b, shift);
}

// Rest and quadrant of x.
// 1. Cody and Waite: pi / 2 as three numbers. The first difference is exact, the others are rounded once each.
// 2. Payne and Hanek, for large x = m 2^e: the bits of 2 / pi from the first whose product with x is no multiple of 4.
//    Their product with m has the quadrant in its two highest bits; enough bits follow, because no number of the type
//    is nearer to a multiple of pi / 2 than 2^-30 (f64: 2^-62).
__device__ __forceinline__ float quarter_turns(float x, u32& quadrant) {
  if (::fabsf(x) < 1e5f) {
    const float turns = ::rintf(x * 0.636619747f);
    quadrant = u32(int(turns));
    const float first = ::fmaf(turns, -1.57079637f, x);
    return ::fmaf(turns, 1.71512451e-15f, ::fmaf(turns, 4.37113883e-08f, first));
  }
  const u32 bits = __float_as_uint(x), exponent = bits >> 23 & 255;
  if (exponent == 255) return x - x;
  const u32 at = exponent - 127 + 31, m = (bits | 0x800000u) << 8;
  const u64 high = two_over_pi(at), low = two_over_pi(at + 64) >> 32;
  const u64 product = (u64(m) * u32(high >> 32) << 32) + u64(m) * u32(high) + (u64(m) * u32(low) >> 32);
  quadrant = u32((product + (1ull << 61)) >> 62);
  const float rest = float(double(i64(product << 2)) * 8.5153039502163873e-20);  // pi / 2 / 2^64
  if (bits >> 31) quadrant = 0u - quadrant;
  return bits >> 31 ? -rest : rest;
}
__device__ __forceinline__ double quarter_turns(double x, u32& quadrant) {
  if (::fabs(x) < 1e9) {
    const double turns = ::rint(x * 0.63661977236758134);
    quadrant = u32(int(turns));
    const double first = ::fma(turns, -1.5707963267948966, x);
    return ::fma(turns, 1.4973849048591698e-33, ::fma(turns, -6.123233995736766e-17, first));
  }
  const u64 bits = u64(__double_as_longlong(x));
  const u32 exponent = u32(bits >> 52) & 2047;
  if (exponent == 2047) return x - x;
  const u32 at = exponent - 1023 - 1;
  const u64 m = (bits | 1ull << 52) << 11, middle = two_over_pi(at + 64);
  const u64 low = m * middle + __umul64hi(m, two_over_pi(at + 128));
  const u64 high = m * two_over_pi(at) + __umul64hi(m, middle) + (low < m * middle);
  quadrant = u32((high + (1ull << 61)) >> 62);
  u64 whole = high << 2 | low >> 62, part = low << 2;
  const bool above = whole >> 63;  // the next multiple is nearer
  if (above) {
    part = 0ull - part;
    whole = ~whole + (part == 0);
  }
  const double rest = ::fma(double(part), 5.4210108624275222e-20, double(whole)) * 8.5153039502163873e-20;
  const bool negative = bits >> 63;
  if (negative) quadrant = 0u - quadrant;
  return above != negative ? -rest : rest;
}

// Minimax polynomials in r^2, our own fits: relative errors 1.9e-11 and 8.4e-10 in f32, 1.5e-17 and 5.7e-19 in f64.
__device__ __forceinline__ float sin_near(float r) {
  const float s = r * r;
  const float p = ::fmaf(::fmaf(::fmaf(2.72436666e-6f, s, -1.98400380e-4f), s, 8.33333178e-3f), s, -0.166666667f);
  return ::fmaf(r * s, p, r);
}
__device__ __forceinline__ float cos_near(float r) {
  const float s = r * r;
  const float p = ::fmaf(::fmaf(2.45427764e-5f, s, -1.38882789e-3f), s, 4.16666645e-2f);
  return ::fmaf(s, ::fmaf(s, p, -0.5f), 1.0f);
}
__device__ __forceinline__ double sin_near(double r) {
  const double s = r * r;
  double p = ::fma(1.59152564914579463e-10, s, -2.50510915622329496e-8);
  p = ::fma(::fma(p, s, 2.75573159072860223e-6), s, -0.000198412698363782492);
  p = ::fma(::fma(p, s, 0.00833333333333069449), s, -0.166666666666666644);
  return ::fma(r * s, p, r);
}
__device__ __forceinline__ double cos_near(double r) {
  const double s = r * r;
  double p = ::fma(-1.13808352074127643e-11, s, 2.087612106778766e-9);
  p = ::fma(::fma(p, s, -2.75573171495735856e-7), s, 0.000024801587298527764);
  p = ::fma(::fma(p, s, -0.00138888888888872383), s, 0.0416666666666666652);
  return ::fma(s, ::fma(s, p, -0.5), 1.0);
}

// The sine of x and `turns` quarter turns.
template <class C> __device__ __forceinline__ C sin_at(C x, u32 turns) {
  u32 quadrant;
  const C r = quarter_turns(x, quadrant);
  quadrant += turns;
  const C y = quadrant & 1 ? cos_near(r) : sin_near(r);
  return quadrant & 2 ? -y : y;
}

template <class C> __device__ __forceinline__ C sin(C x) { return x == C(0) ? x : sin_at(x, 0); }
template <class C> __device__ __forceinline__ C cos(C x) { return sin_at(x, 1); }
template <class C> __device__ __forceinline__ C tan(C x) {
  u32 quadrant;
  const C r = quarter_turns(x, quadrant), s = sin_near(r), c = cos_near(r);
  return x == C(0) ? x : quadrant & 1 ? -c / s : s / c;
}

}  // namespace math
