// B fragments of a few tokens, and mma.sync of 16 weight columns (quantized/words.cuh) by 8 tokens.
//
// i8, u8: the words are A fragments without conversion (K = 32), and sums are exact. f16, bf16 (W8A16): the words are
// widened to pairs (K = 16), bytes 0 and 2, then 1 and 3. f16: the byte b with its sign bit flipped, under high byte
// 0x64, is 1152 + b; minus 1152. bf16: the low 7 bits under 0x4300 are 128 + their value; minus 0x4300 (128) or, if the
// sign bit is set, 0x4380 (256). 1.25 and 2 instructions per weight.
#pragma once
#include "ptx/mma.cuh"
#include "quantized/words.cuh"

namespace quantized {

template <class A> struct Pairs;  // widens bytes 0 and 2 of a word of i8 to a pair of A
template <> struct Pairs<f16> {
  static __device__ __forceinline__ u32 of(u32 bytes) {
    u32 x;
    asm("lop3.b32 %0, %1, 0x00ff00ff, 0x64806480, 0x6a;" : "=r"(x) : "r"(bytes));  // (a & b) ^ c
    asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(x) : "r"(0x64806480));
    return x;
  }
};
template <> struct Pairs<bf16> {
  static __device__ __forceinline__ u32 of(u32 bytes) {
    u32 x, y;
    asm("lop3.b32 %0, %1, 0x007f007f, 0x43004300, 0xea;" : "=r"(x) : "r"(bytes));  // (a & b) | c
    asm("lop3.b32 %0, %1, 0x00800080, 0x43004300, 0xea;" : "=r"(y) : "r"(bytes));
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(x) : "r"(y), "r"(0xbf80bf80));  // x - y: sm_80 has no subtraction
    return x;
  }
};

// A lane's activations of 8 tokens for all k's of a step; RUN k's are contiguous.
template <class A, class Way> struct Tokens {
  static constexpr int SIZE = sizeof(A), RUN_WORDS = Way::RUN * SIZE / 4;
  u32 at[Way::WORDS * 4 / Way::RUN][RUN_WORDS];

  template <int ACCESS> __device__ __forceinline__ void load(const A* token, u32 k, u32 end, bool whole) {
#pragma unroll
    for (int i = 0; i < Way::WORDS * 4 / Way::RUN; ++i) {
      const u32 own = k + Way::of_word(i);
      fetch<Way::RUN * SIZE, ACCESS, false>(at[i], token + own, whole ? Way::RUN * SIZE : (int(end) - int(own)) * SIZE);
    }
  }
  // The register of word w: four bytes, or two of four 16-bit elements, selected by `half`.
  __device__ __forceinline__ u32 word(int w, int half = 0) const {
    const int flat = w * SIZE + half;
    return at[flat / RUN_WORDS][flat % RUN_WORDS];
  }
};

template <class A> struct Product {  // f16, bf16
  using Acc = float;
  template <class Way>
  static __device__ __forceinline__ void add(
      float (&acc)[4], const u32 (&words)[2][Way::WORDS], const Tokens<A, Way>& tokens) {
#pragma unroll
    for (int w = 0; w < Way::WORDS; ++w) {
      const u32 a[4] = {Pairs<A>::of(words[0][w]), Pairs<A>::of(words[1][w]), Pairs<A>::of(words[0][w] >> 8),
          Pairs<A>::of(words[1][w] >> 8)};
      const u32 low = tokens.word(w), high = tokens.word(w, 1);
      const u32 b[2] = {__byte_perm(low, high, 0x5410), __byte_perm(low, high, 0x7632)};
      Mma<A>::run(acc, a, b);
    }
  }
};

template <class A> __device__ __forceinline__ void multiply(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <> __device__ __forceinline__ void multiply<i8>(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> __device__ __forceinline__ void multiply<u8>(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <class A> struct Exact {
  using Acc = int;
  static constexpr u32 ONES = 0x01010101;
  template <class Way>
  static __device__ __forceinline__ void add(
      int (&acc)[4], const u32 (&words)[2][Way::WORDS], const Tokens<A, Way>& tokens) {
#pragma unroll
    for (int w = 0; w < Way::WORDS; w += 2)
      multiply<A>(
          acc, {words[0][w], words[1][w], words[0][w + 1], words[1][w + 1]}, tokens.word(w), tokens.word(w + 1));
  }
  // Sums along K by mma with ones: of the lane's columns in acc[0] and acc[2], of its tokens in acc[0] and acc[1].
  template <class Way>
  static __device__ __forceinline__ void add_columns(int (&acc)[4], const u32 (&words)[2][Way::WORDS]) {
#pragma unroll
    for (int w = 0; w < Way::WORDS; w += 2)
      multiply<A>(acc, {words[0][w], words[1][w], words[0][w + 1], words[1][w + 1]}, ONES, ONES);
  }
  template <class Way> static __device__ __forceinline__ void add_tokens(int (&acc)[4], const Tokens<A, Way>& tokens) {
#pragma unroll
    for (int w = 0; w < Way::WORDS; w += 2)
      multiply<A>(acc, {ONES, ONES, ONES, ONES}, tokens.word(w), tokens.word(w + 1));
  }
};
template <> struct Product<i8> : Exact<i8> {};
template <> struct Product<u8> : Exact<u8> {};

}  // namespace quantized
