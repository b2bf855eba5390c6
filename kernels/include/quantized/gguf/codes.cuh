// Decoding of four neighbouring weights to a byte each: unsigned codes with an offset (LESS) still to subtract, or
// signed codes.
#pragma once
#include "quantized/gguf/planes.cuh"

namespace gguf {

// The plane of single-plane codes whose bytes hold fields of several sub-blocks, which can be used in place; BITS is 0
// otherwise.
template <class... Planes> struct Alone { using P = void; static constexpr int BITS = 0; };
template <int BITS_, int AT, int GROUP> struct Alone<Plane<BITS_, AT, GROUP>> {
  using P = Plane<BITS_, AT, GROUP>;
  static constexpr int BITS = BITS_ < 8 && GROUP >= 32 ? BITS_ : 0;
};

template <int LESS_, bool SIGNED_, class... Planes> struct Codes {
  using Only = Alone<Planes...>;
  static constexpr bool LOOKED = false, STRIDED_PAIRS = false;
  static constexpr int LESS = LESS_;
  static constexpr bool SIGNED = SIGNED_, NIBBLE_HALVES = Stack<Planes...>::NIBBLE_HALVES;
  template <int ALIGN> static __device__ __forceinline__ u32 four(const u8* block, u32 first, u32 within) {
    return Stack<Planes...>::template four<ALIGN>(block, first, within);
  }
};

enum Book { IQ4, E2M1 };
// Codebooks of sixteen signed bytes, the first in the lowest bits.
template <Book> struct Pages;
template <> struct Pages<IQ4> { static constexpr u32 AT[4] = {0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535}; };
template <> struct Pages<E2M1> { static constexpr u32 AT[4] = {0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc}; };

// A small integer as a 16-bit float, exactly.
template <class Half> __device__ constexpr u32 half_bits(int number) {
  constexpr int MANTISSA = Same<Half, f16>::value ? 10 : 7, BIAS = Same<Half, f16>::value ? 15 : 127;
  const int size = number < 0 ? -number : number;
  int power = 0;
  while (size >> (power + 1)) ++power;
  const int rest = (size << (MANTISSA - power)) & ((1 << MANTISSA) - 1);
  return (number < 0 ? 0x8000u : 0u) | (size ? u32((BIAS + power) << MANTISSA | rest) : 0u);
}

// 4-bit codebook codes. One PRMT looks four codes up among eight entries; another one spreads the codes' highest bits
// to byte masks, which select between the lower and the upper eight.
template <Book BOOK, class P> struct Looked {
  using Only = Alone<>;
  using Plane = P;
  static constexpr bool LOOKED = true;
  static constexpr int LESS = 0;
  static constexpr bool SIGNED = true, NIBBLE_HALVES = P::NIBBLE_HALVES;
  template <int ALIGN> static __device__ __forceinline__ u32 four(const u8* block, u32 first, u32 within) {
    const u32 codes = P::template four<ALIGN>(block, first, within), low_bits = codes & 0x07070707u;
    const u32 select = __byte_perm(low_bits | low_bits >> 4, 0, 0x4420);
    const u32 low = __byte_perm(Pages<BOOK>::AT[0], Pages<BOOK>::AT[1], select);
    const u32 high = __byte_perm(Pages<BOOK>::AT[2], Pages<BOOK>::AT[3], select);
    const u32 upper = spread(codes << 4);
    return (low & ~upper) | (high & upper);
  }
  static constexpr bool STRIDED_PAIRS = BOOK == E2M1;  // pair order: codes 0 and 2, then 1 and 3
  // The values of four codes, in the order of Plane::four, as pairs of 16-bit floats. IQ4: the nibbles of the word are
  // PRMT selectors unchanged, so low and high nibbles are looked up together. E2M1: the code's sign, exponent and
  // mantissa bits are shifted to the float's positions, which gives 2^-15 (f16) or 2^-127 (bf16) of the codebook entry,
  // subnormal where e2m1 is, and then scaled.
  template <class Half, int ALIGN>
  static __device__ __forceinline__ void pairs_of(u32 (&pairs)[2], const u8* block, u32 first, u32 within) {
    const bool high = P::above(first) != 0;
    if constexpr (BOOK == E2M1) {
      u32 bytes[2];
      P::template strided_pairs<ALIGN>(bytes, block, first, within);
#pragma unroll
      for (int i = 0; i < 2; ++i) pairs[i] = times(moved(bytes[i], high, Half{}), Half{});
      return;
    }
    const u32 word = P::template bytes_of<ALIGN>(block, first, within);
    const u32 upper[2] = {mixed<0>(word), mixed<2>(word)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 select = (word & 0x77777777u) >> (16 * i);
      u32 bytes[2];
#pragma unroll
      for (int byte = 0; byte < 2; ++byte) {
        constexpr u32 LOW[4] = {page<Half>(0, 0), page<Half>(1, 0), page<Half>(2, 0), page<Half>(3, 0)};
        constexpr u32 HIGH[4] = {page<Half>(0, 1), page<Half>(1, 1), page<Half>(2, 1), page<Half>(3, 1)};
        const u32 first = __byte_perm(byte ? HIGH[0] : LOW[0], byte ? HIGH[1] : LOW[1], select);
        const u32 second = __byte_perm(byte ? HIGH[2] : LOW[2], byte ? HIGH[3] : LOW[3], select);
        bytes[byte] = (first & ~upper[i]) | (second & upper[i]);
      }
      pairs[i] = __byte_perm(bytes[0], bytes[1], high ? 0x7351 : 0x6240);
    }
  }

  // Writes the table of value pairs by code byte, replicated for 32 lanes (32 KB), with `threads` threads.
  template <class Half> static __device__ __forceinline__ void write(uint4* table, u32 thread, u32 threads) {
    for (u32 i = thread; i < 256 * 8; i += threads) {
      const u32 pair = half_of<Half>(i / 8 % 16) | half_of<Half>(i / 128) << 16;
      table[i] = make_uint4(pair, pair, pair, pair);
    }
  }

 private:
  template <class Half> static __device__ __forceinline__ u32 half_of(u32 code) {
    const u32 number = code & 8 ? __byte_perm(Pages<BOOK>::AT[2], Pages<BOOK>::AT[3], code & 7)
                                : __byte_perm(Pages<BOOK>::AT[0], Pages<BOOK>::AT[1], code & 7);
    return convert<Half>(float(i8(number))).bits;
  }
  // Codes of bytes 0 and 2. bf16: one IMAD shifts sign and magnitude by different amounts; the mask drops the other
  // copies.
  static __device__ __forceinline__ u32 moved(u32 bytes, bool high, bf16) {
    return (bytes & (high ? 0x00f000f0u : 0x000f000fu)) * (high ? 0x0104u : 0x1040u) & 0x81c081c0u;
  }
  static __device__ __forceinline__ u32 moved(u32 bytes, bool high, f16) {
    const u32 down = high ? 4 : 0;
    return (bytes << (9 - down) & 0x0e000e00u) | (bytes << (12 - down) & 0x80008000u);
  }
  // Times 2^15 (f16) or 2^127 (bf16), by FMA with -0, as sm_80 has no multiplication of bf16x2
  static __device__ __forceinline__ u32 times(u32 pair, f16) {
    u32 d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(pair), "r"(0x78007800u), "r"(0x80008000u));
    return d;
  }
  static __device__ __forceinline__ u32 times(u32 pair, bf16) {
    u32 d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(pair), "r"(0x7f007f00u), "r"(0x80008000u));
    return d;
  }
  // The lower or the upper bytes of four codebook entries as 16-bit floats
  template <class Half> static __device__ constexpr u32 page(int number, int byte) {
    u32 bytes = 0;
    for (int i = 0; i < 4; ++i)
      bytes |= (half_bits<Half>(i8(Pages<BOOK>::AT[number] >> (8 * i))) >> (8 * byte) & 0xff) << (8 * i);
    return bytes;
  }
  // Byte masks (0 or 0xff) of the highest bits of the nibbles of bytes FIRST and FIRST + 1, low nibble first
  template <int FIRST> static __device__ __forceinline__ u32 mixed(u32 word) {
    u32 all;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(word << 4), "r"(word), "n"(FIRST ? 0xfbea : 0xd9c8));
    return all;
  }
  // Byte masks (0 or 0xff) of the highest bit of each byte
  static __device__ __forceinline__ u32 spread(u32 bytes) {
    u32 all;
    asm("prmt.b32 %0, %1, %1, 0xba98;" : "=r"(all) : "r"(bytes));
    return all;
  }
};

}  // namespace gguf
