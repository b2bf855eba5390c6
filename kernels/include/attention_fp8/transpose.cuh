// Values of 8 bits, [key, column] in panels of 128 columns, become V^T, [column, key] in panels of 128 keys: wgmma
// takes 8-bit operands K-major alone. Both are in the 128-byte swizzle (FlashAttention-3, arXiv:2407.08608, section
// 3.3).
//
// Step:      a warp takes 32 keys by 16 columns: ldmatrix.trans moves pairs of columns, prmt separates them, stmatrix
//            stores eight even and eight odd columns by 16 keys each; neither has bank conflicts.
// Keys:      byte 4 t + i of 16 is key {2 t, 2 t + 1, 2 t + 8, 2 t + 9}[i]: what a thread has of the scores.
// Columns:   row i < 8 of 16 is column 2 i, row 8 + i column 2 i + 1.
#pragma once
#include "attention/head_boxes.cuh"
#include "ptx/mma.cuh"
#include "ptx/warpgroup.cuh"

namespace attention_fp8 {

using attention::PANEL_ROW;

// Bytes of the lane's word of 16 keys, of which `left` are not behind the last key that is seen.
__device__ __forceinline__ u32 kept_keys(int left, int t) {
  u32 kept = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (2 * t + i % 2 + i / 2 * 8 < left) kept |= 0xffu << 8 * i;
  return kept;
}

// By a warpgroup. Keys from `seen` on become zeros: their weights are 0, and the values may be NaN.
template <int KEYS, int COLUMNS>
__device__ __forceinline__ void transpose_values(u32 to, u32 from, int seen, u32 thread) {
  static_assert(KEYS % 32 == 0 && COLUMNS % 64 == 0, "every warp has as many steps");
  const u32 lane = thread % 32, warp = thread / 32, t = lane % 4;
  const u32 row = lane % 8 + lane / 8 % 2 * 8, half = lane / 16;
#pragma unroll 1
  for (u32 chunk = warp; chunk < COLUMNS / 16; chunk += 4) {
    const u32 line = from + chunk / 8 * (KEYS * PANEL_ROW) + lane * PANEL_ROW + (chunk % 8 ^ lane % 8) * 16;
    const u32 column = to + (16 * chunk + row) * PANEL_ROW;
#pragma unroll 2
    for (u32 k = 0; k < KEYS / 32; ++k) {
      u32 pairs[4], words[4];
      load_matrices<true>(pairs, line + k * 32 * PANEL_ROW);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = __byte_perm(pairs[i / 2 * 2], pairs[i / 2 * 2 + 1], i % 2 ? 0x7531 : 0x6420);
      if (seen < KEYS) {
        const int left = seen - int(32 * k);
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] &= kept_keys(left - i / 2 * 16, int(t));
      }
      warpgroup::store_matrices<false>(
          column + k / 4 * (COLUMNS * PANEL_ROW) + (k % 4 * 2 + half ^ row % 8) * 16, words);
    }
  }
}

}  // namespace attention_fp8
