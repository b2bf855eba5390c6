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

// A map, in shared memory, and what finds the nearest code of x in [-1, 1]. The border of a code, halfway to the number
// before it in f32, is the least x that has the code.
//
// Key:  the bits of x * SCALE, as an integer that ascends with x. SCALE makes 1 the exponent OCTAVES, so that all but
//       the last bits of a key, SHIFT of them, count bins. A bin has one border at most.
// Bin:  the code of its border in the first byte, less the border's key where a bin is 2**24. With the key of an x of
//       the bin added, the first byte is the code of x, for below the border the sum borrows from it. A bin without a
//       border takes that of its first x. All sums are modulo 2**32.
template <bool UNSIGNED> struct DynamicMap {
  static constexpr int OCTAVES = 24, SHIFT = UNSIGNED ? 16 : 17, PLACES = 24 - SHIFT;
  static constexpr int TOP = (OCTAVES << 23) >> SHIFT;       // the bin of 1
  static constexpr int NEGATIVE = UNSIGNED ? 0 : TOP + 1;    // bins of negative x
  static constexpr float SCALE = 0x1p-103f, OVER_SCALE = 0x1p103f;
  float number[CODES];
  u32 bin[NEGATIVE + TOP + 1];

  // By a CTA of CODES threads.
  __device__ __forceinline__ void make() {
    const int code = threadIdx.x;
    number[code] = number_of<UNSIGNED>(code);
    __syncthreads();
    int first = -NEGATIVE, end = TOP + 1;
    if (code) {
      const int border = border_key(code);
      first = border >> SHIFT;
      bin[NEGATIVE + first++] = (u32(code) << 24) - (u32(border) << PLACES);
    }
    if (code < CODES - 1) end = border_key(code + 1) >> SHIFT;
    for (int i = first; i < end; ++i) bin[NEGATIVE + i] = u32(code - i) << 24;
    __syncthreads();
  }
  // The number of code i of four.
  __device__ __forceinline__ float number_at(u32 codes, int i) const { return number[codes >> 8 * i & 0xFF]; }

  // The codes of x / most, four per word, most the greatest size among x: a quotient by the rounded reciprocal is the
  // division's after one correction (P. Markstein, 1990), unless the remainder is subnormal. Those of NaN are 0.
  template <class C, int V>
  __device__ __forceinline__ void encode(const C (&x)[V], float most, u32 (&codes)[V / 4]) const {
    float scaled[V];
    if (most >= 0x1p-80f && most <= 0x1p20f) {
      const float divisor = most * OVER_SCALE, inverse = 1 / divisor;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float value = float(x[v]), q = __fmul_rn(value, inverse);
        scaled[v] = ::fmaf(::fmaf(-q, divisor, value), inverse, q);
      }
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float quotient = most == 0 ? 0.0f : float(x[v]) / most;
        scaled[v] = (quotient == quotient ? quotient : -1.0f) * SCALE;
      }
    }
#pragma unroll
    for (int v = 0; v < V; v += 4) {
      const u32 low = __byte_perm(nearest(scaled[v]), nearest(scaled[v + 1]), 0x0073);
      codes[v / 4] = __byte_perm(low, __byte_perm(nearest(scaled[v + 2]), nearest(scaled[v + 3]), 0x0073), 0x5410);
    }
  }

 private:
  // Its first byte is the code of x, of which this is x * SCALE.
  __device__ __forceinline__ u32 nearest(float scaled) const {
    const int key = key_of(scaled);
    return bin[NEGATIVE + (key >> SHIFT)] + (u32(key) << PLACES);
  }
  static __device__ __forceinline__ int key_of(float scaled) {
    const int bits = __float_as_int(scaled);
    if constexpr (UNSIGNED) return max(bits, 0);
    return (bits & 0x7FFFFFFF) ^ bits >> 31;
  }
  __device__ __forceinline__ int border_key(int code) const {
    return key_of((number[code - 1] + number[code]) / 2 * SCALE);
  }
};

}  // namespace optim
