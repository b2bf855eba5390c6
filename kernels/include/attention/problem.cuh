// The attention problem, passed by value, and the view of one head of one sequence. Mirrors
// baracuda_py/ops/attention/_problem/attended.py.
#pragma once
#include "core/dtype.cuh"

namespace attention {

struct OperandStrides { i64 batch, head, row; };  // strides in elements; columns are contiguous

enum Kind : u32 { ABSENT, BOOL, OWN, F32 };  // type of mask or sinks: none, u8, type of q, f32

// C: compute type.
template <class T, class Out, class C> struct Problem {
  Out* out;
  C* lse;
  const T *q, *k, *v;
  const void* mask;
  const u8* block_mask;
  const float* slopes;
  const void* sinks;
  const i32 *starts_q, *starts_k;  // cu_seqlens: starts of the sequences, and the end of the last one
  OperandStrides out_strides, q_strides, k_strides, v_strides, lse_strides;
  i64 mask_strides[4], block_strides[4], slope_strides[2], sink_strides[1];
  i64 left, right, offset;
  double scale, softcap;
  u32 heads, group, rows, keys;  // rows and keys of all sequences together where they are ragged
  u32 d, d_v, block_rows, block_keys;
  u32 mask_kind, sinks_kind, capped, offset_given;
};

// A sequence's rows among `total` rows; clamped to them, whatever `starts` holds.
struct Extent {
  int first, count;
  __device__ __forceinline__ Extent(const i32* starts, u32 sequence, u32 total) {
    first = 0;
    count = int(total);
    if (starts) {
      first = min(max(starts[sequence], 0), int(total));
      count = max(min(starts[sequence + 1], int(total)) - first, 0);
    }
  }
};

// Pointers and extents of one query head of one sequence.
template <class T, class Out, class C> struct Head {
  const T *q, *k, *v;
  Out* out;
  C* lse;
  int rows, keys;
  i64 offset;  // the key index at which query 0 stands
  u32 batch, head;

  __device__ __forceinline__ Head(const Problem<T, Out, C>& p, u32 batch, u32 head) : batch(batch), head(head) {
    const Extent queries(p.starts_q, batch, p.rows), keys_(p.starts_k, batch, p.keys);
    const u32 kv_head = head / p.group;
    rows = queries.count;
    keys = keys_.count;
    offset = p.offset_given ? p.offset : i64(keys) - rows;
    q = p.q + batch * p.q_strides.batch + head * p.q_strides.head + queries.first * p.q_strides.row;
    k = p.k + batch * p.k_strides.batch + kv_head * p.k_strides.head + keys_.first * p.k_strides.row;
    v = p.v + batch * p.v_strides.batch + kv_head * p.v_strides.head + keys_.first * p.v_strides.row;
    out = p.out + batch * p.out_strides.batch + head * p.out_strides.head + queries.first * p.out_strides.row;
    lse = p.lse ? p.lse + batch * p.lse_strides.batch + head * p.lse_strides.head + queries.first * p.lse_strides.row
                : nullptr;
  }
};

// (sequence, head) of a flat index, heads innermost.
template <class P> struct Place {
  u32 batch, head;
  __device__ __forceinline__ Place(const P& p, u32 flat) : batch(flat / p.heads), head(flat % p.heads) {}
};

// The ragged sequence of a tile of BM queries. Tiles of sequence b begin at first / BM + b, so that no two sequences
// share a tile, and each has at most one tile too many. Warp-wide 32-ary search: all lanes take part.
template <int BM, class P> __device__ __forceinline__ u32 first_tile(const P& p, u32 sequence) {
  return u32(min(max(p.starts_q[sequence], 0), int(p.rows))) / BM + sequence;
}
template <int BM, class P> __device__ __forceinline__ u32 sequence_of(const P& p, u32 sequences, u32 tile) {
  const u32 lane = threadIdx.x % 32;
  u32 low = 0, count = sequences;
  while (count > 1) {
    const u32 step = (count + 31) / 32, at = lane * step;
    const bool begins = at < count && first_tile<BM>(p, low + at) <= tile;
    const u32 passed = max(__popc(__ballot_sync(~0u, begins)), 1) * step - step;
    low += passed;
    count = min(step, count - passed);
  }
  return low;
}

// Tile scheduler: which BM queries of which head, tiles from the last to the first, `section` heads interleaved.
// `heads`: those of all sequences. `tiles`: those of one sequence, or, of ragged sequences, of all of them.
template <int BM, class P> struct TilePlace {
  u32 batch, head;
  int tile;
  __device__ __forceinline__ TilePlace(const P& p, u32 cta, u32 tiles, u32 section, u32 heads) {
    const u32 side_by_side = p.starts_q ? p.heads : heads;
    const u32 first = cta / (section * tiles) * section, within = cta - first * tiles,
              width = min(section, side_by_side - first);
    const Place<P> place(p, first + within % width);
    batch = place.batch;
    head = place.head;
    tile = int(tiles - 1 - within / width);
    if (p.starts_q) {
      batch = sequence_of<BM>(p, heads / p.heads, tile);
      tile -= int(first_tile<BM>(p, batch));
    }
  }
};

}  // namespace attention
