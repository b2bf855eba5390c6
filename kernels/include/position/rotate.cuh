// RoPE arithmetic: cos and sin of V pairs at a position, and the rotation of pairs. C: compute type.
#pragma once
#include "rows/pack.cuh"

namespace position {

constexpr double PER_QUARTER = 0x1.45f306dc9c883p-1;                                        // 2 / pi
constexpr double QUARTER_HIGH = 0x1.921fb54442d18p+0, QUARTER_LOW = 0x1.1a62633145c07p-54;  // pi / 2 = high + low
constexpr double TO_INTEGER = 0x1.8p52;  // x + 1.5 * 2^52 rounds |x| < 2^51 to an integer in the low bits

// An angle as quarter turns plus a remainder within pi / 4.
struct Angle {
  double rest;
  u32 quarters;
};

// Range reduction of at * frequency < 2^40, |at| <= 2^53 (W. J. Cody and W. Waite, Software Manual for the Elementary
// Functions, 1980, section 8, with FMA). The product is exact as high + low, and the first difference is exact, being a
// multiple of 2^-52 below 1: the remainder has two roundings, and an error of 2^-67 because pi / 2 has two parts.
__device__ __forceinline__ Angle angle_of(double at, double frequency) {
  const double high = at * frequency, low = ::fma(at, frequency, -high);
  const double shifted = ::fma(high, PER_QUARTER, TO_INTEGER), quarters = shifted - TO_INTEGER;
  const double rest = ::fma(-quarters, QUARTER_LOW, ::fma(-quarters, QUARTER_HIGH, high));
  return {rest + low, u32(__double2loint(shifted))};
}

template <int N> struct Factorial { static constexpr double value = N * Factorial<N - 1>::value; };
template <> struct Factorial<0> { static constexpr double value = 1; };

// Taylor series of sine or cosine from x^N on, divided by x^N, in z = x * x (Horner).
template <int N, int LAST, class C> __device__ __forceinline__ C series(C z) {
  constexpr C own = C((N / 2 % 2 ? -1.0 : 1.0) / Factorial<N>::value);
  if constexpr (N + 2 > LAST) return own;
  else return ::fma(series<N + 2, LAST>(z), z, own);
}

// Truncation error within pi / 4: below 2^-29 in float, 2^-58 in double.
template <class C> __device__ __forceinline__ void sine_and_cosine(const Angle& angle, C& sine, C& cosine) {
  constexpr int LAST = sizeof(C) == 4 ? 10 : 17;
  const C x = C(angle.rest), z = x * x;
  const C s = ::fma(x * z, series<3, LAST>(z), x), c = series<0, LAST>(z);
  const bool odd = angle.quarters & 1;
  sine = odd ? c : s;
  cosine = odd ? s : c;
  if (angle.quarters & 2) sine = -sine;
  if ((angle.quarters + 1) & 2) cosine = -cosine;
}

template <class C, int V> struct Rotation {
  C cosine[V], sine[V];

  __device__ __forceinline__ void by_frequency(i64 at, const float* frequency) {
    float own[V];
    rows::fetch<float, float, V>(own, frequency);
#pragma unroll
    for (int i = 0; i < V; ++i) sine_and_cosine(angle_of(double(at), double(own[i])), sine[i], cosine[i]);
  }
  template <class Table> __device__ __forceinline__ void by_table(const Table* cosines, const Table* sines) {
    rows::fetch<Table, C, V>(cosine, cosines);
    rows::fetch<Table, C, V>(sine, sines);
  }
  // Multiplies by `factor`. INVERSE: negates the angle (the transpose).
  template <bool INVERSE> __device__ __forceinline__ void scale(C factor) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      cosine[i] *= factor;
      sine[i] *= INVERSE ? -factor : factor;
    }
  }
  // Rotates V pairs: (2 i, 2 i + 1) if INTERLEAVED, else (i, V + i).
  template <bool INTERLEAVED> __device__ __forceinline__ void rotate(C (&x)[2 * V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      C &a = x[INTERLEAVED ? 2 * i : i], &b = x[INTERLEAVED ? 2 * i + 1 : V + i];
      const C first = ::fma(a, cosine[i], -(b * sine[i])), second = ::fma(b, cosine[i], a * sine[i]);
      a = first;
      b = second;
    }
  }
};

// Rotates V pairs held as two vectors: one of each half, or, INTERLEAVED, two adjacent ones.
template <bool INTERLEAVED, class Part, class C, int V>
__device__ __forceinline__ void rotate(Part& low, Part& high, const Rotation<C, V>& rotation) {
  Part* const parts[2] = {&low, &high};
  C half[V], x[2 * V];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    parts[k]->widen(half);
#pragma unroll
    for (int i = 0; i < V; ++i) x[k * V + i] = half[i];
  }
  rotation.template rotate<INTERLEAVED>(x);
#pragma unroll
  for (int k = 0; k < 2; ++k) {
#pragma unroll
    for (int i = 0; i < V; ++i) half[i] = x[k * V + i];
    parts[k]->round(half);
  }
}

}  // namespace position
