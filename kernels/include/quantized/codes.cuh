// 8-bit quantization: code = clamp(round(x / scale) + zero, LEAST, MOST), to nearest even; x = (code - zero) scale.
//
// A range (down, up) is max(-x, 0) and max(x, 0) over the finite elements. Symmetric: scale = max(down, up) / MOST,
// zero = 0. Zero point: scale = (down + up) / (MOST - LEAST), zero = LEAST + round(down / scale). A scale is at least
// 2^-126, and 1 if all elements are 0. Division by the scale is multiplication by the rounded 1 / scale. NaN becomes
// `zero` (integers). All in f32.
#pragma once
#include "rows/quantize.cuh"

namespace quantized {

struct Range {
  float down, up;
  __device__ __forceinline__ void add(float x) {
    const bool finite = fabsf(x) < __uint_as_float(0x7f800000);
    down = finite ? fmaxf(down, -x) : down;
    up = finite ? fmaxf(up, x) : up;
  }
  __device__ __forceinline__ Range join(const Range& other) const {
    return {fmaxf(down, other.down), fmaxf(up, other.up)};
  }
};

struct Scale {
  float scale, inverse;
  int zero;
};

// Quantizer of storage type P. ZERO: with an integer zero point.
template <class P, bool ZERO> struct Codes;

template <class P, int LEAST, int MOST, bool ZERO> struct Integers {
  static __device__ __forceinline__ Scale of(const Range& range) {
    const float from_zero = MOST - (ZERO ? LEAST : 0), most = LEAST < 0 ? fmaxf(range.down, range.up) : range.up;
    const float step = ZERO ? range.down / from_zero + range.up / from_zero : most / from_zero;
    const float scale = (ZERO ? fmaxf(range.down, range.up) : most) > 0.0f ? fmaxf(step, 1.17549435e-38f) : 1.0f;
    const float inverse = 1.0f / scale;
    return {scale, inverse, ZERO ? min(LEAST + __float2int_rn(range.down * inverse), MOST) : 0};
  }
  static __device__ __forceinline__ P code(float x, const Scale& s) {
    const float held = fminf(fmaxf(x * s.inverse, -1024.0f), 1024.0f);
    return P(min(max((x == x ? __float2int_rn(held) : 0) + s.zero, LEAST), MOST));
  }
  static __device__ __forceinline__ float value(P code, const Scale& s) { return float(int(code) - s.zero) * s.scale; }
};

template <> struct Codes<i8, false> : Integers<i8, -127, 127, false> {};
template <> struct Codes<i8, true> : Integers<i8, -128, 127, true> {};
template <bool ZERO> struct Codes<u8, ZERO> : Integers<u8, 0, 255, ZERO> {};

template <> struct Codes<e4m3, false> {
  static __device__ __forceinline__ Scale of(const Range& range) {
    const float scale = cache::scale_of<e4m3>(fmaxf(range.down, range.up));
    return {scale, 1.0f / scale, 0};
  }
  static __device__ __forceinline__ e4m3 code(float x, const Scale& s) { return cache::Code<e4m3>::of(x * s.inverse); }
  static __device__ __forceinline__ float value(e4m3 code, const Scale& s) { return math::plain(code) * s.scale; }
};

}  // namespace quantized
