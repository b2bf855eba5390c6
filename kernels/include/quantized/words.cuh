// How a warp takes bytes of a large B [K, N] as the left operand of mma.sync, its rows columns of B: words of four neighbours along k.
//
// With g = lane / 4 and t = lane % 4, a lane has of block i the columns column(i, h), h = 0 and 1, and of each WORDS words; word w
// holds the four k's from of_word(w) on. Which k's those are does not matter to a sum, as long as tokens come alike.
#pragma once
#include "dtype.cuh"

namespace quantized {

// `BYTES` from `from` on, ACCESS at a time; zeros where an access begins at `there` bytes or beyond. ONCE: nobody reads them again.
template <int BYTES, int ACCESS, bool ONCE> __device__ __forceinline__ void fetch(u32 (&to)[BYTES / 4], const void* from, int there) {
  using Access = typename Word<ACCESS>::type;
  union Held { u32 words[BYTES / 4]; Access parts[BYTES / ACCESS]; __device__ Held() {} } held;
#pragma unroll
  for (int i = 0; i < BYTES / 4; ++i) held.words[i] = 0;
#pragma unroll
  for (int i = 0; i < BYTES / ACCESS; ++i) {
    if (i * ACCESS >= there) continue;
    const Access* at = static_cast<const Access*>(from) + i;
    if constexpr (ACCESS == 16 && ONCE)
      asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(held.words[4 * i]), "=r"(held.words[4 * i + 1]), "=r"(held.words[4 * i + 2]), "=r"(held.words[4 * i + 3])
                   : "l"(at) : "memory");
    else held.parts[i] = *at;
  }
#pragma unroll
  for (int i = 0; i < BYTES / 4; ++i) to[i] = held.words[i];
}

// Asks L2 for what will be read.
__device__ __forceinline__ void ask(const i8* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// B lies along k: 16 bytes a lane of a column, 64 of K a step.
template <int BLOCKS_, int ACCESS> struct AlongK {
  static constexpr int BLOCKS = BLOCKS_, WORDS = 4, STEP = 64, COLUMNS = 16 * BLOCKS, RUN = 16;
  struct Raw { u32 at[BLOCKS][2][4]; };
  using Words = u32[BLOCKS][2][WORDS];

  static __device__ __forceinline__ int column(int block, int half) { return 16 * block + 8 * half + threadIdx.x % 32 / 4; }
  static __device__ __forceinline__ int of_word(int word) { return 16 * (threadIdx.x % 4) + 4 * word; }
  static __device__ __forceinline__ bool inside(u32, u32) { return true; }
  // `step`: bytes from column to column. Columns from `n` on read the last one. `whole`: no k lies beyond the end.
  static __device__ __forceinline__ void load(Raw& raw, const i8* b, i64 step, u32 first, u32 n, u32 k, u32 end, bool whole) {
    const u32 own = k + of_word(0);
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        fetch<16, ACCESS, true>(raw.at[i][h], b + min(first + column(i, h), n - 1) * step + own, whole ? 16 : int(end) - int(own));
  }
  static __device__ __forceinline__ void prefetch(const i8* b, i64 step, u32 first, u32 n, u32 k, u32 end) {
#pragma unroll
    for (int i = 0; i < BLOCKS * 2; ++i)
      if (k + of_word(0) < end) ask(b + min(first + column(i / 2, i % 2), n - 1) * step + k + of_word(0));
  }
  static __device__ __forceinline__ void words(Words& to, const Raw& raw) {
#pragma unroll
    for (int i = 0; i < BLOCKS * 8; ++i) to[i / 8][i / 4 % 2][i % 4] = raw.at[i / 8][i / 4 % 2][i % 4];
  }
};

// B lies along n: 16 bytes a lane of a row, of 128 columns, 32 of K a step; four rows are turned into words of columns.
template <int BLOCKS_, int ACCESS> struct AlongN {
  static_assert(BLOCKS_ == 8);
  static constexpr int BLOCKS = 8, WORDS = 2, STEP = 32, COLUMNS = 128, RUN = 4;
  struct Raw { u32 at[2][4][4]; };
  using Words = u32[BLOCKS][2][WORDS];

  static __device__ __forceinline__ int column(int block, int half) { return 16 * (threadIdx.x % 32 / 4) + 2 * block + half; }
  static __device__ __forceinline__ int of_word(int word) { return 16 * word + 4 * (threadIdx.x % 4); }
  static __device__ __forceinline__ bool inside(u32 first, u32 n) { return first + COLUMNS <= n; }
  // `step`: bytes from row to row. `whole`: neither a k nor a column lies beyond the end.
  static __device__ __forceinline__ void load(Raw& raw, const i8* b, i64 step, u32 first, u32 n, u32 k, u32 end, bool whole) {
    const u32 own = first + column(0, 0);
#pragma unroll
    for (int word = 0; word < 2; ++word)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const u32 row = k + of_word(word) + i;
        fetch<16, ACCESS, true>(raw.at[word][i], b + row * step + own, whole ? 16 : row < end ? int(n) - int(own) : 0);
      }
  }
  static __device__ __forceinline__ void prefetch(const i8* b, i64 step, u32 first, u32 n, u32 k, u32 end) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const u32 row = k + of_word(i / 4) + i % 4, own = first + column(0, 0);
      if (row < end && own < n) ask(b + row * step + own);
    }
  }
  static __device__ __forceinline__ void words(Words& to, const Raw& raw) {
#pragma unroll
    for (int word = 0; word < 2; ++word)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const u32* rows[4] = {raw.at[word][0], raw.at[word][1], raw.at[word][2], raw.at[word][3]};
        const u32 low = __byte_perm(rows[0][q], rows[1][q], 0x5140), high = __byte_perm(rows[0][q], rows[1][q], 0x7362);
        const u32 low2 = __byte_perm(rows[2][q], rows[3][q], 0x5140), high2 = __byte_perm(rows[2][q], rows[3][q], 0x7362);
        to[2 * q][0][word] = __byte_perm(low, low2, 0x5410);
        to[2 * q][1][word] = __byte_perm(low, low2, 0x7632);
        to[2 * q + 1][0][word] = __byte_perm(high, high2, 0x5410);
        to[2 * q + 1][1][word] = __byte_perm(high, high2, 0x7632);
      }
  }
};

}  // namespace quantized
