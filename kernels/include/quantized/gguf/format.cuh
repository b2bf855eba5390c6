// GGUF block formats; the table of instances is in baracuda_py/types/gguf.py.
#pragma once
#include "quantized/gguf/codes.cuh"
#include "quantized/gguf/scales.cuh"

namespace gguf {

// A block of WEIGHTS weights in BYTES bytes; SUB weights share a scale: weight = scale * (code - LESS) - least.
template <int WEIGHTS_, int BYTES_, int SUB_, class Codes_, class Scales_> struct Format {
  static constexpr int WEIGHTS = WEIGHTS_, BYTES = BYTES_, SUB = SUB_, LESS = Codes_::LESS;
  static constexpr bool SIGNED = Codes_::SIGNED, LEAST = Scales_::LEAST;
  using Codes = Codes_;
  template <int ALIGN> using Scales = typename Scales_::template Of<ALIGN>;
};

// Decodes scales and minima of sub-blocks `first` + t and `first` + t + 4 of the chunk; `first` is a multiple of 8, t <
// 4. The specialisations below decode both at once.
template <class F, int ALIGN> struct TwoScales {
  static __device__ __forceinline__ void of(float (&scale)[2], float (&least)[2], const u8* chunk, u32 first, u32 t) {
    constexpr u32 SUBS = F::WEIGHTS / F::SUB;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const u32 sub = first + t + 4 * e;
      const typename F::template Scales<ALIGN> scales(chunk + sub / SUBS * F::BYTES);
      scale[e] = scales.scale(sub % SUBS);
      least[e] = scales.least(sub % SUBS);
    }
  }
};
// Six-bit scales and minima (Q4_K, Q5_K).
template <int WEIGHTS, int BYTES, class C, class D, class M, int AT, int ALIGN>
struct TwoScales<Format<WEIGHTS, BYTES, WEIGHTS / 8, C, Each<D, M, SixBits<AT>, 8>>, ALIGN> {
  static __device__ __forceinline__ void of(float (&scale)[2], float (&least)[2], const u8* chunk, u32 first, u32 t) {
    const u8* block = chunk + first / 8 * BYTES;
    SixBits<AT>::template two<ALIGN>(scale, least, block, t);
    const float d = D::template read<ALIGN>(block) * 0x1p24f, m = M::template read<ALIGN>(block) * 0x1p24f;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      scale[e] = __fmul_rn(d, scale[e]);
      least[e] = __fmul_rn(m, least[e]);
    }
  }
};
template <int WEIGHTS, int BYTES, class C, class D, class M, int AT, int SUBS, int ALIGN>
struct TwoScales<Format<WEIGHTS, BYTES, WEIGHTS / SUBS, C, Each<D, M, Integers<0, false, Plane<4, AT, 16>>, SUBS>>,
    ALIGN> {
  static_assert(SUBS == 16);  // one byte per sub-block: scale in the low nibble, minimum in the high one
  static __device__ __forceinline__ void of(float (&scale)[2], float (&least)[2], const u8* chunk, u32 first, u32 t) {
    const u8* block = chunk + first / 16 * BYTES;
    const u32 low = word<ALIGN_AT<ALIGN, AT>>(block + AT + first % 16),
              high = word<ALIGN_AT<ALIGN, AT>>(block + AT + first % 16 + 4);
    const u32 bytes = __byte_perm(low, high, t * 0x0101u + 0x0400u), scales = bytes & 0x000f000fu,
              minima = bytes >> 4 & 0x000f000fu;
    const float d = D::template read<ALIGN>(block) * 0x1p24f, m = M::template read<ALIGN>(block) * 0x1p24f;
#pragma unroll
    for (int e = 0; e < 2; ++e) {  // the integer is an f16 subnormal, integer * 2^-24
      scale[e] = __fmul_rn(d, convert<float>(f16{u16(scales >> (16 * e))}));
      least[e] = __fmul_rn(m, convert<float>(f16{u16(minima >> (16 * e))}));
    }
  }
};
// Six bits in two planes (GROUP 8 and 4), minus 32: the lane's byte of the high plane serves four sub-blocks.
template <int WEIGHTS, int BYTES, class C, class D, int AT, int HIGH, int SUBS, int ALIGN>
struct TwoScales<Format<WEIGHTS, BYTES, WEIGHTS / SUBS, C,
                     Each<D, Nothing, Integers<32, false, Plane<4, AT, 8>, Plane<2, HIGH, 4>>, SUBS>>,
    ALIGN> {
  static_assert(SUBS == 16);
  static __device__ __forceinline__ void of(float (&scale)[2], float (&least)[2], const u8* chunk, u32 first, u32 t) {
    const u8* block = chunk + first / 16 * BYTES;
    const u32 i = first % 16 / 8, high = block[HIGH + t];
    const float d = D::template read<ALIGN>(block) * 0x1p24f;
#pragma unroll
    for (u32 e = 0; e < 2; ++e) {  // the integer is an f16 subnormal
      const u32 from = 4 * i + 2 * e, top = (from < 4 ? high << (4 - from) : high >> (from - 4)) & 0x30;
      const u32 code = (block[AT + t + 4 * e] >> (4 * i) & 15) | top;
      scale[e] = __fmul_rn(d, convert<float>(f16{u16(code)}) - 0x1p-19f);
      least[e] = 0;
    }
  }
};
// Six bits in two planes (GROUP 1), minus 32: the fields of t and t + 4 are 16 bits (low plane) and 8 bits (high plane)
// from each other.
template <int WEIGHTS, int BYTES, class C, class D, int AT, int HIGH, int SUBS, int ALIGN>
struct TwoScales<Format<WEIGHTS, BYTES, WEIGHTS / SUBS, C,
                     Each<D, Nothing, Integers<32, false, Plane<4, AT, 1>, Plane<2, HIGH, 1>>, SUBS>>,
    ALIGN> {
  static_assert(SUBS == 8);
  static __device__ __forceinline__ void of(float (&scale)[2], float (&least)[2], const u8* chunk, u32 first, u32 t) {
    const u8* block = chunk + first / 8 * BYTES;
    const u32 low = word<ALIGN_AT<ALIGN, AT>>(block + AT) >> (4 * t),
              high = half_word<ALIGN_AT<ALIGN, HIGH>>(block + HIGH) >> (2 * t);
    const u32 codes = (low & 0x000f000fu) | (__byte_perm(high, 0, 0x4140) << 4 & 0x00300030u);
    const float d = D::template read<ALIGN>(block) * 0x1p24f;
#pragma unroll
    for (u32 e = 0; e < 2; ++e) {
      scale[e] = __fmul_rn(d, convert<float>(f16{u16(codes >> (16 * e))}) - 0x1p-19f);
      least[e] = 0;
    }
  }
};

}  // namespace gguf
