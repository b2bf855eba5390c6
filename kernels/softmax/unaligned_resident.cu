// out = exp(x - m) / s, or LOG: (x - m) - log(s); m = max(x), s = sum(exp(x - m)) along contiguous rows at any
// alignment. Computed in C, rounded once.
//
// Mapping:  LANES threads per row, ITEMS vectors each in registers (rows/shifted_row.cuh);
//           THREADS / LANES rows per CTA.
// Passes:   max, then sum; exponentials stay in registers. The alignment does not change bits.
// Special:  a row with +inf or NaN, or with -inf only, is NaN.
// Shared:   one value per warp.   Bound: DRAM, x and out once.
#include "math/exp.cuh"
#include "math/extrema.cuh"
#include "math/log.cuh"
#include "rows/place.cuh"
#include "rows/shifted_row.cuh"
#include "rows/shifted_sum.cuh"

enum Operand { OUT, X, OPERANDS };

template <class T, class C, int DIGITS, bool LOG, int V, int ITEMS, int LANES, int THREADS, int R, class I>
__global__ void __launch_bounds__(THREADS) softmax_unaligned_resident(
    I count, I length, rows::Places<I, R, 0, OPERANDS> places, T* out, const T* x) {
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  using Line = rows::ShiftedRow<T, V, ITEMS, LANES>;
  const Line line(live ? u32(length) : 0);
  typename Line::Words words = line.fetch(places.template at<X>(x, at, I(0)), convert<T>(rows::minus_infinity<C>()));
  typename Line::Vectors xs;
  line.shift(words, xs);

  // 1. m
  C most = rows::minus_infinity<C>();
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    C a[V];
    xs[i].widen(a);
#pragma unroll
    for (int v = 0; v < V; ++v) most = math::maximum(most, a[v]);
  }
  most = rows::group_reduce<LANES, 0>(most, [](C a, C b) { return math::maximum(a, b); });

  // 2. s
  C sum = 0, exponential[ITEMS][V];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (line.column(i) >= line.length) break;
    C a[V];
    xs[i].widen(a);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += exponential[i][v] = math::exp<DIGITS>(a[v] - most);
  }
  sum = rows::sum<LANES, 1>(sum);

  // 3. result
  const C scale = LOG ? math::log<24>(sum) : C(1) / sum;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (line.column(i) >= line.length) break;
    C y[V];
    xs[i].widen(y);
#pragma unroll
    for (int v = 0; v < V; ++v) y[v] = LOG ? (y[v] - most) - scale : exponential[i][v] * scale;
    xs[i].round(y);
  }
  line.store(xs, places.template at<OUT>(out, at, I(0)));
}
