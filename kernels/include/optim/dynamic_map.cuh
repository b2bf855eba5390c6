// The dynamic maps of 8-bit states (T. Dettmers et al., ICLR 2022): 256 numbers of [-1, 1], or UNSIGNED ones of [0, 1],
// in ascending order. 0 and 1 are among them. The others are the middles of the 2**n equal parts of [0.1, 1] times
// 10**(n - MOST), n from 0 to MOST = 6 and of either sign, or UNSIGNED from 1 to MOST = 7.
#pragma once
#include "core/dtype.cuh"

namespace optim {

constexpr int CODES = 256;

template <bool UNSIGNED> __device__ __forceinline__ float number_of(int code) {
  constexpr int MOST = UNSIGNED ? 7 : 6;
  const int place = UNSIGNED ? code + 1 : ::abs(code - 127);  // 2**n and on: the parts of decade n
  if (place <= int(UNSIGNED)) return 0;
  const int decade = 31 - __clz(place);
  if (decade > MOST) return 1;
  double power = 1;
  for (int n = decade; n < MOST; ++n) power *= 10;
  const double part = (double(place - (1 << decade)) + 0.5) / double(1 << decade);
  return float((UNSIGNED || code > 127 ? 1.0 : -1.0) * (0.1 + 0.9 * part) / power);
}

// Both maps, in shared memory. `border` is halfway to the number before, in f32, and belongs to the greater of the two.
// Within a decade a number's place is linear in it: `decade` has the factors, by how many decades begin at or below.
// `begun` and `limit`: how many do so at the bottom of a power of two, and where the next one begins.
struct DynamicMaps {
  static constexpr int ZERO = 127, LEAST = -23, POWERS = 1 - LEAST, DECADES = 9;  // ZERO: the signed map's code of 0
  struct alignas(16) Decade { float scale, offset, last; };
  float number[2][CODES], border[2][CODES], limit[2][POWERS];
  int begun[2][POWERS];
  Decade decade[2][DECADES];

  // By a CTA of CODES threads.
  __device__ __forceinline__ void make() {
    const int code = threadIdx.x;
    number[0][code] = number_of<false>(code);
    number[1][code] = number_of<true>(code);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 2; ++k) border[k][code] = code ? (number[k][code - 1] + number[k][code]) / 2 : 0;
    __syncthreads();
    if (code < 2 * 32 && code % 32 < POWERS) {
      const int k = code / 32, power = code % 32;
      int n = 0;
      while (n < DECADES - 1 && begin(k, n + 1) <= ::exp2f(power + LEAST)) ++n;
      begun[k][power] = n;
      limit[k][power] = n < DECADES - 1 ? begin(k, n + 1) : 2;
      if (power < DECADES) decade[k][power] = factors(k, power);
    }
    __syncthreads();
  }
  // The codes of x / most, most the greatest size among x. A quotient by the rounded reciprocal is the division's after
  // one correction (P. Markstein, 1990), unless the remainder is subnormal.
  template <class C, int V>
  __device__ __forceinline__ void encode(bool is_unsigned, const C (&x)[V], float most, u8 (&code)[V]) const {
    if (most >= 0x1p-80f && most <= 0x1p100f) {
      const float inverse = 1 / most;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float value = float(x[v]), q = __fmul_rn(value, inverse);
        code[v] = nearest(is_unsigned, ::fmaf(::fmaf(-q, most, value), inverse, q));
      }
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) code[v] = searched(is_unsigned, most == 0 ? 0.0f : float(x[v]) / most);
    }
  }

 private:
  // The nearest code of x in [-1, 1].
  __device__ __forceinline__ u8 nearest(bool is_unsigned, float x) const {
    const float size = is_unsigned ? fmaxf(x, 0) : ::fabsf(x);
    const int power = max(int(__float_as_uint(size) >> 23) - 127 - LEAST, 0);
    const float next = limit[is_unsigned][power];
    const Decade& in = decade[is_unsigned][begun[is_unsigned][power] + (size >= next)];
    const float exact = fminf(::fmaf(size, in.scale, in.offset), in.last);
    const float shifted = __fadd_rn(exact, SHIFT), off = exact - __fsub_rn(shifted, SHIFT);
    const int place = __float_as_int(shifted) - __float_as_int(SHIFT);
    int code = is_unsigned ? place - 1 : max(x < 0 ? ZERO - place : ZERO + place, 0);
    if (::fabsf(off) > 0.5f - 0x1p-10f || size == next) {  // at a border, or within the factors' roundings of one
      if (code && x < border[is_unsigned][code]) --code;
      else if (code < CODES - 1 && x >= border[is_unsigned][code + 1]) ++code;
    }
    return u8(code);
  }
  // That of any x: the borders that it is not below are counted. Of NaN it is 0.
  __device__ __forceinline__ u8 searched(bool is_unsigned, float x) const {
    int code = 0;
#pragma unroll 1
    for (int step = CODES / 2; step; step /= 2) code += x >= border[is_unsigned][code + step] ? step : 0;
    return u8(code);
  }

  static constexpr float SHIFT = 0x1.8p23f;  // a sum with it is rounded to a whole number, which its last bits are

  // The first place of the n-th decade: 2**exponent; and the border below it.
  static __device__ __forceinline__ int exponent(int k, int n) { return k ? n : n - 1; }
  __device__ __forceinline__ float begin(int k, int n) const {
    const int place = 1 << exponent(k, n);
    return border[k][k ? place - 1 : ZERO + place];
  }
  static __device__ __forceinline__ Decade factors(int k, int n) {
    if (n == 0) return {0, float(k), float(k)};
    const double places = 1 << exponent(k, n);
    if (n == DECADES - 1) return {0, float(places), float(places)};
    double power = 1;
    for (int m = n; m < DECADES - 2; ++m) power *= 10;
    return {float(places * power / 0.9), float(places - 0.5 - places / 9), float(2 * places - 1)};
  }
};

}  // namespace optim
