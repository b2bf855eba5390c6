// out[row, column] = column == mark(row) ? one : zero, for any element type; the mark of a row is row + k, or read.
//
// Marks:    Mark is the indices' type (negative ones and those beyond the row mark nothing), or void: row + k.
// Threads:  UNROLL chunks of BYTES bytes of the flat result.
// Shared:   none.   Bound: DRAM, the bytes written.
#include "core/index.cuh"

constexpr int THREADS = 256;
constexpr int CHUNK = 16;

template <class Mark> struct Marks {
  const Mark* marks;
  i64 k;
  __device__ __forceinline__ i64 of(u64 row) const { return i64(marks[row]); }
};
template <> struct Marks<void> {
  const void* marks;
  i64 k;
  __device__ __forceinline__ i64 of(u64 row) const { return i64(row) + k; }
};

template <class I, class Mark, int WIDTH, int BYTES, int UNROLL>
__global__ void __launch_bounds__(THREADS) mark_columns(
    u8* out, I count, typename DivisorOf<I>::type columns, const Mark* indices, i64 k, uint4 zero, uint4 one) {
  using T = typename Word<WIDTH>::type;
  constexpr int V = BYTES / WIDTH;
  const Marks<Mark> marks{indices, k};
  const T values[2] = {*reinterpret_cast<const T*>(&zero), *reinterpret_cast<const T*>(&one)};
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const I first = ((I(blockIdx.x) * UNROLL + u) * THREADS + threadIdx.x) * V;
    if (first >= count) return;
    I row = columns.divide(first);
    I column = first - row * columns.divisor;
    i64 mark = marks.of(row);
    Vec<T, V> value;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      value.at[v] = i64(column) == mark ? values[1] : values[0];
      if (v + 1 < V && ++column == columns.divisor && first + v + 1 < count) {
        column = 0;
        mark = marks.of(++row);
      }
    }
    u8* to = out + u64(first) * WIDTH;
    if (first + V <= count) {
      *reinterpret_cast<Vec<T, V>*>(to) = value;
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (first + v < count) *reinterpret_cast<T*>(to + v * WIDTH) = value.at[v];
    }
  }
}
