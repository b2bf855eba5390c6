// out[i, :] = f(grad[s, :] or grad[i, :], x[i, :], y[s, :], stats[s, :]), s the segment of row i; 0 for a row of none.
//
// f:       the gradient of a reduction: of a sum grad, of a mean grad / rows, of an extremum, whose grad was divided by
//          its ties, grad where x is one of them; a softmax by the maximum y and the sum `stats`; its gradient.
// Mapping: LANES threads per row, across columns, V adjacent ones each.
// Shared:  none.   Bound: DRAM, out, and what f reads of each row.
#include "segment/bounds.cuh"
#include "segment/reductions.cuh"
#include "core/index.cuh"

constexpr u32 SPREAD_THREADS = 256;

template <class Op, class T, class C, class Index, int V, int LANES, int RC>
__global__ void __launch_bounds__(SPREAD_THREADS)
spread_rows(T* out, const u8* x, const u8* grad, const T* y, const C* stats, const Index* offsets, const i32* refused,
            u32 segments, u32 count, u32 length, segment::Rows<RC> rows) {
  const segment::Bounds<Index> bounds(offsets, refused);
  // 1. the row's segment
  const u32 row = blockIdx.x * (SPREAD_THREADS / LANES) + threadIdx.x / LANES;
  const u32 s = segment::segment_of<LANES>(segments, row, bounds);
  if (row >= count) return;
  const u32 begin = segments ? bounds(s) : 0, end = segments ? bounds(s + 1) : 0;
  const bool found = begin <= row && row < end;
  // 2. its part
  for (u32 column = (blockIdx.y * LANES + threadIdx.x % LANES) * V; column < length; column += gridDim.y * LANES * V) {
    i64 at[2];
    rows.template column<T>(column, at);
    C part[V] = {}, element[V] = {}, result[V] = {}, stat[V] = {};
    if (found) {
      const u64 own = u64(s) * length + column;
      if (Op::SPREADS != segment::NOTHING) {
        const u32 from = Op::SPREADS == segment::ROWS ? row : s;
        rows::fetch<T>(part, reinterpret_cast<const T*>(grad + at[1] + i64(from) * rows.step[1]));
      }
      if (Op::READS_ELEMENT) rows::fetch<T>(element, reinterpret_cast<const T*>(x + at[0] + i64(row) * rows.step[0]));
      if (Op::READS_RESULT) rows::fetch<T>(result, y + own);
      if (Op::READS_STATS) rows::fetch<C>(stat, stats + own);
#pragma unroll
      for (int v = 0; v < V; ++v) part[v] = Op::spread(part[v], end - begin, element[v], result[v], stat[v]);
    }
    rows::put(out + u64(row) * length + column, part);
  }
}
