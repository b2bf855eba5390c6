// Which scores count, and how those that do are changed.
#pragma once
#include "attention/problem.cuh"
#include "math/tanh.cuh"
#include "rows/shifted_sum.cuh"

namespace attention {

// Keys [first, end) that row i sees by its place alone; empty where end <= first.
struct Keys { int first, end; };
template <class P, class H> __device__ __forceinline__ Keys keys_of(const P& p, const H& head, int i) {
  const i64 stands = i + head.offset;
  return {int(max(min(stands - p.left, i64(head.keys)), i64(0))), int(max(min(stands + p.right + 1, i64(head.keys)), i64(0)))};
}

// The same in 32 bits, for fewer than 2^30 rows and keys: key j is seen by row i from i + first on and before i + end.
struct Band {
  int first, end, keys;
  template <class P, class H> static __device__ __forceinline__ Band make(const P& p, const H& head) {
    constexpr i64 FAR = 1 << 30;
    return {int(max(min(head.offset - p.left, FAR), -FAR)), int(max(min(head.offset + p.right + 1, FAR), -FAR)), head.keys};
  }
  __device__ __forceinline__ Keys of(int i) const { return {max(min(i + first, keys), 0), max(min(i + end, keys), 0)}; }
};

// Whether the block mask has block (row, key) of blocks; true where there is none.
template <class P, class H> __device__ __forceinline__ bool block_counts(const P& p, const H& head, int row, int key) {
  return p.block_mask[head.batch * p.block_walk[0] + head.head * p.block_walk[1] + row * p.block_walk[2] + key * p.block_walk[3]];
}
// Whether any block counts that rows [row, row_end) and keys [key, key_end) have a part in.
template <class P, class H>
__device__ __forceinline__ bool any_counts(const P& p, const H& head, int row, int row_end, int key, int key_end) {
  if (!p.block_mask) return true;
  for (int i = row / int(p.block_rows); i <= (row_end - 1) / int(p.block_rows); ++i)
    for (int j = key / int(p.block_keys); j <= (key_end - 1) / int(p.block_keys); ++j)
      if (block_counts(p, head, i, j)) return true;
  return false;
}

// The same of the block that row i and key j are in; beyond the last row or key, of the last one.
template <class P, class H> __device__ __forceinline__ bool in_a_block(const P& p, const H& head, int i, int j) {
  return block_counts(p, head, min(i, head.rows - 1) / int(p.block_rows), min(j, head.keys - 1) / int(p.block_keys));
}

// A score with an entry of a mask of type M on it, which is read: added, or (bool) it says whether the score counts.
template <class M, class C> __device__ __forceinline__ C masked_by(C score, const void* mask, i64 at) {
  const M entry = static_cast<const M*>(mask)[at];
  if constexpr (Same<M, u8>::value) return entry ? score : rows::minus_infinity<C>();
  else return score + convert<C>(entry);
}
template <class T, class C, class P, class H> __device__ __forceinline__ C masked(const P& p, const H& head, C score, int i, int j) {
  const i64 at = head.batch * p.mask_walk[0] + head.head * p.mask_walk[1] + i * p.mask_walk[2] + j * p.mask_walk[3];
  if (p.mask_kind == BOOL) return masked_by<u8>(score, p.mask, at);
  if (p.mask_kind == OWN) return masked_by<T>(score, p.mask, at);
  return masked_by<float>(score, p.mask, at);
}

// A score of row i and key j, already scaled, as it enters the softmax, -inf where it does not count: softcap, ALiBi, mask. Both
// masks are read only where row and key exist.
template <class T, class C, class P, class H>
__device__ __forceinline__ C changed(const P& p, const H& head, C score, int i, int j, C slope) {
  if (p.capped) score = C(p.softcap) * math::tanh<24>(score / C(p.softcap));
  if (p.slopes) score += slope * C(j - (i + head.offset));
  if (p.mask_kind) score = masked<T, C>(p, head, score, i, j);
  if (p.block_mask && !block_counts(p, head, i / int(p.block_rows), j / int(p.block_keys))) score = rows::minus_infinity<C>();
  return score;
}

template <class P, class H> __device__ __forceinline__ float slope_of(const P& p, const H& head) {
  return p.slopes ? p.slopes[head.batch * p.slope_walk[0] + head.head * p.slope_walk[1]] : 0.0f;
}

// The learned logit of a head that is in every row's denominator, -inf where there is none.
template <class T, class C, class P, class H> __device__ __forceinline__ C sink_of(const P& p, const H& head) {
  const i64 at = head.head * p.sink_walk[0];
  if (p.sinks_kind == OWN) return convert<C>(static_cast<const T*>(p.sinks)[at]);
  return p.sinks_kind ? C(static_cast<const float*>(p.sinks)[at]) : rows::minus_infinity<C>();
}

}  // namespace attention
