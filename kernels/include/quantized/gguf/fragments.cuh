// GGUF codes as A fragments of mma.sync, by activation type. A unit is 16 weights along k; lane (g, t) = (lane / 4,
// lane % 4) holds k = 4 t to 4 t + 3 of it, of weight rows g and g + 8 and of activation column g. This order of k
// differs from the instruction's, but is the same on both sides.
//
// Exact<f16>, Exact<bf16>: activations unchanged, f32 accumulators. Unsigned codes as f16 are subnormals, code * 2^-24,
//                          which the tensor cores multiply exactly; as bf16 they are 128 + code, and the 128 is
//                          subtracted with the other offsets.
// Exact<float>:            an activation is the sum of three bf16, truncated, in separate columns of B. The 128 is
//                          subtracted from the codes, so that the accumulators stay small.
// Rounded:                 activations in Q8_1 blocks, s32 accumulators.
#pragma once
#include "ptx/mma.cuh"
#include "quantized/gguf/format.cuh"

namespace gguf {

// a - b on pairs of 16-bit floats; bf16 as FMA with -1, since sm_80 has neither subtraction nor addition of bf16x2.
__device__ __forceinline__ u32 less_pair(u32 a, u32 b, f16) {
  u32 d;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
__device__ __forceinline__ u32 less_pair(u32 a, u32 b, bf16) {
  u32 d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(b), "r"(0xbf80bf80u), "r"(a));
  return d;
}

// Widens four code bytes to two pairs of 16-bit floats. STRIDED_PAIRS: pair order 0 and 2, then 1 and 3. `exponents`:
// EXPONENTS in a register. The float is (code + MORE) / INVERSE.
template <class Half, bool SIGNED, bool EXACTLY> struct Widened;
template <bool EXACTLY> struct Widened<f16, false, EXACTLY> {
  static constexpr float INVERSE = 16777216.0f;
  static constexpr int MORE = 0;
  static constexpr bool STRIDED_PAIRS = false;
  static constexpr u32 EXPONENTS = 0;
  static __device__ __forceinline__ u32 pair(u32 codes, int i, [[maybe_unused]] u32 exponents) {
    return __byte_perm(codes, 0, i ? 0x4342 : 0x4140);
  }
};
template <bool EXACTLY> struct Widened<f16, true, EXACTLY> {
  static constexpr float INVERSE = 1.0f;
  static constexpr int MORE = 0;
  static constexpr bool STRIDED_PAIRS = false;
  static constexpr u32 EXPONENTS = 0x64646464u;  // high byte of f16 1024
  static __device__ __forceinline__ u32 pair(u32 codes, int i, [[maybe_unused]] u32 exponents) {  // 1152 + code - 1152
    return less_pair(__byte_perm(codes ^ 0x80808080u, exponents, i ? 0x4342 : 0x4140), 0x64806480u, f16{});
  }
};
template <bool EXACTLY> struct Widened<bf16, false, EXACTLY> {
  static constexpr float INVERSE = 1.0f;
  static constexpr int MORE = EXACTLY ? 0 : 128;
  static constexpr bool STRIDED_PAIRS = false;
  static constexpr u32 EXPONENTS = 0x43434343u;  // high byte of bf16 128
  static __device__ __forceinline__ u32 pair(u32 codes, int i, [[maybe_unused]] u32 exponents) {
    const u32 x = __byte_perm(codes, exponents, i ? 0x4342 : 0x4140);
    return EXACTLY ? less_pair(x, 0x43004300u, bf16{}) : x;
  }
};
template <bool EXACTLY> struct Widened<bf16, true, EXACTLY> {
  static constexpr float INVERSE = 1.0f;
  static constexpr int MORE = 0;
  static constexpr bool STRIDED_PAIRS = true;
  static constexpr u32 EXPONENTS = 0x43004300u;  // bf16 128
  // 128 + the low seven bits, minus 128 or (sign bit set) 256
  static __device__ __forceinline__ u32 pair(u32 codes, int i, u32 exponents) {
    const u32 bytes = codes >> (8 * i);
    return less_pair((bytes & 0x007f007fu) | exponents, (bytes & 0x00800080u) | exponents, bf16{});
  }
};

// Codes used at their bit position in the byte: bytes 0 and 2 are one pair, 1 and 3 the other. HIGHEST: the highest
// start bit of a field that fits the mantissa; higher fields are shifted down to it. PAYS: fewer fields need the shift
// than do not.
template <class Half, int BITS> struct InPlace {
  static constexpr bool F16 = Same<Half, f16>::value;
  static constexpr u32 HIGHEST = F16 ? 8 - BITS : (7 - BITS) / (BITS ? BITS : 1) * BITS;
  static constexpr bool PAYS = BITS == 2 || (BITS == 4 && F16);
  static constexpr u32 EXPONENTS = F16 ? 0 : 0x43004300u;  // bf16 128
  static __device__ __forceinline__ u32 place(u32 above) { return above < HIGHEST ? above : HIGHEST; }
  static __device__ __forceinline__ u32 pair(u32 bytes, int i, u32 above, u32 exponents) {
    const u32 at = place(above), mask = ((1u << BITS) - 1) * 0x00010001u << at;
    const u32 codes = bytes >> (8 * i + above - at) & mask;
    return F16 ? codes : codes | exponents;
  }
};

// mma.sync on 16-bit floats, for activations of type X. COLUMNS (below): columns of B per row of the activations
// ("token").
template <class X, class Half> struct Floats {
  using Acc = float;
  using Number = Half;
  static constexpr int A = 4, B = 2;
  static constexpr u32 ONES = Same<Half, f16>::value ? 0x3c003c00u : 0x3f803f80u;
  template <bool SIGNED> using Wide = Widened<Half, SIGNED, !Same<X, Half>::value>;
  template <bool SIGNED> static constexpr u32 EXPONENTS = Wide<SIGNED>::EXPONENTS;
  template <bool SIGNED> static constexpr bool STRIDED_PAIRS = Wide<SIGNED>::STRIDED_PAIRS;
  template <bool SIGNED> static constexpr float INVERSE = Wide<SIGNED>::INVERSE;
  template <int BITS> using Place = InPlace<Half, BITS>;
  template <int BITS> static constexpr bool IN_PLACE = BITS != 0 && Same<X, Half>::value && Place<BITS>::PAYS;
  template <bool SIGNED> static constexpr int MORE = Wide<SIGNED>::MORE;
  static constexpr float START = 0;
  static __device__ __forceinline__ float number(float sum, float) { return sum; }

  template <bool SIGNED>
  static __device__ __forceinline__ void widen(u32 (&a)[A], u32 upper, u32 lower, [[maybe_unused]] u32 exponents) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[2 * i] = Wide<SIGNED>::pair(upper, i, exponents);
      a[2 * i + 1] = Wide<SIGNED>::pair(lower, i, exponents);
    }
  }
  // A fragment of codebook codes of rows g (upper) and g + 8 (lower)
  template <class Codes, int ALIGN>
  static __device__ __forceinline__ void look_up(u32 (&a)[A], const u8* upper, const u8* lower, u32 first, u32 within) {
    u32 pairs[2][2];
    Codes::template pairs_of<Half, ALIGN>(pairs[0], upper, first, within);
    Codes::template pairs_of<Half, ALIGN>(pairs[1], lower, first, within);
#pragma unroll
    for (int i = 0; i < A; ++i) a[i] = pairs[i % 2][i / 2];
  }
  static __device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[A], const u32 (&b)[B]) {
    Mma<Half>::run(c, a, b);
  }
};

template <class X> struct Exact : Floats<X, X> {
  static constexpr int COLUMNS = 1, LANE = 8;  // LANE: bytes of four activations
  static constexpr bool ROUNDED = false;
  // Byte offset of element k of a row; k is a multiple of 16.
  static __device__ __forceinline__ u32 at(u32 k) { return k * 2; }
  // Loads a B fragment of four activations. STRIDED_PAIRS: elements 0 and 2 are a pair, 1 and 3 the other.
  template <bool STRIDED_PAIRS> static __device__ __forceinline__ void load(u32 (&b)[2], const u8* x, u32) {
    const Vec<u32, 2> pairs = *reinterpret_cast<const Vec<u32, 2>*>(x);
    b[0] = STRIDED_PAIRS ? __byte_perm(pairs.at[0], pairs.at[1], 0x5410) : pairs.at[0];
    b[1] = STRIDED_PAIRS ? __byte_perm(pairs.at[0], pairs.at[1], 0x7632) : pairs.at[1];
  }
};

template <> struct Exact<float> : Floats<float, bf16> {
  static constexpr int COLUMNS = 4, LANE = 16;  // the fourth column is zero
  static constexpr bool ROUNDED = false;
  // Term `part` of the three bf16 terms of x, in the high half of an f32. NaN and infinity are the first term alone.
  static __device__ __forceinline__ u32 cut(float x, u32 part) {
    const u32 first = __float_as_uint(x) & 0xffff0000u;
    if ((first & 0x7f800000u) == 0x7f800000u) return part ? 0 : x == x ? first : 0x7fff0000u;
    const float rest = x - __uint_as_float(first);
    const u32 second = __float_as_uint(rest) & 0xffff0000u;
    const u32 last = __float_as_uint(rest - __uint_as_float(second)) & 0xffff0000u;
    return part == 0 ? first : part == 1 ? second : part == 2 ? last : 0;
  }
  static __device__ __forceinline__ u32 at(u32 k) { return k * 4; }
  template <bool STRIDED_PAIRS> static __device__ __forceinline__ void load(u32 (&b)[2], const u8* x, u32 part) {
    const Vec<float, 4> four = *reinterpret_cast<const Vec<float, 4>*>(x);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      b[i] = __byte_perm(
          cut(four.at[STRIDED_PAIRS ? i : 2 * i], part), cut(four.at[STRIDED_PAIRS ? i + 2 : 2 * i + 1], part), 0x7632);
  }
};

// Q8_1 blocks of 36 bytes: scale d as f16, two unused bytes, 32 codes.
struct Rounded {
  using Acc = int;
  template <int BITS> using Place = InPlace<f16, BITS>;
  template <int> static constexpr bool IN_PLACE = false;
  static constexpr int A = 2, B = 1, COLUMNS = 1, LANE = 4, BLOCK = 36;
  static constexpr bool ROUNDED = true;
  static constexpr u32 ONES = 0x01010101u;
  template <bool> static constexpr u32 EXPONENTS = 0;
  template <bool> static constexpr bool STRIDED_PAIRS = false;
  template <bool SIGNED> static constexpr float INVERSE = 1.0f;
  template <bool SIGNED> static constexpr int MORE = 0;
  // Accumulators start at the bits of 1.5 * 2^23: the s32 sum then is the bit pattern of the f32 1.5 * 2^23 + sum,
  // without a conversion: |sum| < 2^22, as it has at most 32 products of 8-bit codes. 1.5 * 2^23 times an f16 scale is
  // exact, so the product is rounded once, by the FMA.
  static constexpr int START = 0x4b400000;
  static __device__ __forceinline__ float number(int sum, float scale) {
    return fmaf(__int_as_float(sum), scale, -12582912.0f * scale); }

  template <bool SIGNED>
  static __device__ __forceinline__ void widen(u32 (&a)[A], u32 upper, u32 lower, [[maybe_unused]] u32 exponents) {
    a[0] = upper;
    a[1] = lower;
  }
  static __device__ __forceinline__ void multiply(int (&c)[4], const u32 (&a)[A], const u32 (&b)[B]) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  }
  static __device__ __forceinline__ u32 at(u32 k) { return k / 32 * BLOCK + 4 + k % 32; }
  template <bool> static __device__ __forceinline__ void load(u32 (&b)[1], const u8* x, u32) {
    b[0] = *reinterpret_cast<const u32*>(x);
  }
  // The scale of the block whose first code is at `x`.
  static __device__ __forceinline__ float scale(const u8* x) {
    return convert<float>(*reinterpret_cast<const f16*>(x - 4));
  }
};

}  // namespace gguf
