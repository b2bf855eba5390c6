// loss = (1 - s) w[y] n[y] + s / length sum(w n) + z lse^2 of each row, n = lse - x = -log(softmax(x)), y its label,
// and the gradient of x. Computed in C.
//
// Mapping:  LANES threads per row (rows/row.cuh), resident in registers or streamed; a CTA has THREADS / LANES rows.
//           _unaligned: one CTA per long row at any alignment, without weights (rows/unaligned.cuh).
//           cross_entropy_total: one CTA, in an order that `count` alone fixes.
// Passes:   one (maximum and sum together), a second one where s > 0; the gradient takes one.
// Labels:   `ignore`: loss and gradient are 0. Out of range: never read; both are NaN, and `status` is set.
// Shared:   two values per warp.   Bound: DRAM.
#include "loss/labelled.cuh"
#include "math/log.cuh"
#include "rows/fold.cuh"
#include "rows/place.cuh"
#include "rows/row.cuh"
#include "rows/shifted_sum.cuh"
#include "rows/unaligned.cuh"

enum Operand { OUT, GRAD, LSE, LABELS, X, WEIGHT, OPERANDS };
constexpr int TOTAL_THREADS = 512;  // the second launch bound of 1 keeps ptxas from spilling

// The loss of a row, whose log(sum(exp(x))) is most + log_sum; `x_of` a column is there.
template <class C, class I, class XOf>
__device__ __forceinline__ C row_loss(const Labelled<C>& own, I length, C smoothing, C z_loss, C most, C log_sum,
    C shared, i32* status, const XOf& x_of) {
  if (own.wrong(length)) {
    if (status) atomicOr(status, 1);
  } else if (own.counts) {
    const C total = most + log_sum, n = log_sum - (convert<C>(*x_of(I(own.label))) - most);
    return (C(1) - smoothing) * own.weight * n + shared + z_loss * total * total;
  }
  return own.weight;
}

template <class T, class W, class C, class L, int DIGITS, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT,
    int R, int RC, class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
cross_entropy(I count, I length, i64 ignore, C smoothing, C z_loss, C* losses, i32* status,
    rows::Places<I, R, RC, OPERANDS> places, C* out, const C*, C* lse, const L* labels, const T* x, const W* weight) {
  using Sum = rows::ShiftedSum<C, DIGITS>;
  using Pack = rows::Pack<T, V>;
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  const Labelled<C> own(live ? places.template of_row<LABELS>(labels, at) : nullptr, ignore, length, [&](i64 label) {
    return weight ? convert<C>(*places.template at<WEIGHT>(weight, at, I(label))) : C(1);
  });
  const bool needed = own.counts || (live && lse);
  rows::Row<RESIDENT, Pack, V, ITEMS, LANES, I> line(needed ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) { return rows::loaded<T, V>(places.template at<X>(x, at, column)); };
  line.load(load);

  // 1. log(sum(exp(x))) = most + log_sum
  Sum sum = Sum::none();
  line.pass(load, [&](Pack& pack, I, int) {
    C a[V];
    pack.widen(a);
    sum.add(a);
  });
  sum = Sum::template gather<LANES>(sum);
  const C log_sum = math::log<24>(sum.sum), total = sum.most + log_sum;

  // 2. the part that all classes share
  C shared = 0;
  if (smoothing != C(0)) {
    line.pass(load, [&](Pack& pack, I column, int) {
      C a[V], w[V];
      pack.widen(a);
      if (weight) rows::fetch<W>(w, places.template at<WEIGHT>(weight, at, column));
#pragma unroll
      for (int v = 0; v < V; ++v) shared += (weight ? w[v] : C(1)) * (log_sum - (a[v] - sum.most));
    });
    shared = rows::sum<LANES, 2>(shared) * (smoothing / C(length));
  }

  // 3. loss
  if (!live || threadIdx.x % LANES != 0) return;
  *(losses ? losses + row : places.template of_row<OUT>(out, at)) =
      row_loss(own, length, smoothing, z_loss, sum.most, log_sum, shared, status,
          [&](I label) { return places.template at<X>(x, at, label); });
  if (lse) *places.template of_row<LSE>(lse, at) = total;
}

template <class T, class W, class C, class L, int DIGITS, int V, int ITEMS, int LANES, int R, class I>
__global__ void __launch_bounds__(LANES) cross_entropy_unaligned(I length, i64 ignore, C smoothing, C z_loss, C* losses,
    i32* status, rows::Places<I, R, 0, OPERANDS> places, C* out, const C*, C* lse, const L* labels, const T* x,
    const W*) {
  using Sum = rows::ShiftedSum<C, DIGITS>;
  const I row = I(blockIdx.x);
  i64 at[OPERANDS];
  places.enter(row, at);
  const Labelled<C> own(places.template of_row<LABELS>(labels, at), ignore, length, [](i64) { return C(1); });
  const T* const from = places.template at<X>(x, at, 0);
  rows::UnalignedRow<T, C, V, ITEMS, LANES, I, 1> line{{from}, own.counts || lse ? length : 0};

  // 1. log(sum(exp(x))) = most + log_sum
  Sum sum = Sum::none();
  line.template pass<0>(rows::minus_infinity<C>(), [&](C (&a)[1][V]) { sum.add(a[0]); });
  sum = Sum::template gather<LANES>(sum);
  const C log_sum = math::log<24>(sum.sum), total = sum.most + log_sum;

  // 2. the part that all classes share; a column past the end has none
  C shared = 0;
  if (smoothing != C(0)) {
    line.template pass<0>(total, [&](C (&a)[1][V]) {
#pragma unroll
      for (int v = 0; v < V; ++v) shared += log_sum - (a[0][v] - sum.most);
    });
    shared = rows::sum<LANES, 2>(shared) * (smoothing / C(length));
  }

  // 3. loss
  if (threadIdx.x != 0) return;
  *(losses ? losses + row : places.template of_row<OUT>(out, at)) =
      row_loss(own, length, smoothing, z_loss, sum.most, log_sum, shared, status,
          [&](I label) { return from + label; });
  if (lse) *places.template of_row<LSE>(lse, at) = total;
}

template <class C> struct Totals { C loss, weight; };

// out[0] = sum(loss), or MEAN: sum(loss) / sum(w[y]). Without losses: out[0] = sum(w[y]), out[1] = sum(w).
template <class W, class C, class L, bool MEAN>
__global__ void __launch_bounds__(TOTAL_THREADS, 1) cross_entropy_total(u32 count, u32 classes, i64 ignore,
    const C* losses, const L* labels, i64 label_step, const W* weight, i64 weight_step, C* out) {
  const auto join = [](const Totals<C>& a, const Totals<C>& b) {
    return Totals<C>{a.loss + b.loss, a.weight + b.weight};
  };
  const auto weigh = [&](i64 label) { return weight ? convert<C>(weight[label * weight_step]) : C(1); };
  const auto of_row = [&](u32 row) {
    const Labelled<C> own(labels + row * label_step, ignore, classes, weigh);
    return Totals<C>{losses ? losses[row] : C(0), own.weight};
  };
  const Totals<C> none{C(0), C(0)};
  Totals<C> sums = rows::fold<4>(threadIdx.x, count, TOTAL_THREADS, none, of_row, join);
  sums = rows::group_reduce<TOTAL_THREADS, 0>(sums, join);
  C every = 0;
  if (!losses && weight) {
    const auto plus = [](C a, C b) { return a + b; };
    every = rows::sum<TOTAL_THREADS, 1>(rows::fold<4>(threadIdx.x, classes, TOTAL_THREADS, C(0), weigh, plus));
  }
  if (threadIdx.x != 0) return;
  out[0] = !losses ? sums.weight : MEAN ? sums.loss / sums.weight : sums.loss;
  if (!losses) out[1] = every;
}

// The gradient of a row's logits: g (softmax(x) targets - target), 0 for a row that does not count and for x = 0 there.
template <class C, class I> struct Slope {
  C g, total, targets, picked, each;
  I label;

  // `every`: the sum of the weights of all classes.
  __device__ __forceinline__ Slope(const Labelled<C>& own, I classes, C grad, C lse, C smoothing, C z_loss, C every) {
    g = own.counts ? grad : C(0), total = own.counts ? lse : C(0);
    picked = (C(1) - smoothing) * own.weight, each = own.counts ? smoothing / C(classes) : C(0);
    targets = picked + C(2) * z_loss * total + (smoothing != C(0) ? each * every : C(0));
    label = own.counts && !own.wrong(classes) ? I(own.label) : ~I(0);
  }
  template <int DIGITS> __device__ __forceinline__ C of(C x, I column, C weight) const {
    const C target = each * weight + (column == label ? picked : C(0));
    return g * ::fma(math::exp<DIGITS>(x - total), targets, -target);
  }
};

// `totals`: sum(w[y]) and sum(w), where they are needed.
template <class T, class W, class C, class L, int DIGITS, bool MEAN, int V, int ITEMS, int LANES, int THREADS,
    bool RESIDENT, int R, int RC, class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
cross_entropy_backward(I count, I length, i64 ignore, C smoothing, C z_loss, const C* totals, i32* status,
    rows::Places<I, R, RC, OPERANDS> places, T* out, const C* grad, const C* lse, const L* labels, const T* x,
    const W* weight) {
  using Pack = rows::Pack<T, V>;
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  const Labelled<C> own(live ? places.template of_row<LABELS>(labels, at) : nullptr, ignore, length, [&](i64 label) {
    return weight ? convert<C>(*places.template at<WEIGHT>(weight, at, I(label))) : C(1);
  });
  if (status && own.wrong(length) && threadIdx.x % LANES == 0) atomicOr(status, 1);
  rows::Row<RESIDENT, Pack, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    Pack pack = {};
    if (own.counts) pack.load(places.template at<X>(x, at, column));
    return pack;
  };
  line.load(load);

  const Slope<C, I> slope(own, length, *places.template of_row<GRAD>(grad, at) / (MEAN ? totals[0] : C(1)),
      *places.template of_row<LSE>(lse, at), smoothing, z_loss, smoothing != C(0) && weight ? totals[1] : C(length));
  line.pass(load, [&](Pack& pack, I column, int) {
    C a[V], w[V];
    const bool weighted = weight && smoothing != C(0);
    rows::widen_words(pack, a);
    if (weighted) rows::fetch<W>(w, places.template at<WEIGHT>(weight, at, column));
#pragma unroll
    for (int v = 0; v < V; ++v) a[v] = slope.template of<DIGITS>(a[v], column + v, weighted ? w[v] : C(1));
    rows::put(places.template at<OUT>(out, at, column), a);
  });
}

template <class T, class W, class C, class L, int DIGITS, bool MEAN, int V, int ITEMS, int LANES, int R, class I>
__global__ void __launch_bounds__(LANES) cross_entropy_backward_unaligned(I length, i64 ignore, C smoothing, C z_loss,
    const C* totals, i32* status, rows::Places<I, R, 0, OPERANDS> places, T* out, const C* grad, const C* lse,
    const L* labels, const T* x, const W*) {
  i64 at[OPERANDS];
  places.enter(I(blockIdx.x), at);
  const Labelled<C> own(places.template of_row<LABELS>(labels, at), ignore, length, [](i64) { return C(1); });
  if (status && own.wrong(length) && threadIdx.x == 0) atomicOr(status, 1);
  const Slope<C, I> slope(own, length, *places.template of_row<GRAD>(grad, at) / (MEAN ? totals[0] : C(1)),
      *places.template of_row<LSE>(lse, at), smoothing, z_loss, C(length));
  const rows::UnalignedRow<T, C, V, ITEMS, LANES, I, 1> line{{places.template at<X>(x, at, 0)}, length};
  line.template write<0>(places.template at<OUT>(out, at, 0), [&](const C (&a)[1], I column) {
    return own.counts ? slope.template of<DIGITS>(a[0], column, C(1)) : C(0);
  });
}
