// out = softmax(change(scale q k^T)) v for a few tokens per sequence over its KV cache (split-KV), by FMA; lse.
//
// Tiling:    one CTA per (token, query head, split of the keys, 32 COLUMNS columns of V). Any type and head dim.
// Threads:   4 warps; each takes every fourth k_block of 32 keys: one key's score per lane, then COLUMNS columns per
//            lane of all 32 values; online softmax per warp. The warps are combined once at the end.
// E:         element of the cache: T, or 8 bits.
// PAGED:     rows are found through the page table; keys of missing pages are masked. The first CTAs only check.
// Splits:    each split writes (out, lse) for merge.cu; a single split writes the result.
// Shared:    q and the warps' O: (d + 128 COLUMNS) elements of C.
// Bound:     latency of scalar loads.
#include "attention/bytes.cuh"
#include "attention/pages.cuh"
#include "math/exp.cuh"
#include "math/log.cuh"
#include "ptx/overlap.cuh"
#include "rows/group.cuh"

using namespace attention;

// One element of the cache as C.
template <class C, class E> __device__ __forceinline__ C number(E x) {
  if constexpr (Same<E, e4m3>::value || Same<E, e5m2>::value) {
    u32 pair[2];
    widen<f16, E>(u32(x.bits), pair);
    if constexpr (Same<E, e4m3>::value) pair[0] |= ((x.bits & 0x7f) + 1 >> 7) * 0x7fff;  // NaN
    return convert<C>(f16{u16(pair[0])});
  } else {
    return convert<C>(x);
  }
}

template <class T, class E, class Out, class C, int COLUMNS, bool PAGED>
__global__ void __launch_bounds__(128, 4)
    attention_decode_simt(Problem<T, Out, C> p, Cache cache, Scales scales, Splits splits, u32 most, u32 chunks) {
  constexpr int WARPS = 4, THREADS = 32 * WARPS, WIDTH = 32 * COLUMNS;
  extern __shared__ __align__(16) u8 memory[];
  __shared__ C row_max[WARPS], sums[WARPS];
  C* const query = reinterpret_cast<C*>(memory);
  C* const parts = query + p.d;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  overlap::wait();
  overlap::release();

  // 1. tile scheduler: split, token, columns, head
  u32 flat = blockIdx.x;
  if constexpr (PAGED) {
    if (flat < cache.sequences) return check<THREADS>(cache, p, flat);
    flat -= cache.sequences;
  }
  const u32 first_column = flat % chunks * WIDTH, split = flat / chunks % splits.count;
  flat /= chunks * splits.count;
  const u32 token = flat % most, head_number = flat / most % p.heads, sequence = flat / most / p.heads,
            kv_head = head_number / p.group;
  const Extent tokens(p.starts_q, sequence, p.rows);
  if (token >= u32(tokens.count)) return;
  const int length = cache.length(sequence);
  const Standing head = {length, p.offset_given ? p.offset : i64(length) - tokens.count, sequence, head_number};
  const Keys seen = keys_of(p, head, int(token));
  const int2 range = seen.first < seen.end ? splits.range(split, seen.first, seen.end, 2 * WARPS) : int2{0, 0};
  const int begin = max(range.x * 16, seen.first), end = min(range.y * 16, seen.end);
  const C slope = slope_of(p, head), scale = C(p.scale) * C(scales.of_keys(kv_head));

  // 2. q to shared memory
  const T* q = p.q + sequence * p.q_strides.batch + head_number * p.q_strides.head +
      (tokens.first + token) * p.q_strides.row;
  for (int i = threadIdx.x; i < int(p.d); i += THREADS) query[i] = convert<C>(q[i]);
  __syncthreads();

  const E *k = reinterpret_cast<const E*>(p.k) + kv_head * p.k_strides.head,
          *v = reinterpret_cast<const E*>(p.v) + kv_head * p.v_strides.head;
  C top = rows::minus_infinity<C>(), sum = 0, acc[COLUMNS] = {};
  // 3. main loop: 32 keys per warp
  for (int first = begin + warp * 32; first < end; first += THREADS) {
    // 3a. page lookup and score of the lane's key
    const int key = first + lane;
    int page = int(sequence), row = key;
    bool there = key < end;
    if constexpr (PAGED) {
      const int at = key / int(cache.page_keys);
      page = there ? cache.table[sequence * cache.table_step + at] : -1;
      row = key - at * int(cache.page_keys);
      there = u32(page) < cache.pages;
    }
    C score = 0;
    const E* from = k + page * p.k_strides.batch + row * p.k_strides.row;
#pragma unroll 8
    for (int i = 0; i < (there ? int(p.d) : 0); ++i) score += query[i] * number<C>(from[i]);
    score *= scale;
    if (there && scales.k_each)
      score *= C(
          scales.k[page * scales.k_strides.batch + kv_head * scales.k_strides.head + row * scales.k_strides.row]);
    score = there ? changed<T, C>(p, head, score, int(token), key, slope) : rows::minus_infinity<C>();

    // 3b. online softmax
    const C highest = rows::group_reduce<32>(score, [](C a, C b) { return a > b || a != a ? a : b; });
    const C next = top > highest || top != top ? top : highest, base = rows::ShiftedSum<C, 24>::shift(next);
    C weight = math::exp<24>(score - base);
    const C shrink = math::exp<24>(top - base);
    sum = sum * shrink + rows::sum<32>(weight);
    top = next;
    if (there && scales.v_each)
      weight *= C(
          scales.v[page * scales.v_strides.batch + kv_head * scales.v_strides.head + row * scales.v_strides.row]);

    // 3c. O += P V: the lane's columns of each key
    const i64 place = page * p.v_strides.batch + row * p.v_strides.row;
    const u32 found = __ballot_sync(~0u, there);
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) acc[c] *= shrink;
    for (int i = 0; i < min(32, end - first); ++i) {
      const C w = __shfl_sync(~0u, weight, i);
      const E* values = v + __shfl_sync(~0u, place, i);
      const u32 columns = found >> i & 1 ? p.d_v : 0;
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        const u32 column = first_column + c * 32 + lane;
        if (column < columns) acc[c] += w * number<C>(values[column]);
      }
    }
  }

  // 4. combine warps, the sink in split 0
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) parts[warp * WIDTH + c * 32 + lane] = acc[c];
  if (lane == 0) row_max[warp] = top, sums[warp] = sum;
  __syncthreads();
  const C sink = split == 0 ? sink_of<T, C>(p, head) : rows::minus_infinity<C>();
  C highest = sink;
  for (int w = 0; w < WARPS; ++w) highest = highest > row_max[w] || highest != highest ? highest : row_max[w];
  const C base = rows::ShiftedSum<C, 24>::shift(highest);
  C whole = math::exp<24>(sink - base), by[WARPS];
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    by[w] = math::exp<24>(row_max[w] - base);
    whole += sums[w] * by[w];
  }
  const C division = whole == C(0) ? C(0) : C(scales.of_values(kv_head)) / whole;
  const C lse = whole == C(0) ? rows::minus_infinity<C>() : highest + math::log<24>(whole);
  const i64 place = (((p.starts_q ? 0 : i64(sequence)) * p.heads + head_number) * p.rows + tokens.first + token) *
          splits.count +
      split;
  const i64 to = sequence * p.out_strides.batch + head_number * p.out_strides.head +
      (tokens.first + token) * p.out_strides.row;
  for (u32 i = threadIdx.x; i < WIDTH && first_column + i < p.d_v; i += THREADS) {
    C x = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) x += parts[w * WIDTH + i] * by[w];
    x *= division;
    if (splits.out) splits.out[place * p.d_v + first_column + i] = float(x);
    else p.out[to + first_column + i] = convert<Out>(x);
  }
  if (threadIdx.x == 0 && first_column == 0) {
    if (splits.out) splits.lse[place] = float(lse);
    else if (p.lse)
      p.lse[sequence * p.lse_strides.batch + head_number * p.lse_strides.head +
          (tokens.first + token) * p.lse_strides.row] = lse;
  }
}
