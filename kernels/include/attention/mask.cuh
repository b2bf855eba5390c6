// Which scores count (causal, window, length, masks), and softcap and ALiBi for one score.
#pragma once
#include "attention/problem.cuh"
#include "math/tanh.cuh"
#include "rows/shifted_sum.cuh"

namespace attention {

// Keys [first, end) visible to row i (causal, window, length); empty where end <= first.
struct Keys { int first, end; };
template <class P, class H> __device__ __forceinline__ Keys keys_of(const P& p, const H& head, int i) {
  const i64 stands = i + head.offset;
  return {int(max(min(stands - p.left, i64(head.keys)), i64(0))),
      int(max(min(stands + p.right + 1, i64(head.keys)), i64(0)))};
}

// The same as offsets from i in 32 bits, for fewer than 2^30 rows and keys: row i sees keys j with i + first <= j < i +
// end, j < keys.
struct Band {
  int first, end, keys;
  template <class P, class H> static __device__ __forceinline__ Band make(const P& p, const H& head) {
    constexpr i64 FAR = 1 << 30;
    return {
        int(max(min(head.offset - p.left, FAR), -FAR)), int(max(min(head.offset + p.right + 1, FAR), -FAR)), head.keys};
  }
  __device__ __forceinline__ Keys of(int i) const { return {max(min(i + first, keys), 0), max(min(i + end, keys), 0)}; }
};

// Entry (row, key) of the block mask, in blocks; a block mask must exist.
template <class P, class H> __device__ __forceinline__ bool block_counts(const P& p, const H& head, int row, int key) {
  return p.block_mask[head.batch * p.block_strides[0] + head.head * p.block_strides[1] + row * p.block_strides[2] +
      key * p.block_strides[3]];
}
// Whether the block mask keeps any block that intersects rows [row, row_end) and keys [key, key_end).
template <class P, class H>
__device__ __forceinline__ bool any_counts(const P& p, const H& head, int row, int row_end, int key, int key_end) {
  if (!p.block_mask) return true;
  for (int i = row / int(p.block_rows); i <= (row_end - 1) / int(p.block_rows); ++i)
    for (int j = key / int(p.block_keys); j <= (key_end - 1) / int(p.block_keys); ++j)
      if (block_counts(p, head, i, j)) return true;
  return false;
}

// The entry of row i and key j; indices past the end are clamped to the last row or key.
template <class P, class H> __device__ __forceinline__ bool in_a_block(const P& p, const H& head, int i, int j) {
  return block_counts(p, head, min(i, head.rows - 1) / int(p.block_rows), min(j, head.keys - 1) / int(p.block_keys));
}

// Applies one mask entry of type M: added, or (bool) -inf where it is false.
template <class M, class C> __device__ __forceinline__ C masked_by(C score, const void* mask, i64 at) {
  const M entry = static_cast<const M*>(mask)[at];
  if constexpr (Same<M, u8>::value) return entry ? score : rows::minus_infinity<C>();
  else return score + convert<C>(entry);
}
template <class T, class C, class P, class H>
__device__ __forceinline__ C masked(const P& p, const H& head, C score, int i, int j) {
  const i64 at = head.batch * p.mask_strides[0] + head.head * p.mask_strides[1] + i * p.mask_strides[2] +
      j * p.mask_strides[3];
  if (p.mask_kind == BOOL) return masked_by<u8>(score, p.mask, at);
  if (p.mask_kind == OWN) return masked_by<T>(score, p.mask, at);
  return masked_by<float>(score, p.mask, at);
}

// A scaled score of row i and key j after softcap, ALiBi, mask and block mask; -inf where it does not count. Row and
// key must exist, because both masks are read.
template <class T, class C, class P, class H>
__device__ __forceinline__ C changed(const P& p, const H& head, C score, int i, int j, C slope) {
  if (p.capped) score = C(p.softcap) * math::tanh<24>(score / C(p.softcap));
  if (p.slopes) score += slope * C(j - (i + head.offset));
  if (p.mask_kind) score = masked<T, C>(p, head, score, i, j);
  if (p.block_mask && !block_counts(p, head, i / int(p.block_rows), j / int(p.block_keys)))
    score = rows::minus_infinity<C>();
  return score;
}

// The ALiBi slope of a head, 0 without ALiBi.
template <class P, class H> __device__ __forceinline__ float slope_of(const P& p, const H& head) {
  return p.slopes ? p.slopes[head.batch * p.slope_strides[0] + head.head * p.slope_strides[1]] : 0.0f;
}

// The attention sink (learned logit in every row's denominator) of a head, -inf without sinks.
template <class T, class C, class P, class H> __device__ __forceinline__ C sink_of(const P& p, const H& head) {
  const i64 at = head.head * p.sink_strides[0];
  if (p.sinks_kind == OWN) return convert<C>(static_cast<const T*>(p.sinks)[at]);
  return p.sinks_kind ? C(static_cast<const float*>(p.sinks)[at]) : rows::minus_infinity<C>();
}

}  // namespace attention
