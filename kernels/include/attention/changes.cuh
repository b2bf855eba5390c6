// Score modifications of the tensor-core kernels: softcap, ALiBi, mask, block mask, each compiled in only if present.
// Mirrors `changes` of baracuda_py/ops/attention/_forward/flash.py. (mask.cuh modifies one score, testing all at run
// time.)
#pragma once
#include "attention/mask.cuh"

namespace attention {

enum Change : int { CAP = 1, SLOPE = 2, MASK = 4, BLOCK_MASK = 8, BITS = 16 };  // BITS: a bool mask (mask_bits.cuh)
template <int CHANGES> constexpr bool ADDS = (CHANGES & (SLOPE | MASK)) != 0;

// q k^T * by is 2 log2(e) times tanh's argument (softcap), or the score; `cap` is 1 without softcap. A kernel without
// ALiBi and mask leaves scores in multiples of `unit`, which the softmax's factor includes.
struct Units { float by, cap, unit; };
template <int CHANGES, class P> __device__ __forceinline__ Units units_of(const P& p, float scale) {
  const float cap = fminf(float(p.softcap), 0x1p126f);
  if constexpr (!(CHANGES & CAP)) return {scale, 1.0f, ADDS<CHANGES> ? 1.0f : scale};
  return {fmaxf(fminf(2.0f * math::LOG2E * scale / cap, 0x1p127f), -0x1p127f), cap, ADDS<CHANGES> ? 1.0f : cap};
}

// Whether the block mask keeps every block that intersects rows [row, row_end) and keys [key, key_end).
template <class P, class H>
__device__ __forceinline__ bool all_count(const P& p, const H& head, int row, int row_end, int key, int key_end) {
  for (int i = row / int(p.block_rows); i <= (row_end - 1) / int(p.block_rows); ++i)
    for (int j = key / int(p.block_keys); j <= (key_end - 1) / int(p.block_keys); ++j)
      if (!block_counts(p, head, i, j)) return false;
  return true;
}

// Applies a mask of type M to a tile of accumulators (layout as in change_scores). Where all rows and keys are visible,
// adjacent bool entries are loaded by pairs, a row's together; others are loaded where a key is visible.
template <class M, int BLOCKS, int N, class P, class H>
__device__ __forceinline__ void mask_scores(
    float (&s)[BLOCKS][N][4], const P& p, const H& head, const Band& band, int row, int column, bool edge) {
  i64 at = head.batch * p.mask_strides[0] + head.head * p.mask_strides[1] + row * p.mask_strides[2] +
      column * p.mask_strides[3];
  if constexpr (sizeof(M) == 1) {
    const u8* const first = static_cast<const u8*>(p.mask) + at;
    const u64 odd = (reinterpret_cast<u64>(first) | u64(p.mask_strides[2])) % 2;
    if (!edge && row + 16 * BLOCKS - 8 < head.rows && p.mask_strides[3] == 1 && !odd) {
#pragma unroll
      for (int r = 0; r < 2 * BLOCKS; ++r) {
        const u8* const entries = first + r * 8 * p.mask_strides[2];
        u16 pairs[N];
#pragma unroll
        for (int n = 0; n < N; ++n) asm volatile("ld.global.u16 %0, [%1];" : "=h"(pairs[n]) : "l"(entries + 8 * n));
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (!(pairs[n] & 0xff << 8 * e)) s[r / 2][n][r % 2 * 2 + e] = rows::minus_infinity<float>();
      }
      return;
    }
  }
#pragma unroll
  for (int r = 0; r < 2 * BLOCKS; ++r) {
    const Keys seen = band.of(row + 8 * r);
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int j = column + 8 * n + e;
        float& score = s[r / 2][n][r % 2 * 2 + e];
        if (row + 8 * r < head.rows && j >= seen.first && j < seen.end)
          score = masked_by<M>(score, p.mask, at + (8 * n + e) * p.mask_strides[3]);
      }
    at += 8 * p.mask_strides[2];
  }
}

// Accumulators of q k^T become scores. The thread's first element is (row, column); its row r is row + 8 r. `edge`:
// some elements are invisible (length, causal, window); `mixed`: the block mask may drop some.
template <int CHANGES, class T, int BLOCKS, int N, class P, class H>
__device__ __forceinline__ void change_scores(float (&s)[BLOCKS][N][4], const P& p, const H& head, const Band& band,
    Units units, float slope, int row, int column, bool edge, bool mixed) {
#pragma unroll
  for (int r = 0; r < 2 * BLOCKS; ++r) {
    const float distance = CHANGES & SLOPE ? float(column - (row + 8 * r + head.offset)) : 0.0f;
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = s[r / 2][n][r % 2 * 2 + e];
        // 1. softcap, scale, ALiBi
        if (CHANGES & CAP) score = math::tanh_from_log2(score * units.by);
        if (ADDS<CHANGES>) score *= CHANGES & CAP ? units.cap : units.by;
        if (CHANGES & SLOPE) score = fmaf(slope, distance + float(8 * n + e), score);
      }
  }
  // 2. elementwise mask
  if constexpr ((CHANGES & MASK) != 0) {
    if (p.mask_kind == BOOL) mask_scores<u8>(s, p, head, band, row, column, edge);
    else if (p.mask_kind == OWN) mask_scores<T>(s, p, head, band, row, column, edge);
    else mask_scores<float>(s, p, head, band, row, column, edge);
  }
  // 3. block mask
  if ((CHANGES & BLOCK_MASK) && mixed) {
#pragma unroll
    for (int r = 0; r < 2 * BLOCKS; ++r)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (!in_a_block(p, head, row + 8 * r, column + 8 * n + e))
            s[r / 2][n][r % 2 * 2 + e] = rows::minus_infinity<float>();
  }
  // 4. last key, causal, window
  if (edge) {
#pragma unroll
    for (int r = 0; r < 2 * BLOCKS; ++r) {
      const Keys seen = band.of(row + 8 * r);
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool counts = 8 * n + e >= seen.first - column && 8 * n + e < seen.end - column;
          if (!counts) s[r / 2][n][r % 2 * 2 + e] = rows::minus_infinity<float>();
        }
    }
  }
}

}  // namespace attention
