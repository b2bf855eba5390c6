// grad_x[i, :] = grad[s, :] * weight for the segment s of row i, 0 for a row of none: the gradient of a reduction.
//
// Weight:  1 (sum), 1 / rows (mean), or of an extremum, whose grad was divided by its ties: whether x is one of them.
// Mapping: LANES threads per row, across columns, V adjacent ones each.
// Shared:  none.   Bound: DRAM, grad_x, and of an extremum x.
#include "segment/bounds.cuh"
#include "segment/reductions.cuh"
#include "core/index.cuh"

constexpr u32 SPREAD_THREADS = 256;

template <class Op, class T, class C, class Index, int V, int LANES, int RC>
__global__ void __launch_bounds__(SPREAD_THREADS)
spread_rows(T* grad_x, const u8* x, const u8* grad, const T* y, const Index* offsets, const i32* refused, u32 segments,
            u32 count, u32 length, segment::Rows<RC> rows) {
  const segment::Bounds<Index> bounds(offsets, refused);
  // 1. the row's segment
  const u32 row = blockIdx.x * (SPREAD_THREADS / LANES) + threadIdx.x / LANES;
  const u32 s = segment::segment_of<LANES>(segments, row, bounds);
  if (row >= count) return;
  const u32 begin = segments ? bounds(s) : 0, end = segments ? bounds(s + 1) : 0;
  const bool found = begin <= row && row < end;
  // 2. its gradient
  for (u32 column = (blockIdx.y * LANES + threadIdx.x % LANES) * V; column < length; column += gridDim.y * LANES * V) {
    i64 at[2];
    rows.template column<T>(column, at);
    C part[V] = {}, element[V] = {}, result[V] = {};
    if (found) {
      rows::fetch<T>(part, reinterpret_cast<const T*>(grad + at[1] + i64(s) * rows.step[1]));
      if (Op::READS_RESULT) {
        rows::fetch<T>(element, reinterpret_cast<const T*>(x + at[0] + i64(row) * rows.step[0]));
        rows::fetch<T>(result, y + u64(s) * length + column);
      }
#pragma unroll
      for (int v = 0; v < V; ++v) part[v] = Op::spread(part[v], end - begin, element[v], result[v]);
    }
    rows::put(grad_x + u64(row) * length + column, part);
  }
}
