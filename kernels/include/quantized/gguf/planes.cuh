// Loads from blocks aligned to ALIGN bytes, in global or shared memory, and bit planes of codes.
#pragma once
#include "core/dtype.cuh"

namespace gguf {

// Joins two half words by IMAD, whose pipe is idle where that of shifts and permutations is saturated.
__device__ __forceinline__ u32 above(u32 low, u32 high) {
  u32 both;
  asm("mad.lo.u32 %0, %1, 65536, %2;" : "=r"(both) : "r"(high), "r"(low));
  return both;
}
template <int ALIGN> __device__ __forceinline__ u32 half_word(const u8* p) {
  if constexpr (ALIGN >= 2) return *reinterpret_cast<const u16*>(p);
  else return p[0] | u32(p[1]) << 8;
}
template <int ALIGN> __device__ __forceinline__ u32 word(const u8* p) {
  if constexpr (ALIGN >= 4) return *reinterpret_cast<const u32*>(p);
  else return above(half_word<ALIGN>(p), half_word<ALIGN>(p + 2));
}
// The alignment at offset AT from an address aligned to ALIGN.
template <int ALIGN, int AT> constexpr int ALIGN_AT = AT == 0 || ALIGN < (AT & -AT) ? ALIGN : (AT & -AT);

// A bit plane: fields of BITS bits from byte AT, lowest bits of a byte first. Field i of byte l of group c belongs to
// code (c * 8 / BITS + i) * GROUP + l.
template <int BITS_, int AT, int GROUP> struct Plane {
  static constexpr int BITS = BITS_, FIELDS = 8 / BITS;
  static constexpr u32 MASK = (1u << BITS) - 1;
  static constexpr bool NIBBLE_HALVES = BITS == 4 && GROUP == 16;  // codes at a distance of 16 share bytes

  // The four bytes with the fields of codes `first` + `within` to + 3 (GROUP >= 16); `above` gives the fields' bit
  // position.
  template <int ALIGN> static __device__ __forceinline__ u32 bytes_of(const u8* block, u32 first, u32 within) {
    return word<ALIGN_AT<ALIGN, AT>>(block + AT + first / GROUP / FIELDS * GROUP + first % GROUP + within);
  }
  // The same bytes as pairs, 0 and 2, 1 and 3, in the low bytes of half words; the high bytes are undefined if loaded
  // as a word.
  template <int ALIGN>
  static __device__ __forceinline__ void strided_pairs(u32 (&pairs)[2], const u8* block, u32 first, u32 within) {
    if constexpr (ALIGN_AT<ALIGN, AT> == 1) {
      const u8* from = block + AT + first / GROUP / FIELDS * GROUP + first % GROUP + within;
#pragma unroll
      for (int i = 0; i < 2; ++i) pairs[i] = gguf::above(from[i], from[i + 2]);
    } else {
      pairs[0] = bytes_of<ALIGN>(block, first, within);
      pairs[1] = pairs[0] >> 8;
    }
  }
  static __device__ __forceinline__ u32 above(u32 first) { return first / GROUP % FIELDS * BITS; }
  // The field of one code, which may be a run-time index.
  static __device__ __forceinline__ u32 one(const u8* block, u32 code) {
    const u32 line = code / GROUP;
    return block[AT + line / FIELDS * GROUP + code % GROUP] >> (line % FIELDS * BITS) & MASK;
  }
  // The fields of codes `first` + `within` to + 3, one per byte; `first` is a multiple of 16, `within` one of 0, 4, 8,
  // 12.
  template <int ALIGN> static __device__ __forceinline__ u32 four(const u8* block, u32 first, u32 within) {
    if constexpr (GROUP >= 16) {
      const u32 bytes = bytes_of<ALIGN>(block, first, within);
      return BITS == 8 ? bytes : bytes >> above(first) & MASK * 0x01010101u;
    } else if constexpr (BITS == 4) {
      static_assert(GROUP == 1);
      const u32 pair = half_word<ALIGN_AT<ALIGN, AT>>(block + AT + (first + within) / 2);
      return __byte_perm(pair & 0x0f0f, pair >> 4 & 0x0f0f, 0x5140);
    } else {
      static_assert(GROUP == 1 && BITS == 1);
      // One IMUL spreads the four bits of a nibble to bit 4 of each byte
      const u32 bits = block[AT + (first + within) / 8] & 15u << (within & 4);
      return (bits * (0x02040810u >> (within & 4)) & 0x10101010u) >> 4;
    }
  }
};

// Codes split over several planes, lowest bits first.
template <class... Planes> struct Stack;
template <class P> struct Stack<P> {
  static constexpr int BITS = P::BITS;
  static constexpr bool NIBBLE_HALVES = P::NIBBLE_HALVES;
  static __device__ __forceinline__ u32 one(const u8* block, u32 code) { return P::one(block, code); }
  template <int ALIGN> static __device__ __forceinline__ u32 four(const u8* block, u32 first, u32 within) {
    return P::template four<ALIGN>(block, first, within);
  }
};
template <class P, class Q> struct Stack<P, Q> {
  static constexpr int BITS = P::BITS + Q::BITS;
  static constexpr bool NIBBLE_HALVES = P::NIBBLE_HALVES;
  static __device__ __forceinline__ u32 one(const u8* block, u32 code) {
    return P::one(block, code) | Q::one(block, code) << P::BITS;
  }
  template <int ALIGN> static __device__ __forceinline__ u32 four(const u8* block, u32 first, u32 within) {
    return P::template four<ALIGN>(block, first, within) | Q::template four<ALIGN>(block, first, within) << P::BITS;
  }
};

}  // namespace gguf
