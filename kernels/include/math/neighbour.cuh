// The next number from a toward b, both of a type of so many digits.
#pragma once
#include "core/dtype.cuh"

namespace math {

// The codes of a type's numbers, in order of size on each side of zero.
template <int DIGITS> struct Codes;
template <> struct Codes<11> {
  using Bits = u16;
  static __device__ __forceinline__ u16 of(float x) { return convert<f16>(x).bits; }
  static __device__ __forceinline__ float number(u16 code) { return convert<float>(f16{code}); }
};
template <> struct Codes<8> {
  using Bits = u16;
  static __device__ __forceinline__ u16 of(float x) { return u16(__float_as_uint(x) >> 16); }
  static __device__ __forceinline__ float number(u16 code) { return convert<float>(bf16{code}); }
};
template <> struct Codes<24> {
  using Bits = u32;
  static __device__ __forceinline__ u32 of(float x) { return __float_as_uint(x); }
  static __device__ __forceinline__ float number(u32 code) { return __uint_as_float(code); }
};
template <> struct Codes<53> {
  using Bits = u64;
  static __device__ __forceinline__ u64 of(double x) { return u64(__double_as_longlong(x)); }
  static __device__ __forceinline__ double number(u64 code) { return __longlong_as_double(i64(code)); }
};

template <int digits, class C> __device__ __forceinline__ C next_after(C a, C b) {
  using Bits = typename Codes<digits>::Bits;
  if (a != a || b != b) return a + b;
  if (a == b) return b;
  if (a == C(0)) return ::copysign(Codes<digits>::number(1), b);
  const Bits code = Codes<digits>::of(a);
  return Codes<digits>::number((a < b) == (a > C(0)) ? Bits(code + 1) : Bits(code - 1));
}

}  // namespace math
