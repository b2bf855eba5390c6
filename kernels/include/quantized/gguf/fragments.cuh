// Codes as operands of mma.sync, by what activations are. A unit is 16 weights along k; lane (g, t) = (lane / 4, lane % 4) holds
// four neighbours of it, 4 t to 4 t + 3, of rows g and g + 8 of the weights, and of column g of the activations. That is not the
// order in which the instruction counts k, but the same one on both sides.
//
// Exact<f16>, Exact<bf16>: activations as they are, sums in f32. Unsigned codes become f16 by their bits alone: as subnormals, code *
// 2^-24, which tensor cores multiply exactly; as bf16 they are 128 + code, and the 128 is taken off with what else is. Exact<float> takes
// it off at once, so that sums are no larger than they have to be. Exact<float>: a number is the sum of three bf16, cut
// off and not rounded, which are columns of their own. Rounded: activations in Q8_1 blocks, sums in s32.
#pragma once
#include "mma.cuh"
#include "quantized/gguf/format.cuh"

namespace gguf {

// b - a times one, of two 16-bit floats; sm_80 has no subtraction of bf16, and no addition.
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

// Four codes as two pairs of a 16-bit float, APART 0 and 2 and then 1 and 3; `exponents` are EXPONENTS, from a register. INVERSE: one over what a code was multiplied with; MORE: what was added to it.
template <class Half, bool SIGNED, bool EXACTLY> struct Widened;
template <bool EXACTLY> struct Widened<f16, false, EXACTLY> {
  static constexpr float INVERSE = 16777216.0f;
  static constexpr int MORE = 0;
  static constexpr bool APART = false;
  static constexpr u32 EXPONENTS = 0;
  static __device__ __forceinline__ u32 pair(u32 codes, int i, [[maybe_unused]] u32 exponents) { return __byte_perm(codes, 0, i ? 0x4342 : 0x4140); }
};
template <bool EXACTLY> struct Widened<f16, true, EXACTLY> {
  static constexpr float INVERSE = 1.0f;
  static constexpr int MORE = 0;
  static constexpr bool APART = false;
  static constexpr u32 EXPONENTS = 0x64646464u;  // upper bytes of 1024 and more
  static __device__ __forceinline__ u32 pair(u32 codes, int i, [[maybe_unused]] u32 exponents) {  // 1024 + 128 + code
    return less_pair(__byte_perm(codes ^ 0x80808080u, exponents, i ? 0x4342 : 0x4140), 0x64806480u, f16{});
  }
};
template <bool EXACTLY> struct Widened<bf16, false, EXACTLY> {
  static constexpr float INVERSE = 1.0f;
  static constexpr int MORE = EXACTLY ? 0 : 128;
  static constexpr bool APART = false;
  static constexpr u32 EXPONENTS = 0x43434343u;  // of 128 and more
  static __device__ __forceinline__ u32 pair(u32 codes, int i, [[maybe_unused]] u32 exponents) {
    const u32 x = __byte_perm(codes, exponents, i ? 0x4342 : 0x4140);
    return EXACTLY ? less_pair(x, 0x43004300u, bf16{}) : x;
  }
};
template <bool EXACTLY> struct Widened<bf16, true, EXACTLY> {
  static constexpr float INVERSE = 1.0f;
  static constexpr int MORE = 0;
  static constexpr bool APART = true;
  static constexpr u32 EXPONENTS = 0x43004300u;  // of 128 and more
  static __device__ __forceinline__ u32 pair(u32 codes, int i, u32 exponents) {  // 128 + its low seven bits, less 128 or 256
    const u32 bytes = codes >> (8 * i);
    return less_pair((bytes & 0x007f007fu) | exponents, (bytes & 0x00800080u) | exponents, bf16{});
  }
};

// Codes that are left where they lie in bytes: bytes 0 and 2 are a pair, 1 and 3 the other. HIGHEST: the highest bit that a field may
// begin with; higher ones are moved down to it. Worth while where bytes hold more fields than are moved.
template <class Half, int BITS> struct InPlace {
  static constexpr bool F16 = Same<Half, f16>::value;
  static constexpr u32 HIGHEST = F16 ? 8 - BITS : (7 - BITS) / (BITS ? BITS : 1) * BITS;
  static constexpr bool PAYS = BITS == 2 || (BITS == 4 && F16);
  static constexpr u32 EXPONENTS = F16 ? 0 : 0x43004300u;  // of 128 and more
  static __device__ __forceinline__ u32 place(u32 above) { return above < HIGHEST ? above : HIGHEST; }
  static __device__ __forceinline__ u32 pair(u32 bytes, int i, u32 above, u32 exponents) {
    const u32 at = place(above), mask = ((1u << BITS) - 1) * 0x00010001u << at;
    const u32 codes = bytes >> (8 * i + above - at) & mask;
    return F16 ? codes : codes | exponents;
  }
};

// COLUMNS: columns of the product that a row of the activations ("token") takes.
template <class X, class Half> struct Floats {
  using Acc = float;
  using Number = Half;
  static constexpr int A = 4, B = 2;
  static constexpr u32 ONES = Same<Half, f16>::value ? 0x3c003c00u : 0x3f803f80u;
  template <bool SIGNED> using Wide = Widened<Half, SIGNED, !Same<X, Half>::value>;
  template <bool SIGNED> static constexpr u32 EXPONENTS = Wide<SIGNED>::EXPONENTS;
  template <bool SIGNED> static constexpr bool APART = Wide<SIGNED>::APART;
  template <bool SIGNED> static constexpr float INVERSE = Wide<SIGNED>::INVERSE;
  template <int BITS> using Place = InPlace<Half, BITS>;
  template <int BITS> static constexpr bool IN_PLACE = BITS != 0 && Same<X, Half>::value && Place<BITS>::PAYS;
  template <bool SIGNED> static constexpr int MORE = Wide<SIGNED>::MORE;
  static constexpr float START = 0;
  static __device__ __forceinline__ float number(float sum, float) { return sum; }

  template <bool SIGNED> static __device__ __forceinline__ void widen(u32 (&a)[A], u32 upper, u32 lower, [[maybe_unused]] u32 exponents) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[2 * i] = Wide<SIGNED>::pair(upper, i, exponents);
      a[2 * i + 1] = Wide<SIGNED>::pair(lower, i, exponents);
    }
  }
  // The numbers that codes of an upper and a lower row mean
  template <class Codes, int ALIGN>
  static __device__ __forceinline__ void look_up(u32 (&a)[A], const u8* upper, const u8* lower, u32 first, u32 within) {
    u32 pairs[2][2];
    Codes::template pairs_of<Half, ALIGN>(pairs[0], upper, first, within);
    Codes::template pairs_of<Half, ALIGN>(pairs[1], lower, first, within);
#pragma unroll
    for (int i = 0; i < A; ++i) a[i] = pairs[i % 2][i / 2];
  }
  static __device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[A], const u32 (&b)[B]) { Mma<Half>::run(c, a, b); }
};

template <class X> struct Exact : Floats<X, X> {
  static constexpr int COLUMNS = 1, LANE = 8;  // LANE: bytes of four numbers
  static constexpr bool ROUNDED = false;
  // Bytes from a row's beginning to one of its numbers, a multiple of 16.
  static __device__ __forceinline__ u32 at(u32 k) { return k * 2; }
  // Four numbers; `part` is the column among those of the token. APART: numbers 0 and 2 are a pair, 1 and 3 the other.
  template <bool APART> static __device__ __forceinline__ void load(u32 (&b)[2], const u8* x, u32) {
    const Vec<u32, 2> pairs = *reinterpret_cast<const Vec<u32, 2>*>(x);
    b[0] = APART ? __byte_perm(pairs.at[0], pairs.at[1], 0x5410) : pairs.at[0];
    b[1] = APART ? __byte_perm(pairs.at[0], pairs.at[1], 0x7632) : pairs.at[1];
  }
};

template <> struct Exact<float> : Floats<float, bf16> {
  static constexpr int COLUMNS = 4, LANE = 16;  // the last column is of zeros
  static constexpr bool ROUNDED = false;
  // The bf16 that is number `part` of the three, as the high half of an f32; what is not finite is the first alone.
  static __device__ __forceinline__ u32 cut(float x, u32 part) {
    const u32 first = __float_as_uint(x) & 0xffff0000u;
    if ((first & 0x7f800000u) == 0x7f800000u) return part ? 0 : x == x ? first : 0x7fff0000u;
    const float rest = x - __uint_as_float(first);
    const u32 second = __float_as_uint(rest) & 0xffff0000u;
    const u32 last = __float_as_uint(rest - __uint_as_float(second)) & 0xffff0000u;
    return part == 0 ? first : part == 1 ? second : part == 2 ? last : 0;
  }
  static __device__ __forceinline__ u32 at(u32 k) { return k * 4; }
  template <bool APART> static __device__ __forceinline__ void load(u32 (&b)[2], const u8* x, u32 part) {
    const Vec<float, 4> four = *reinterpret_cast<const Vec<float, 4>*>(x);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      b[i] = __byte_perm(cut(four.at[APART ? i : 2 * i], part), cut(four.at[APART ? i + 2 : 2 * i + 1], part), 0x7632);
  }
};

// Q8_1 blocks of 36 bytes: d as f16, two bytes that do not count here, 32 codes.
struct Rounded {
  using Acc = int;
  template <int BITS> using Place = InPlace<f16, BITS>;
  template <int> static constexpr bool IN_PLACE = false;
  static constexpr int A = 2, B = 1, COLUMNS = 1, LANE = 4, BLOCK = 36;
  static constexpr bool ROUNDED = true;
  static constexpr u32 ONES = 0x01010101u;
  template <bool> static constexpr u32 EXPONENTS = 0;
  template <bool> static constexpr bool APART = false;
  template <bool SIGNED> static constexpr float INVERSE = 1.0f;
  template <bool SIGNED> static constexpr int MORE = 0;
  // Sums begin at the bits of 1.5 * 2^23, to which those of a small integer are added as they are to the f32: no conversion. An f16
  // times that is exact, so that the product with `scale` is rounded once.
  static constexpr int START = 0x4b400000;
  static __device__ __forceinline__ float number(int sum, float scale) { return fmaf(__int_as_float(sum), scale, -12582912.0f * scale); }

  template <bool SIGNED> static __device__ __forceinline__ void widen(u32 (&a)[A], u32 upper, u32 lower, [[maybe_unused]] u32 exponents) {
    a[0] = upper;
    a[1] = lower;
  }
  static __device__ __forceinline__ void multiply(int (&c)[4], const u32 (&a)[A], const u32 (&b)[B]) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  }
  static __device__ __forceinline__ u32 at(u32 k) { return k / 32 * BLOCK + 4 + k % 32; }
  template <bool> static __device__ __forceinline__ void load(u32 (&b)[1], const u8* x, u32) { b[0] = *reinterpret_cast<const u32*>(x); }
  // Of the block that `x` is the first code of.
  static __device__ __forceinline__ float scale(const u8* x) { return convert<float>(*reinterpret_cast<const f16*>(x - 4)); }
};

}  // namespace gguf
