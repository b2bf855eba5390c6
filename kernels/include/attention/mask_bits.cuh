// A bool mask of a warp's 16 queries by a k_block of N keys, in accumulator layout: it is read ahead of the scores, 16
// adjacent entries at a time, and each thread gets the bits of its own scores by shuffles.
#pragma once
#include "attention/mask.cuh"

namespace attention {

template <int N> struct MaskBits {
  static_assert(N % 32 == 0);
  static constexpr int READS = N / 32, WORDS = (READS + 1) / 2;  // chunks of 16 keys that a lane reads; of two of them
  Vec<u32, 4> read[READS];
  bool vectors;  // the k_block's rows are whole and aligned

  // Begins to read rows row ... row + 15 from `key` on; lane l has row l % 16 and every second chunk from l / 16 on.
  template <class P, class H> __device__ __forceinline__ void load(const P& p, const H& head, int row, int key) {
    const int lane = int(threadIdx.x % 32);
    const u8* const first = first_of(p, head);
    vectors = (reinterpret_cast<u64>(first) | u64(p.mask_strides[2])) % 16 == 0 && p.mask_strides[3] == 1 &&
        key + N <= head.keys;
    if (!vectors) return;
    const u8* const from = first + min(row + lane % 16, head.rows - 1) * p.mask_strides[2] + key + lane / 16 * 16;
#pragma unroll
    for (int i = 0; i < READS; ++i)
      asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(read[i].at[0]), "=r"(read[i].at[1]), "=r"(read[i].at[2]), "=r"(read[i].at[3])
                   : "l"(from + 32 * i));
  }

  // Scores that the mask hides become -inf. (row, key) as for `load`.
  template <class P, class H>
  __device__ __forceinline__ void hide(float (&s)[N / 8][4], const P& p, const H& head, int row, int key) {
    const int lane = int(threadIdx.x % 32);
    // Bits 16 b + 8 m + e of word [r][o][w]: query lane / 4 + 8 r; key 2 (lane % 4) + 8 m + e of chunk 4 w + 2 b + o
    u32 shown[2][2][WORDS];
    if (vectors) {
      u32 own[WORDS] = {};
      each_one_or_zero();
#pragma unroll
      for (int i = 0; i < READS; ++i) {
        const u32 low = __dp4a(read[i].at[1], 0x80402010u, __dp4a(read[i].at[0], 0x08040201u, 0u));
        const u32 high = __dp4a(read[i].at[3], 0x80402010u, __dp4a(read[i].at[2], 0x08040201u, 0u));
        own[i / 2] |= (low | high << 8) << (i % 2 * 16);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int o = 0; o < 2; ++o)
#pragma unroll
          for (int w = 0; w < WORDS; ++w)
            shown[r][o][w] = __shfl_sync(~0u, own[w], lane / 4 + 8 * r + 16 * o) >> lane % 4 * 2;
    } else {
      const u8* const first = first_of(p, head);
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int o = 0; o < 2; ++o)
#pragma unroll
          for (int w = 0; w < WORDS; ++w) {
            const u8* const entries = first + min(row + lane / 4 + 8 * r, head.rows - 1) * p.mask_strides[2];
            const int from = key + lane % 4 * 2 + 16 * (4 * w + o);
            shown[r][o][w] = 0;
#pragma unroll 1
            for (int i = 0; i < 8; ++i) {  // bits b, m and e
              const int at = from + i / 4 * 32 + i / 2 % 2 * 8 + i % 2;
              shown[r][o][w] |= u32(entries[min(at, head.keys - 1) * p.mask_strides[3]] != 0) << (i / 2 * 8 + i % 2);
            }
          }
    }
#pragma unroll
    for (int n = 0; n < N / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (!(shown[e / 2][n / 2 % 2][n / 8] >> (n / 4 % 2 * 16 + n % 2 * 8 + e % 2) & 1))
          s[n][e] = rows::minus_infinity<float>();
  }

 private:
  template <class P, class H> static __device__ __forceinline__ const u8* first_of(const P& p, const H& head) {
    return static_cast<const u8*>(p.mask) + head.batch * p.mask_strides[0] + head.head * p.mask_strides[1];
  }
  // Entries are 0 and 1 as a rule, but any number that is not 0 shows a score.
  __device__ __forceinline__ void each_one_or_zero() {
    u32 others = 0;
#pragma unroll
    for (int i = 0; i < READS; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k) others |= read[i].at[k];
    if (others & 0xfefefefeu)
#pragma unroll
      for (int i = 0; i < READS; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const u32 x = read[i].at[k];
          read[i].at[k] = (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) >> 7 & 0x01010101u;
        }
  }
};

}  // namespace attention
