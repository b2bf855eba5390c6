// Keys and values of sequences that grow: one behind the other, or in pages that a table names; and how their keys are shared out.
// Mirrors baracuda_py/ops/attention/_decode.py.
#pragma once
#include "attention/mask.cuh"

namespace attention {

struct Cache {
  const i32* lengths;  // keys in use of each sequence; null: all that there is room for
  const i32* table;    // pages: [sequence, page of it]
  i32* status;
  i64 table_step;
  u32 capacity, page_keys, pages, sequences;  // keys that there is room for in a sequence; a page's; of all of them

  __device__ __forceinline__ int length(u32 sequence) const {
    return lengths ? min(max(lengths[sequence], 0), int(capacity)) : int(capacity);
  }
  // Whether the page of a key is there.
  __device__ __forceinline__ bool has(u32 sequence, int key) const {
    return key < int(capacity) && u32(table[sequence * table_step + key / int(page_keys)]) < pages;
  }
};

// One head of one sequence as mask.cuh wants it: `offset` is the key that token 0 stands at.
struct Standing {
  int keys;
  i64 offset;
  u32 batch, head;
};

// What 8-bit keys and values are multiplied with: a number, and f32 a head or (`each`) a key and head, which lie as keys do.
struct Scales {
  const float *k, *v;
  Walk k_walk, v_walk;
  double k_number, v_number;
  u32 k_each, v_each;

  __device__ __forceinline__ float of_keys(u32 kv_head) const { return float(k_number) * (k && !k_each ? k[kv_head * k_walk.head] : 1.0f); }
  __device__ __forceinline__ float of_values(u32 kv_head) const { return float(v_number) * (v && !v_each ? v[kv_head * v_walk.head] : 1.0f); }
};

// A split's part of a sequence's blocks of 16 keys, some of which are taken at a time: those from `first` on, then `step` further,
// and so on before `end`.
struct Turns { int first, end, step; };

// Every sequence's keys are shared out among `count` CTAs: `fixed` keys each from key 0 on, or, where that is 0, evenly. Their
// results, (out, lse) in f32, lie in [batch, head, token, split] order; null: there is only one.
struct Splits {
  float *out, *lse;
  u32 count, fixed, least, ahead;  // keys that an even run has at least; blocks a warp that are asked for before lengths are known

  // Split `at` of keys [begin, end) as one run: where it begins and ends, in blocks of 16 keys, `step` of which are taken at a time.
  __device__ __forceinline__ int2 range(u32 at, int begin, int end, int step) const {
    const int first = fixed ? 0 : begin / 16, last = (end + 15) / 16;
    int each = fixed ? int(fixed) / 16 : max(int(least) / 16, (last - first + int(count) - 1) / int(count));
    each = (each + step - 1) / step * step;
    const i64 from = first + i64(at) * each;
    return {int(min(from, i64(last))), int(min(from + each, i64(last)))};
  }
  // The same where even splits take turns: where one begins does not depend on how many keys there are.
  __device__ __forceinline__ Turns turns(u32 at, int begin, int end, int step) const {
    if (!fixed) return {begin / 16 + int(at) * step, (end + 15) / 16, int(count) * step};
    const int2 run = range(at, begin, end, step);
    return {run.x, run.y, step};
  }
};

}  // namespace attention
