// Codes of four neighbouring weights, a byte each: unsigned with something to be taken off, or signed as they are.
#pragma once
#include "quantized/gguf/planes.cuh"

namespace gguf {

// The only plane of codes that have fields of their own in the bytes of others: sub-blocks of a group each.
template <class... Planes> struct Alone { using P = void; static constexpr int BITS = 0; };
template <int BITS_, int AT, int GROUP> struct Alone<Plane<BITS_, AT, GROUP>> {
  using P = Plane<BITS_, AT, GROUP>;
  static constexpr int BITS = BITS_ < 8 && GROUP >= 32 ? BITS_ : 0;
};

template <int LESS_, bool SIGNED_, class... Planes> struct Codes {
  using Only = Alone<Planes...>;
  static constexpr int LESS = LESS_;
  static constexpr bool SIGNED = SIGNED_, IN_HALVES = Stack<Planes...>::IN_HALVES;
  template <int ALIGN> static __device__ __forceinline__ u32 four(const u8* block, u32 first, u32 within) {
    return Stack<Planes...>::template four<ALIGN>(block, first, within);
  }
};

enum Book { IQ4, E2M1 };
// Sixteen signed bytes, the first in the lowest bits.
template <Book> struct Pages;
template <> struct Pages<IQ4> { static constexpr u32 AT[4] = {0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535}; };
template <> struct Pages<E2M1> { static constexpr u32 AT[4] = {0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc}; };

// Codes of four bits, looked up. A byte permutation looks four up among eight; another one spreads the codes' highest bits, which say
// which eight count.
template <Book BOOK, class P> struct Looked {
  using Only = Alone<>;
  static constexpr int LESS = 0;
  static constexpr bool SIGNED = true, IN_HALVES = P::IN_HALVES;
  template <int ALIGN> static __device__ __forceinline__ u32 four(const u8* block, u32 first, u32 within) {
    const u32 codes = P::template four<ALIGN>(block, first, within), low_bits = codes & 0x07070707u;
    const u32 select = __byte_perm(low_bits | low_bits >> 4, 0, 0x4420);
    const u32 low = __byte_perm(Pages<BOOK>::AT[0], Pages<BOOK>::AT[1], select);
    const u32 high = __byte_perm(Pages<BOOK>::AT[2], Pages<BOOK>::AT[3], select);
    const u32 upper = spread(codes << 4);
    return (low & ~upper) | (high & upper);
  }

 private:
  // 0 or 0xff for each byte, by its highest bit
  static __device__ __forceinline__ u32 spread(u32 bytes) {
    u32 all;
    asm("prmt.b32 %0, %1, %1, 0xba98;" : "=r"(all) : "r"(bytes));
    return all;
  }
};

}  // namespace gguf
