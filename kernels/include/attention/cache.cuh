// The KV cache, contiguous or paged, and how its keys are split over CTAs (split-KV). Mirrors
// baracuda_py/ops/attention/_decode/split_keys.py.
#pragma once
#include "attention/mask.cuh"

namespace attention {

struct Cache {
  const i32* lengths;  // keys in use per sequence; null: capacity
  const i32* table;    // page table: [sequence, page index]
  i32* status;
  i64 table_step;
  u32 capacity, page_keys, pages, sequences;  // keys per sequence at most; keys per page; pages in the pool; sequences

  __device__ __forceinline__ int length(u32 sequence) const {
    return lengths ? min(max(lengths[sequence], 0), int(capacity)) : int(capacity);
  }
  // Whether the page of a key exists.
  __device__ __forceinline__ bool has(u32 sequence, int key) const {
    return key < int(capacity) && u32(table[sequence * table_step + key / int(page_keys)]) < pages;
  }
};

// One head of one sequence, with the fields that mask.cuh reads; `offset` is the key index at which token 0 stands.
struct Standing {
  int keys;
  i64 offset;
  u32 batch, head;
};

// Scales of 8-bit keys and values: a constant times an f32 per head or (`*_each`) per key and head.
struct Scales {
  const float *k, *v;
  OperandStrides k_strides, v_strides;
  double k_number, v_number;
  u32 k_each, v_each;

  __device__ __forceinline__ float of_keys(u32 kv_head) const {
    return float(k_number) * (k && !k_each ? k[kv_head * k_strides.head] : 1.0f);
  }
  __device__ __forceinline__ float of_values(u32 kv_head) const {
    return float(v_number) * (v && !v_each ? v[kv_head * v_strides.head] : 1.0f);
  }
};

// The k_blocks of 16 keys of one split: first, first + step, ... below end.
struct BlockRange { int first, end, step; };

// Every sequence's keys are split over `count` CTAs: `fixed` keys each from key 0 on, or evenly where `fixed` is 0.
// Partial results (out, lse) are f32, in [batch, head, token, split] order; null: a single split.
struct Splits {
  float *out, *lse;
  // least: keys per even split at least; ahead: k_blocks per warp prefetched before lengths are known
  u32 count, fixed, least, ahead;

  // Split `at` of keys [begin, end) as one contiguous range of k_blocks of 16 keys, in multiples of `step` k_blocks.
  __device__ __forceinline__ int2 range(u32 at, int begin, int end, int step) const {
    const int first = fixed ? 0 : begin / 16, last = (end + 15) / 16;
    int each = fixed ? int(fixed) / 16 : max(int(least) / 16, (last - first + int(count) - 1) / int(count));
    each = (each + step - 1) / step * step;
    const i64 from = first + i64(at) * each;
    return {int(min(from, i64(last))), int(min(from + each, i64(last)))};
  }
  // The same, but even splits are interleaved: the first k_block of a split does not depend on the number of keys.
  __device__ __forceinline__ BlockRange block_range(u32 at, int begin, int end, int step) const {
    if (!fixed) return {begin / 16 + int(at) * step, (end + 15) / 16, int(count) * step};
    const int2 run = range(at, begin, end, step);
    return {run.x, run.y, step};
  }
};

}  // namespace attention
