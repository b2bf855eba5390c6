// out[s, :] = reduction of x[i, :] over offsets[s] <= i < offsets[s + 1], or of weights[i] * x[listed[i], :].
//
// check_offsets: sets `refused` if an offset exceeds [0, rows] or the next one is smaller: all segments are empty then.
// reduce_pieces: LANES * LINES threads per piece of PIECE rows (segment/bounds.cuh): LANES across columns, V adjacent
//                ones each; LINES rows in turns, joined by shuffles. A segment of one piece is finished here, parts of
//                longer ones go to scratch.
// join_pieces:   LANES threads per share of adjacent parts join these in order, then shares are joined by halves. The
//                first `scans` CTAs: a warp per SCANNED segments joins those of up to 128 / LANES parts, one by one.
//                Then a CTA per as many rows, for the longer segment that begins there, if one does.
// Order:         fixed by the segment's length, LANES and LINES (deterministic); computed in C, rounded once.
// Shared:        join_pieces: a value per warp and column.   Bound: DRAM, the rows, and 1 / PIECE of them in C.
#include "segment/bounds.cuh"
#include "segment/reductions.cuh"
#include "core/index.cuh"

using segment::Bounds;
using segment::FirstUnit;
using segment::PIECE;

constexpr u32 REDUCE_THREADS = 256, JOIN_THREADS = 512, SCANNED = 16;

template <class Index>
__global__ void __launch_bounds__(REDUCE_THREADS)
check_offsets(i32* refused, const Index* offsets, i64 rows, u32 segments) {
  const u32 s = blockIdx.x * REDUCE_THREADS + threadIdx.x;
  if (s > segments) return;
  const i64 at = i64(offsets[s]), next = s < segments ? i64(offsets[s + 1]) : at;
  if (at < 0 || at > rows || next < at) *refused = 1;
}

// `y` and `grad`: rows of the result and of its gradient, y in C order; `second`: another array of entries, strided as
// `grad`. Reductions that say so read them. `sizes`: how many entries of each segment name a row; null if all do.
template <class Op, class T, class C, class Index, int V, int LANES, int LINES, int RC, int UNROLL, class Entries>
__global__ void __launch_bounds__(REDUCE_THREADS)
reduce_pieces(typename Op::template Out<T, C>* out, C* parts, const u8* x, const Index* offsets, const i32* refused,
              const T* y, const u8* grad, const u32* listed, const typename Entries::Weight* weights, const u32* sizes,
              const u8* second, u32 segments, u32 units, u32 length, segment::Rows<RC> rows) {
  constexpr u32 GROUP = LANES * LINES;
  const Bounds<Index> bounds(offsets, refused);
  const Entries entries{listed, weights};
  const FirstUnit<Index> first_unit{bounds};
  // 1. the unit's segment: at most as many segments beyond that of the warp's first unit as units
  const u32 within = threadIdx.x % 32 / GROUP, unit = blockIdx.x * (REDUCE_THREADS / GROUP) + threadIdx.x / GROUP;
  u32 s = segment::warp_search(segments, unit - within, first_unit);
  s = segment::search(s, s + within + 1 < segments ? s + within + 1 : segments, unit, first_unit);
  const u32 begin = bounds(s), end = bounds(s + 1), base = first_unit(s), piece = unit - base;
  const bool live = unit < units && base <= unit && (piece == 0 || piece * PIECE < end - begin);
  const u32 from = begin + piece * PIECE, to = !live ? from : end - from < PIECE ? end : from + PIECE;
  const u32 lane = threadIdx.x % LANES, line = threadIdx.x / LANES % LINES;
  for (u32 tile = blockIdx.y * LANES * V; tile < length; tile += gridDim.y * LANES * V) {
    const u32 column = tile + lane * V;
    const bool inside = column < length;
    C value[V], result[V] = {};
#pragma unroll
    for (int v = 0; v < V; ++v) value[v] = Op::template identity<C>();
    i64 at[2];
    rows.template column<T>(column, at);
    if (Op::READS_RESULT && inside && live) rows::fetch<T>(result, y + u64(s) * length + column);
    // 2. the line's rows, in order
    for (u32 i = from + line; inside && i < to; i += LINES * UNROLL) {
      rows::Pack<T, V> row[UNROLL], other[UNROLL];
      u32 entry[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) entry[u] = i + u * LINES < to ? entries.row(i + u * LINES) : segment::NONE;
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        if (entry[u] == segment::NONE) continue;
        row[u].load(reinterpret_cast<const T*>(x + at[0] + i64(entry[u]) * rows.step[0]));
        if (Op::READS_SECOND)
          other[u].load(reinterpret_cast<const T*>(second + at[1] + i64(entry[u]) * rows.step[1]));
      }
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        if (entry[u] == segment::NONE) continue;
        C term[V], also[V] = {};
        row[u].widen(term);
        if (Op::READS_SECOND) other[u].widen(also);
        const C weight = entries.template weight<C>(i + u * LINES);
#pragma unroll
        for (int v = 0; v < V; ++v)
          value[v] = Op::join(value[v], weight * Op::term(term[v], result[v], also[v]));
      }
    }
    // 3. join lines
#pragma unroll
    for (u32 step = LANES; step < GROUP; step *= 2)
#pragma unroll
      for (int v = 0; v < V; ++v) value[v] = Op::join(value[v], __shfl_down_sync(~0u, value[v], step, GROUP));
    if (!live || !inside || line != 0) continue;
    const u32 part = segment::part_of(begin, piece, units - segments + 1);
    if (end - begin > PIECE) rows::put(parts + u64(part) * length + column, value);
    else segment::finish<Op, T>(out + u64(s) * length + column, value, sizes ? sizes[s] : end - begin,
                             grad + at[1] + i64(s) * rows.step[1]);
  }
}

// Segment s of rows [begin, end), of more than one piece, by THREADS threads: a warp, or all of a CTA.
template <class Op, int THREADS, class T, class C, int V, int LANES, class Out, int RC>
__device__ __forceinline__ void join_parts(Out* out, const C* parts, const u8* grad, const u32* sizes, u32 s, u32 begin,
                                           u32 end, u32 count, u32 length, const segment::Rows<RC>& rows) {
  constexpr u32 SHARES = THREADS / LANES, WARPS = THREADS / 32;
  __shared__ Vec<C, V> part[THREADS > 32 ? WARPS * LANES : 1];
  const u32 thread = threadIdx.x % THREADS, lane = thread % LANES, own = thread / LANES, warp = thread / 32;
  const u32 pieces = (end - begin + PIECE - 1) / PIECE, share = (pieces + SHARES - 1) / SHARES;
  const u32 from = own * share, to = from + share < pieces ? from + share : pieces;
  for (u32 tile = blockIdx.y * LANES * V; tile < length; tile += gridDim.y * LANES * V) {
    const u32 column = tile + lane * V;
    C value[V], x[V];
#pragma unroll
    for (int v = 0; v < V; ++v) value[v] = Op::template identity<C>();
    // 1. the share, in order
    if (column < length)
#pragma unroll 4
      for (u32 p = from; p < to; ++p) {
        rows::fetch<C>(x, parts + u64(segment::part_of(begin, p, count / PIECE + 1)) * length + column);
#pragma unroll
        for (int v = 0; v < V; ++v) value[v] = Op::join(value[v], x[v]);
      }
    // 2. join shares: of a warp, then of warps
#pragma unroll
    for (u32 step = LANES; step < 32; step *= 2)
#pragma unroll
      for (int v = 0; v < V; ++v) value[v] = Op::join(value[v], __shfl_down_sync(~0u, value[v], step));
    if constexpr (THREADS > 32) {
      const bool first = thread % 32 < LANES;
      for (u32 half = WARPS / 2; half > 0; half /= 2) {
        if (first)
#pragma unroll
          for (int v = 0; v < V; ++v) part[warp * LANES + lane].at[v] = value[v];
        __syncthreads();
        if (first && warp < half)
#pragma unroll
          for (int v = 0; v < V; ++v) value[v] = Op::join(value[v], part[(warp + half) * LANES + lane].at[v]);
        __syncthreads();
      }
    }
    if (own == 0 && column < length) {
      i64 at[2];
      rows.template column<T>(column, at);
      segment::finish<Op, T>(out + u64(s) * length + column, value, sizes ? sizes[s] : end - begin,
                             grad + at[1] + i64(s) * rows.step[1]);
    }
  }
}

template <class Op, class T, class C, class Index, int V, int LANES, int RC>
__global__ void __launch_bounds__(JOIN_THREADS)
join_pieces(typename Op::template Out<T, C>* out, const C* parts, const Index* offsets, const i32* refused,
            const u8* grad, const u32* sizes, u32 segments, u32 count, u32 length, segment::Rows<RC> rows, u32 scans) {
  constexpr u32 LONG = 128 / LANES * PIECE;  // rows beyond which a segment has a CTA
  const Bounds<Index> bounds(offsets, refused);
  if (blockIdx.x < scans) {
    // 1. a warp's segments
    const u32 lane = threadIdx.x % 32, first = (blockIdx.x * (JOIN_THREADS / 32) + threadIdx.x / 32) * SCANNED;
    const bool own = lane < SCANNED && first + lane < segments;
    const u32 begin = own ? bounds(first + lane) : 0, end = own ? bounds(first + lane + 1) : 0;
    for (u32 left = __ballot_sync(~0u, end - begin > PIECE && end - begin <= LONG); left; left &= left - 1) {
      const u32 at = __ffs(left) - 1;
      join_parts<Op, 32, T, C, V, LANES>(out, parts, grad, sizes, first + at, __shfl_sync(~0u, begin, at),
                                         __shfl_sync(~0u, end, at), count, length, rows);
    }
  } else {
    // 2. the last segment that begins in these rows
    const u32 first = (blockIdx.x - scans) * LONG, last = count - first < LONG ? count - 1 : first + LONG - 1;
    const u32 s = segment::warp_search(segments, last, bounds), begin = bounds(s), end = bounds(s + 1);
    if (begin < first || begin > last || end - begin <= LONG) return;
    join_parts<Op, JOIN_THREADS, T, C, V, LANES>(out, parts, grad, sizes, s, begin, end, count, length, rows);
  }
}
