// Distributions, each a function from the bits of one Philox block to PER_BLOCK elements: four of 32 random bits
// each, two of 64 where the element has 64 bits itself.
#pragma once
#include "core/dtype.cuh"
#include "random/philox.cuh"
#include "random/unit.cuh"

namespace philox {

// The numbers by which a distribution differs from the standard one.
template <class C> struct Numbers { C a, b, c, d, e, f; };

template <class T> struct ComputedAs { using type = float; };
template <> struct ComputedAs<double> { using type = double; };

// The random bits of element i.
template <class T> struct Bits {
  static constexpr int PER_BLOCK = sizeof(T) == 8 ? 2 : 4;
  using W = typename Word<sizeof(T) == 8 ? 8 : 4>::type;
  static __device__ __forceinline__ W of(const PhiloxBlock& block, int i) {
    if constexpr (PER_BLOCK == 2) return block.pair(i);
    else return block.word[i];
  }
};

// The lowest bits.
template <class T> struct RandomBits {
  using Element = T;
  using Number = u64;
  static constexpr int PER_BLOCK = Bits<T>::PER_BLOCK;
  static __device__ __forceinline__ void draw(const PhiloxBlock& block, const Numbers<u64>&, T (&out)[PER_BLOCK]) {
#pragma unroll
    for (int i = 0; i < PER_BLOCK; ++i) out[i] = T(Bits<T>::of(block, i));
  }
};

// a + k / 2^digits * b, k the highest bits, clamped to [c, d]; `digits` are those of T.
template <class T> struct RandomUniform {
  using Element = T;
  using Number = typename ComputedAs<T>::type;
  static constexpr int PER_BLOCK = Bits<T>::PER_BLOCK;
  static constexpr int DIGITS = Same<T, double>::value ? 53 : Same<T, float>::value ? 24 : Same<T, f16>::value ? 11 : 8;
  static __device__ __forceinline__ void draw(const PhiloxBlock& block, const Numbers<Number>& with,
                                              T (&out)[PER_BLOCK]) {
    constexpr Number UNIT = Number(1) / Number(1ull << DIGITS);
    const bool standard = with.a == Number(0) && with.b == Number(1);  // k UNIT is exact, and within any clamp
#pragma unroll
    for (int i = 0; i < PER_BLOCK; ++i) {
      const Number k = Number(Bits<T>::of(block, i) >> (8 * sizeof(typename Bits<T>::W) - DIGITS));
      if (standard) {
        out[i] = convert<T>(k * UNIT);
        continue;
      }
      const Number y = ::fma(k * UNIT, with.b, with.a);
      out[i] = convert<T>(::fmin(::fmax(y, with.c), with.d));
    }
  }
};

// a + z b, z by G. E. P. Box and M. E. Muller, "A note on the generation of random normal deviates", 1958: the
// elements at 2 j and 2 j + 1 are sqrt(-2 log u) cos(2 pi v) and sqrt(-2 log u) sin(2 pi v) of their bits u and v.
template <class T> struct RandomNormal {
  using Element = T;
  using Number = typename ComputedAs<T>::type;
  static constexpr int PER_BLOCK = Bits<T>::PER_BLOCK;
  static __device__ __forceinline__ void draw(const PhiloxBlock& block, const Numbers<Number>& with,
                                              T (&out)[PER_BLOCK]) {
#pragma unroll
    for (int i = 0; i < PER_BLOCK; i += 2) {
      Number sine, cosine;
      const Number radius = normal_radius(Bits<T>::of(block, i));
      turn(Bits<T>::of(block, i + 1), sine, cosine);
      out[i] = convert<T>(::fma(radius * cosine, with.b, with.a));
      out[i + 1] = convert<T>(::fma(radius * sine, with.b, with.a));
    }
  }
};

// -a log u.
template <class T> struct RandomExponential {
  using Element = T;
  using Number = typename ComputedAs<T>::type;
  static constexpr int PER_BLOCK = Bits<T>::PER_BLOCK;
  static __device__ __forceinline__ void draw(const PhiloxBlock& block, const Numbers<Number>& with,
                                              T (&out)[PER_BLOCK]) {
#pragma unroll
    for (int i = 0; i < PER_BLOCK; ++i) out[i] = convert<T>(with.a * minus_log(Bits<T>::of(block, i)));
  }
};

// a - b log(-log u).
template <class T> struct RandomGumbel {
  using Element = T;
  using Number = typename ComputedAs<T>::type;
  static constexpr int PER_BLOCK = Bits<T>::PER_BLOCK;
  static __device__ __forceinline__ void draw(const PhiloxBlock& block, const Numbers<Number>& with,
                                              T (&out)[PER_BLOCK]) {
#pragma unroll
    for (int i = 0; i < PER_BLOCK; ++i)
      out[i] = convert<T>(::fma(-::log(minus_log(Bits<T>::of(block, i))), with.b, with.a));
  }
};

// c erfinv(a + u b) + d, clamped to [e, f]; computed in f64, since erf has few digits near 1.
template <class T> struct RandomTruncatedNormal {
  using Element = T;
  using Number = double;
  static constexpr int PER_BLOCK = Bits<T>::PER_BLOCK;
  static __device__ __forceinline__ T rounded(double x) {
    if constexpr (Same<T, double>::value) return x;
    else return convert<T>(float(x));
  }
  static __device__ __forceinline__ void draw(const PhiloxBlock& block, const Numbers<double>& with,
                                              T (&out)[PER_BLOCK]) {
    constexpr double UNIT = PER_BLOCK == 2 ? 5.4210108624275222e-20 : 2.3283064365386963e-10;  // 2^-64, 2^-32
#pragma unroll
    for (int i = 0; i < PER_BLOCK; ++i) {
      const double u = ::fma(double(Bits<T>::of(block, i)), UNIT, UNIT / 2);
      const double y = ::fma(::erfinv(::fma(u, with.b, with.a)), with.c, with.d);
      out[i] = rounded(::fmin(::fmax(y, with.e), with.f));
    }
  }
};

// 1 where the 32 bits are less than a, which is at most 2^32; else 0.
template <class T> struct RandomBernoulli {
  using Element = T;
  using Number = u64;
  static constexpr int PER_BLOCK = 4;
  static __device__ __forceinline__ void draw(const PhiloxBlock& block, const Numbers<u64>& with, T (&out)[PER_BLOCK]) {
#pragma unroll
    for (int i = 0; i < PER_BLOCK; ++i) {
      const bool one = block.word[i] < with.a;
      if constexpr (Same<T, f16>::value || Same<T, bf16>::value) out[i] = convert<T>(one ? 1.0f : 0.0f);
      else out[i] = T(one);
    }
  }
};

// a + floor(w b / 2^64), w of 64 bits; of 64-bit elements floor(w b / 2^128), w of 128. b is 2^64 where it is 0.
template <class T> struct RandomIntegers {
  using Element = T;
  using Number = u64;
  static constexpr int PER_BLOCK = sizeof(T) == 8 ? 1 : 2;
  static __device__ __forceinline__ void draw(const PhiloxBlock& block, const Numbers<u64>& with, T (&out)[PER_BLOCK]) {
    if constexpr (PER_BLOCK == 1) {
      const u64 low = block.pair(0), high = block.pair(1);
      const u64 middle = high * with.b, below = __umul64hi(low, with.b);
      const u64 above = __umul64hi(high, with.b) + (middle + below < middle);
      out[0] = T(with.a + (with.b ? above : high));
    } else {
#pragma unroll
      for (int i = 0; i < PER_BLOCK; ++i) out[i] = T(with.a + __umul64hi(block.pair(i), with.b));
    }
  }
};

}  // namespace philox
