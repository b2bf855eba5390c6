// Loads a large i8 B [K, N] from global memory straight into A fragments of mma.sync (swap_ab): words of four k's of a
// column.
//
// Of block i, a lane has columns column(i, h), h = 0 and 1, and WORDS words of each; word w holds k = of_word(w) to +
// 3. The order of k differs from the mma's, which changes no sum as long as the tokens use the same order.
#pragma once
#include "core/dtype.cuh"

namespace quantized {

// Loads BYTES by accesses of ACCESS bytes, with zeros for accesses that begin at byte `there` or later. ONCE: read-once
// data, no L1 allocation.
template <int BYTES, int ACCESS, bool ONCE>
__device__ __forceinline__ void fetch(u32 (&to)[BYTES / 4], const void* from, int there) {
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
          : "=r"(held.words[4 * i]), "=r"(held.words[4 * i + 1]), "=r"(held.words[4 * i + 2]),
          "=r"(held.words[4 * i + 3])
          : "l"(at)
          : "memory");
    else held.parts[i] = *at;
  }
#pragma unroll
  for (int i = 0; i < BYTES / 4; ++i) to[i] = held.words[i];
}

// Prefetch into L2.
__device__ __forceinline__ void prefetch_l2(const i8* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// B contiguous along k: a lane loads 16 bytes of a column; 64 of K per step.
template <int BLOCKS_, int ACCESS> struct AlongK {
  static constexpr int BLOCKS = BLOCKS_, WORDS = 4, STEP = 64, COLUMNS = 16 * BLOCKS, RUN = 16;
  struct Raw { u32 at[BLOCKS][2][4]; };
  using Words = u32[BLOCKS][2][WORDS];

  static __device__ __forceinline__ int column(int block, int half) {
    return 16 * block + 8 * half + threadIdx.x % 32 / 4;
  }
  static __device__ __forceinline__ int of_word(int word) { return 16 * (threadIdx.x % 4) + 4 * word; }
  static __device__ __forceinline__ bool inside(u32, u32) { return true; }
  // `step`: column stride in bytes. Out-of-range columns are clamped to the last. `whole`: no k is past the end.
  static __device__ __forceinline__ void load(
      Raw& raw, const i8* b, i64 step, u32 first, u32 n, u32 k, u32 end, bool whole) {
    const u32 own = k + of_word(0);
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        fetch<16, ACCESS, true>(
            raw.at[i][h], b + min(first + column(i, h), n - 1) * step + own, whole ? 16 : int(end) - int(own));
  }
  static __device__ __forceinline__ void prefetch(const i8* b, i64 step, u32 first, u32 n, u32 k, u32 end) {
#pragma unroll
    for (int i = 0; i < BLOCKS * 2; ++i)
      if (k + of_word(0) < end) prefetch_l2(b + min(first + column(i / 2, i % 2), n - 1) * step + k + of_word(0));
  }
  static __device__ __forceinline__ void words(Words& to, const Raw& raw) {
#pragma unroll
    for (int i = 0; i < BLOCKS * 8; ++i) to[i / 8][i / 4 % 2][i % 4] = raw.at[i / 8][i / 4 % 2][i % 4];
  }
};

// B contiguous along n: a lane loads 16 bytes of each of 8 rows; 128 columns and 32 of K per step. Four rows are
// transposed in registers to words of columns.
template <int BLOCKS_, int ACCESS> struct AlongN {
  static_assert(BLOCKS_ == 8);
  static constexpr int BLOCKS = 8, WORDS = 2, STEP = 32, COLUMNS = 128, RUN = 4;
  struct Raw { u32 at[2][4][4]; };
  using Words = u32[BLOCKS][2][WORDS];

  static __device__ __forceinline__ int column(int block, int half) {
    return 16 * (threadIdx.x % 32 / 4) + 2 * block + half;
  }
  static __device__ __forceinline__ int of_word(int word) { return 16 * word + 4 * (threadIdx.x % 4); }
  static __device__ __forceinline__ bool inside(u32 first, u32 n) { return first + COLUMNS <= n; }
  // `step`: row stride in bytes. `whole`: no k and no column is past the end.
  static __device__ __forceinline__ void load(
      Raw& raw, const i8* b, i64 step, u32 first, u32 n, u32 k, u32 end, bool whole) {
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
      if (row < end && own < n) prefetch_l2(b + row * step + own);
    }
  }
  static __device__ __forceinline__ void words(Words& to, const Raw& raw) {
#pragma unroll
    for (int word = 0; word < 2; ++word)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const u32* rows[4] = {raw.at[word][0], raw.at[word][1], raw.at[word][2], raw.at[word][3]};
        const u32 low = __byte_perm(rows[0][q], rows[1][q], 0x5140), high = __byte_perm(rows[0][q], rows[1][q], 0x7362);
        const u32 low2 = __byte_perm(rows[2][q], rows[3][q], 0x5140),
                  high2 = __byte_perm(rows[2][q], rows[3][q], 0x7362);
        to[2 * q][0][word] = __byte_perm(low, low2, 0x5410);
        to[2 * q][1][word] = __byte_perm(low, low2, 0x7632);
        to[2 * q + 1][0][word] = __byte_perm(high, high2, 0x5410);
        to[2 * q + 1][1][word] = __byte_perm(high, high2, 0x7632);
      }
  }
};

}  // namespace quantized
