// out = exp(t - m) / s along rows, t = scale x + mask, m = max(t), s = sum(exp(t - m)); 0 where every t is -inf.
//
// masked_softmax:  MASKING: NONE, VISIBLE (bool, false: t = -inf) or ADDED. CAUSAL: t = -inf behind column query +
//                  offset; the query is the row's index along the axis before the last one (operand QUERY).
// Threads:   LANES threads per row (rows/row.cuh). Resident: x and mask are read once, t stays in registers.
//            Streamed: online softmax (max and sum in one pass), then a second pass for the result.
// Special:   a row with +inf or NaN among its visible scores is NaN.
// Shared:    one value per warp.   Bound: DRAM.
#include "rows/hold.cuh"
#include "rows/place.cuh"
#include "rows/shifted_sum.cuh"

enum Masking { NONE, VISIBLE, ADDED };
enum Operand { OUT, X, MASK, QUERY, OPERANDS };

template <class T, class M, class C, int DIGITS, int MASKING, bool CAUSAL, int V, int ITEMS, int LANES, int THREADS,
    bool RESIDENT, int R, int RC, class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
    masked_softmax(I count, I length, C scale, i64 offset, rows::Places<I, R, RC, OPERANDS> places, T* out, const T* x,
        const M* mask) {
  using Sum = rows::ShiftedSum<C, DIGITS>;
  struct Loaded { rows::Pack<T, V> x; rows::Pack<M, V> mask; C t[V]; };
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  const i64 last = at[QUERY] + offset;  // visible column
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    Loaded loaded;
    loaded.x.load(places.template at<X>(x, at, column));
    if constexpr (MASKING != NONE) loaded.mask.load(places.template at<MASK>(mask, at, column));
    return loaded;
  };
  const auto score = [&](Loaded& loaded, I column) {
    loaded.x.widen(loaded.t);
    C added[V];
    if constexpr (MASKING != NONE) loaded.mask.widen(added);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      C t = loaded.t[v] * scale;
      if constexpr (MASKING == ADDED) t += added[v];
      if (MASKING == VISIBLE && added[v] == C(0)) t = rows::minus_infinity<C>();
      if (CAUSAL && i64(column + v) > last) t = rows::minus_infinity<C>();
      loaded.t[v] = t;
    }
  };
  line.load(load);
  if constexpr (MASKING != NONE) rows::hold(line, &Loaded::x, &Loaded::mask);
  else rows::hold(line, &Loaded::x);

  // 1. m and s
  Sum sum = Sum::none();
  if constexpr (RESIDENT) {
    line.pass(load, [&](Loaded& loaded, I column, int) {
      score(loaded, column);
#pragma unroll
      for (int v = 0; v < V; ++v) sum.most = math::maximum(sum.most, loaded.t[v]);
    });
    sum.most = rows::group_reduce<LANES, 0>(sum.most, [](C a, C b) { return math::maximum(a, b); });
    const C by = Sum::shift(sum.most);
    line.pass(load, [&](Loaded& loaded, I, int) {
#pragma unroll
      for (int v = 0; v < V; ++v) sum.sum += loaded.t[v] = math::exp<DIGITS>(loaded.t[v] - by);
    });
    sum.sum = rows::sum<LANES, 1>(sum.sum);
  } else {
    line.pass(load, [&](Loaded& loaded, I column, int) {
      score(loaded, column);
      sum.add(loaded.t);
    });
    sum = Sum::template gather<LANES>(sum);
  }

  // 2. result
  const C by = Sum::shift(sum.most), inverse = sum.sum == C(0) ? C(0) : C(1) / sum.sum;
  line.pass(load, [&](Loaded& loaded, I column, int) {
    if constexpr (!RESIDENT) score(loaded, column);
    C y[V];
#pragma unroll
    for (int v = 0; v < V; ++v) y[v] = (RESIDENT ? loaded.t[v] : math::exp<DIGITS>(loaded.t[v] - by)) * inverse;
    rows::put(places.template at<OUT>(out, at, column), y);
  });
}
