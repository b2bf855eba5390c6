// loss = (1 - s) w[y] n[y] + s / length sum(w n) + z lse^2 of each row, n = lse - x = -log(softmax(x)), y its label,
// and the gradient of x. Computed in C.
//
// Mapping:  LANES threads per row (rows/row.cuh), resident in registers or streamed; a CTA has THREADS / LANES rows.
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

enum Operand { OUT, GRAD, LSE, LABELS, X, WEIGHT, OPERANDS };
constexpr int TOTAL_THREADS = 512;  // the second launch bound of 1 keeps ptxas from spilling

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
  C loss = own.weight;
  if (own.wrong(length)) {
    if (status) atomicOr(status, 1);
  } else if (own.counts) {
    const C picked = convert<C>(*places.template at<X>(x, at, I(own.label)));
    loss = (C(1) - smoothing) * own.weight * (log_sum - (picked - sum.most)) + shared + z_loss * total * total;
  }
  *(losses ? losses + row : places.template of_row<OUT>(out, at)) = loss;
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

  const C g = *places.template of_row<GRAD>(grad, at) / (MEAN ? totals[0] : C(1));
  const C total = *places.template of_row<LSE>(lse, at);
  const C picked = (C(1) - smoothing) * own.weight, each = smoothing / C(length);
  C targets = picked + C(2) * z_loss * total;
  if (smoothing != C(0)) targets += each * (weight ? totals[1] : C(length));
  line.pass(load, [&](Pack& pack, I column, int) {
    C a[V], w[V];
    pack.widen(a);
    if (weight && smoothing != C(0)) rows::fetch<W>(w, places.template at<WEIGHT>(weight, at, column));
#pragma unroll
    for (int v = 0; v < V; ++v) {
      C target = smoothing == C(0) ? C(0) : weight ? each * w[v] : each;
      if (i64(column + v) == own.label) target += picked;
      a[v] = own.counts ? g * (math::exp<DIGITS>(a[v] - total) * targets - target) : C(0);
    }
    rows::put(places.template at<OUT>(out, at, column), a);
  });
}
