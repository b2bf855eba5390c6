// Layouts of int4 weights: (k, n) to (word, place), and the inverse.
//
// A code is 0..15. Place i of a word is its bits 4 i to 4 i + 3; a word has PER places. FLIP: XOR mask to an unsigned
// code. baracuda_py/packed/int4.py names the layouts.
#pragma once
#include "core/dtype.cuh"

namespace nibbles {

struct Place { u32 k, n; };
struct Spot { u64 word; u32 place; };

// [N][K / 8] words of eight k's, codes in two's complement: KAIO.
struct Kaio {
  using Word = u32;
  static constexpr u32 PER = 8, FLIP = 8;
  static __device__ __forceinline__ Spot spot(u32 k, u32 n, u32 K, u32) { return {u64(n) * (K / 8) + k / 8, k % 8}; }
  static __device__ __forceinline__ Place place(u64 word, u32 i, u32 K, u32) {
    const u32 row = K / 8, n = u32(word / row);
    return {u32(word - u64(n) * row) * 8 + i, n};
  }
};

// [K / 8][N] words of eight k's: GPTQ.
struct Gptq {
  using Word = u32;
  static constexpr u32 PER = 8, FLIP = 0;
  static __device__ __forceinline__ Spot spot(u32 k, u32 n, u32, u32 N) { return {u64(k / 8) * N + n, k % 8}; }
  static __device__ __forceinline__ Place place(u64 word, u32 i, u32, u32 N) {
    const u32 row = u32(word / N);
    return {row * 8 + i, u32(word - u64(row) * N)};
  }
};

// [K][N / 8] words of eight n's, in the order 0 2 4 6 1 3 5 7: AWQ.
struct Awq {
  using Word = u32;
  static constexpr u32 PER = 8, FLIP = 0;
  static __device__ __forceinline__ Spot spot(u32 k, u32 n, u32, u32 N) {
    return {u64(k) * (N / 8) + n / 8, n % 8 / 2 + n % 2 * 4};
  }
  static __device__ __forceinline__ Place place(u64 word, u32 i, u32, u32 N) {
    const u32 k = u32(word / (N / 8));
    return {k, u32(word - u64(k) * (N / 8)) * 8 + i % 4 * 2 + i / 4};
  }
};

// [ceil(N / 16)][ceil(K / 64)] tiles of 16 n by 64 k, each [lane][4] words in mma fragment order: word j of lane (g, t)
// is the A fragment of m16n8k16 for rows n = 2 g and 2 g + 1 and k = 32 (j / 2) + 8 t + 4 (j % 2) to + 3. Place r + 4 e
// is element e of register r. So a lane's B operand of two mma steps is 16 contiguous bytes of an activation row.
struct Tiled {
  using Word = u32;
  static constexpr u32 PER = 8, FLIP = 0, ROWS = 16, DEPTH = 64, WORDS = 128;
  static __device__ __forceinline__ Spot spot(u32 k, u32 n, u32 K, u32) {
    const u64 tile = u64(n / ROWS) * ((K + DEPTH - 1) / DEPTH) + k / DEPTH;
    const u32 lane = n % ROWS / 2 * 4 + k % 32 / 8, j = k % DEPTH / 32 * 2 + k % 8 / 4, r = n % 2 + k % 4 / 2 * 2;
    return {tile * WORDS + lane * 4 + j, r + k % 2 * 4};
  }
  static __device__ __forceinline__ Place place(u64 word, u32 i, u32 K, u32) {
    const u32 deep = (K + DEPTH - 1) / DEPTH, within = word % WORDS, lane = within / 4, j = within % 4, r = i % 4;
    const u64 tile = word / WORDS;
    const u32 strip = u32(tile / deep), block = u32(tile - u64(strip) * deep);
    return {
        block * DEPTH + j / 2 * 32 + lane % 4 * 8 + j % 2 * 4 + r / 2 * 2 + i / 4, strip * ROWS + lane / 4 * 2 + r % 2};
  }
};

// [K][N], one code per byte.
struct Plain {
  using Word = u8;
  static constexpr u32 PER = 1, FLIP = 0;
  static __device__ __forceinline__ Spot spot(u32 k, u32 n, u32, u32 N) { return {u64(k) * N + n, 0}; }
  static __device__ __forceinline__ Place place(u64 word, u32, u32, u32 N) {
    const u32 k = u32(word / N);
    return {k, u32(word - u64(k) * N)};
  }
};

// Zero points. Tiled, Plain: bytes [groups][N], N padded to 16 for Tiled. AWQ: words [groups][N / 8] in AWQ's order.
// GPTQ: words in the order of n, stored minus one (LESS).
template <class Layout> struct Zeros;
template <> struct Zeros<Tiled> {
  using Word = u8;
  static constexpr u32 PER = 1, LESS = 0;
  static __device__ __forceinline__ u32 pitch(u32 N) { return (N + 15) / 16 * 16; }
  static __device__ __forceinline__ u32 place(u32) { return 0; }
  static __device__ __forceinline__ u32 column(u32) { return 0; }
  static constexpr u32 MASK = 255;
};
template <> struct Zeros<Awq> {
  using Word = u32;
  static constexpr u32 PER = 8, LESS = 0, MASK = 15;
  static __device__ __forceinline__ u32 pitch(u32 N) { return N / 8; }
  static __device__ __forceinline__ u32 place(u32 c) { return c / 2 + c % 2 * 4; }
  static __device__ __forceinline__ u32 column(u32 i) { return i % 4 * 2 + i / 4; }
};
template <> struct Zeros<Gptq> {
  using Word = u32;
  static constexpr u32 PER = 8, LESS = 1, MASK = 15;
  static __device__ __forceinline__ u32 pitch(u32 N) { return N / 8; }
  static __device__ __forceinline__ u32 place(u32 c) { return c; }
  static __device__ __forceinline__ u32 column(u32 i) { return i; }
};
template <> struct Zeros<Plain> : Zeros<Tiled> {
  static __device__ __forceinline__ u32 pitch(u32 N) { return N; }
};
template <> struct Zeros<Kaio> : Zeros<Plain> {};  // KAIO has no zero points

template <class Layout> __device__ __forceinline__ u32 zero_at(const void* zeros, u32 group, u32 n, u32 N) {
  using Z = Zeros<Layout>;
  if (!zeros) return 8;
  const auto word = static_cast<const typename Z::Word*>(zeros)[u64(group) * Z::pitch(N) + n / Z::PER];
  return (u32(word) >> Z::place(n % Z::PER) * 4 & Z::MASK) + Z::LESS;
}

// The code of (k, n): `code_inside` requires it inside the matrix; `code_at` returns 8, the default zero point,
// outside.
template <class Layout>
__device__ __forceinline__ u32 code_inside(const typename Layout::Word* codes, u32 k, u32 n, u32 K, u32 N) {
  const Spot at = Layout::spot(k, n, K, N);
  return (u32(codes[at.word]) >> at.place * 4 & 15) ^ Layout::FLIP;
}
template <class Layout>
__device__ __forceinline__ u32 code_at(const typename Layout::Word* codes, u32 k, u32 n, u32 K, u32 N) {
  return k < K && n < N ? code_inside<Layout>(codes, k, n, K, N) : 8;
}

}  // namespace nibbles
