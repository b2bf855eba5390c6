// A bool mask as bits, packed by mask_bits.cu. A problem has their words in the place of the mask. For scores: word 4 j
// + c of a row is of k_block j; its bit 2 n + e is of key 8 n + 2 c + e of the k_block, as in accumulators. For
// transposed scores: a word per lane of every tile of 64 queries by 16 keys.
#pragma once
#include "attention/mask.cuh"

namespace attention {

template <int N> struct MaskBits {
  static_assert(N % 16 == 0 && N <= 128);
  static constexpr u32 ALL = ~0u >> (32 - N / 4);
  u32 shown[2];  // of the thread's two rows

  // Begins to read the bits of rows `row` and `row` + 8, of k_block `block`; rows behind the last are the last.
  template <class P, class H> __device__ __forceinline__ void load(const P& p, const H& head, int row, int block) {
    const u32* const words = static_cast<const u32*>(p.mask) + head.batch * p.mask_strides[0] +
        head.head * p.mask_strides[1] + block * p.mask_strides[3] + threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      asm volatile("ld.global.u32 %0, [%1];"
                   : "=r"(shown[r])
                   : "l"(words + min(row + 8 * r, head.rows - 1) * p.mask_strides[2]));
  }

  // Scores that the mask hides become -inf.
  __device__ __forceinline__ void hide(float (&s)[N / 8][4]) const {
    if (!__any_sync(~0u, (shown[0] & shown[1]) != ALL)) return;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int i = 0; i < N / 4; ++i)
        if (!(shown[r] >> i & 1)) s[i / 2][2 * r + i % 2] = rows::minus_infinity<float>();
  }
};

// Bits of transposed scores: bit 4 n + 2 e + r is of query `query` + 8 n + 2 (lane % 4) + e and key `key` + lane / 4 +
// 8 r; `key` is a multiple of 16, `query` of 64, or within the tile: the word is that of its 64 queries.
template <class P, class H>
__device__ __forceinline__ u32 tile_bits(const P& p, const H& head, int query, int key, u32 lane) {
  u32 shown;
  asm volatile("ld.global.u32 %0, [%1];"
               : "=r"(shown)
               : "l"(static_cast<const u32*>(p.mask) + head.batch * p.mask_strides[0] + head.head * p.mask_strides[1] +
                   query / 64 * p.mask_strides[2] + key / 16 * p.mask_strides[3] + lane));
  return shown;
}

}  // namespace attention
