// Casts between all element kinds of whole bytes, on bits. Float to float rounds to nearest even, once; float to
// integer truncates and saturates, NaN gives 0; integer to integer wraps; to bool is x != 0.
#pragma once
#include "core/dtype.cuh"
#include "math/odd.cuh"

struct e4m3 { u8 bits; };  // float8_e4m3fn: bias 7, no infinity, NaN all ones, 448 at most
struct e5m2 { u8 bits; };  // float8_e5m2: bias 15, the upper half of an f16

namespace math {

template <class T> constexpr bool IS_FLOAT = Same<T, float>::value || Same<T, double>::value || Same<T, f16>::value ||
                                            Same<T, bf16>::value || Same<T, e4m3>::value || Same<T, e5m2>::value;

// The exact value in a type that C++ computes with.
template <class T> __device__ __forceinline__ T plain(T x) { return x; }
__device__ __forceinline__ float plain(f16 x) { return convert<float>(x); }
__device__ __forceinline__ float plain(bf16 x) { return convert<float>(x); }
__device__ __forceinline__ float plain(e5m2 x) { return convert<float>(f16{u16(x.bits << 8)}); }
__device__ __forceinline__ float plain(e4m3 x) {
  const u32 sign = u32(x.bits & 0x80) << 24;
  if ((x.bits & 0x7f) == 0x7f) return __uint_as_float(sign | 0x7fc00000);
  const float scaled = convert<float>(f16{u16((x.bits & 0x7f) << 7)}) * 256.0f;  // the biases differ by 8
  return __uint_as_float(__float_as_uint(scaled) | sign);
}

// The code of the nearest float with MANTISSA fraction bits and exponent bias BIAS; codes of OVER and above become
// `over`.
template <int MANTISSA, int BIAS, u32 OVER> __device__ __forceinline__ u8 code(float x, u32 over, u32 nan) {
  const u32 bits = __float_as_uint(x), size = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
  constexpr int DROPPED = 23 - MANTISSA;
  constexpr u32 NORMAL = u32(128 - BIAS) << 23;
  constexpr u32 STEP = u32(127 - BIAS + 1 + DROPPED) << 23;  // adding this aligns a subnormal's last bit with an f32's
  u32 rounded;
  if (size >= NORMAL)
    rounded = (size + (1u << (DROPPED - 1)) - 1 + (size >> DROPPED & 1) >> DROPPED) - (u32(127 - BIAS) << MANTISSA);
  else rounded = __float_as_uint(__uint_as_float(size) + __uint_as_float(STEP)) - STEP;
  return u8(sign | (size > 0x7f800000 ? nan : rounded >= OVER ? over : rounded));
}

// Float or double to integer: truncates, saturates, NaN gives 0.
template <class T, class W> __device__ __forceinline__ T saturated(W x) {
  constexpr bool SIGNED = T(-1) < T(0);
  if (x != x) return T(0);
  if constexpr (sizeof(T) == 8) {
    if constexpr (Same<W, float>::value) return SIGNED ? T(__float2ll_rz(x)) : T(__float2ull_rz(x));
    else return SIGNED ? T(__double2ll_rz(x)) : T(__double2ull_rz(x));
  } else if constexpr (SIGNED) {
    constexpr i32 LARGEST = i32((1u << (8 * sizeof(T) - 1)) - 1);
    i32 y;
    if constexpr (Same<W, float>::value) y = __float2int_rz(x);
    else y = __double2int_rz(x);
    return T(min(max(y, -LARGEST - 1), LARGEST));
  } else {
    constexpr u32 LARGEST = u32(0xffffffffu >> (32 - 8 * sizeof(T)));
    u32 y;
    if constexpr (Same<W, float>::value) y = __float2uint_rz(x);
    else y = __double2uint_rz(x);
    return T(min(y, LARGEST));
  }
}

template <class To, class From> __device__ __forceinline__ To cast(From stored) {
  const auto x = plain(stored);
  using W = decltype(plain(stored));
  if constexpr (Same<To, bool>::value) return x != W(0);
  else if constexpr (!IS_FLOAT<To>) {
    if constexpr (IS_FLOAT<From>) return saturated<To>(x);
    else return To(x);
  } else if constexpr (Same<To, double>::value || Same<To, float>::value) {
    return To(x);
  } else {
    float y;
    if constexpr (Same<W, float>::value || Same<W, double>::value) y = odd(x);
    else if constexpr (Same<W, u64>::value) y = odd(u64(x));
    else y = odd(i64(x));
    if constexpr (Same<To, e4m3>::value) return e4m3{code<3, 7, 0x7f>(y, 0x7f, 0x7f)};
    else if constexpr (Same<To, e5m2>::value) return e5m2{code<2, 15, 0x7c>(y, 0x7c, 0x7e)};
    else return convert<To>(y);
  }
}

// Casts the bits of a From, in the low bytes of a word, to the bits of a To.
template <class From, class To, class C> __device__ __forceinline__ C cast_bits(C word) {
  typename Word<sizeof(From)>::type bits = word;
  const To y = cast<To>(reinterpret_cast<const From&>(bits));
  return C(reinterpret_cast<const typename Word<sizeof(To)>::type&>(y));
}

}  // namespace math
