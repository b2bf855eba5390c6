// out[i, ..., j] = x[f(i), ..., g(j)], or a constant, for any element type, by one rule per axis (rearrange/rules.cuh).
// Elements whose distance j - i from the diagonal of the last two axes is outside [low, high] are the constant, too.
//
// Threads:  UNROLL chunks of BYTES bytes of the flat result; all loads precede the stores.
// Chunks:   in one row of the result: of x's elements in order or in reverse, loaded as two aligned words and shifted,
//           or of the constant. All others, and those whose words reach beyond x, go element by element.
// Copies:   each chunk is stored `copies` times, `copy_stride` bytes from one to the next.
// Shared:   none.   Bound: DRAM.
#include "rearrange/chunk.cuh"
#include "rearrange/rules.cuh"

constexpr int THREADS = 256;

// Distances from the diagonal that are kept; the memory of x without gaps, in bytes from x (empty: rows have gaps).
struct Limits { i64 low, high, begin, end; };

template <class I, int R, int WIDTH, int BYTES, int UNROLL>
__global__ void __launch_bounds__(THREADS) gather_axes(
    u8* out, const u8* x, I count, Limits limits, uint4 constant, I copies, i64 copy_stride, Rules<I, R> rules) {
  using T = typename Word<WIDTH>::type;
  constexpr int V = BYTES / WIDTH;
  const Rule<I>& inner = rules.axis[R - 1];
  const T absent = *reinterpret_cast<const T*>(&constant);

  // The element of flat index i.
  const auto element = [&](I i) {
    const I rest = inner.extent.divide(i), column = i - rest * inner.extent.divisor;
    i64 at = 0;
    I row, t = inner.place(column);
    const bool there = rules.find_row(rest, at, row) & inner.find(t);
    const i64 distance = i64(column) - i64(row);
    if (!there || distance < limits.low || distance > limits.high) return absent;
    return *reinterpret_cast<const T*>(x + at + i64(t) * inner.stride);
  };
  // The chunk that begins with element i; false where it must go element by element.
  const auto chunk = [&](I i, uint4& value) {
    const I rest = inner.extent.divide(i), column = i - rest * inner.extent.divisor;
    if (column + V > inner.extent.divisor) return false;
    i64 at = 0;
    I row, t = inner.place(column), end = inner.place(column + V - 1);
    const bool there = rules.find_row(rest, at, row);
    const i64 distance = i64(column) - i64(row);
    const bool run = end - t == V - 1;
    value = constant;
    if (!there || distance + V - 1 < limits.low || distance > limits.high) return true;
    if (run && t >= inner.source && !inner.mirror) return true;
    if (distance < limits.low || distance + V - 1 > limits.high) return false;
    if (!run || inner.repeat.divisor != 1 || inner.stride != WIDTH) return false;
    if (t < inner.source && end >= inner.source) return false;
    const bool reverse = t >= inner.source;
    const u64 base = u64(x) + at, from = base + u64(reverse ? inner.mirror - end : t) * WIDTH;
    const bool dense = limits.end > limits.begin;
    const u64 first = dense ? u64(x) + limits.begin : base;
    const u64 last = dense ? u64(x) + limits.end : base + u64(inner.source) * WIDTH;
    if (!load_chunk(value, from, first, last)) return false;
    if (reverse) value = reversed<WIDTH>(value);
    return true;
  };

  const I base = (I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x) * V;
  typename Word<BYTES>::type value[UNROLL];
  bool whole[UNROLL];
  // 1. Load chunks, copy the others element by element
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const I first = base + u * (THREADS * V);
    whole[u] = false;
    if (first >= count) continue;
    if constexpr (V == 1) {
      value[u] = element(first);
      whole[u] = true;
    } else if (!(whole[u] = chunk(first, value[u]))) {
#pragma unroll 1
      for (I i = first; i < first + V && i < count; ++i) {
        const T one = element(i);
        u8* to = out + u64(i) * WIDTH;
#pragma unroll 1
        for (I copy = 0; copy < copies; ++copy, to += copy_stride) *reinterpret_cast<T*>(to) = one;
      }
    }
  }
  // 2. Store the chunks
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    u8* to = out + u64(base + u * (THREADS * V)) * WIDTH;
    if (!whole[u]) continue;
#pragma unroll 1
    for (I copy = 0; copy < copies; ++copy, to += copy_stride)
      *reinterpret_cast<typename Word<BYTES>::type*>(to) = value[u];
  }
}
