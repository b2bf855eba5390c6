// out = (h - mean) rstd weight + bias along rows, h = x + residual rounded to T; rstd = 1 / sqrt(mean((h - mean)^2) + eps), and the
// mean is 0 where the norm is not CENTERED. Computed in C and rounded once; h too, since f32 has more than twice the digits of a
// 16-bit T, so that the sum's own rounding does no harm (S. A. Figueroa, "When is double rounding innocuous?", SIGNUM 30(3), 1995).
//
// LANES threads share a row: a part of a warp, a warp, or a CTA (rows/row.cuh: resident in registers, or streamed). The mean and
// the mean square of deviations are two passes over the row, so that a large mean costs no accuracy. WITH names the operands that
// there are. Shared memory: a value a warp. Bound: memory bandwidth.
#include "math/sqrt.cuh"
#include "rows/group.cuh"
#include "rows/place.cuh"
#include "rows/row.cuh"

enum With { WEIGHT = 1, BIAS = 2, RESIDUAL = 4, STATS = 8 };
enum Operand { OUT, SUM, MEAN, RSTD, X, ADDED, SCALE, SHIFT, OPERANDS };

template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I, bool CENTERED, int WITH>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
norm(I count, I length, C eps, rows::Places<I, R, RC, OPERANDS> places, T* out, T* residual_out, C* mean_out, C* rstd_out, const T* x,
     const T* residual, const W* weight, const W* bias) {
  using Pack = rows::Pack<T, V>;
  struct Loaded { Pack x, residual; };
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);

  // The row, and the sum of it: a thread of a row too many has no columns.
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    Loaded loaded;
    loaded.x.load(places.template at<X>(x, at, column));
    if constexpr (WITH & RESIDUAL) loaded.residual.load(places.template at<ADDED>(residual, at, column));
    return loaded;
  };
  C sum = 0;
  line.load(load);
  // Weights for which there are registers come while the statistics are made.
  constexpr bool EARLY = RESIDENT && LANES <= 256 && (WITH & WEIGHT) && !(WITH & BIAS);
  rows::Row<EARLY, rows::Pack<W, V>, V, ITEMS, LANES, I> scale(live ? length : 0, threadIdx.x % LANES);
  const auto weights = [&](I column) { return rows::loaded<W, V>(places.template at<SCALE>(weight, at, column)); };
  scale.load(weights);
  line.pass(load, [&](Loaded& loaded, I column, int) {
    if constexpr (WITH & RESIDUAL) {
      rows::add_rounded<C>(loaded.x, loaded.residual);
      loaded.x.store(places.template at<SUM>(residual_out, at, column));
    }
    C h[V];
    loaded.x.widen(h);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += CENTERED ? h[v] : h[v] * h[v];
  });
  const auto reload = [&](I column) {
    const T* from = WITH & RESIDUAL ? places.template at<SUM>(residual_out, at, column) : places.template at<X>(x, at, column);
    return Loaded{rows::loaded<T, V>(from), {}};
  };

  // Statistics.
  sum = rows::sum<LANES, 0>(sum) / C(length);
  const C mean = CENTERED ? sum : C(0);
  if constexpr (CENTERED) {
    C squares = 0;
    line.pass(reload, [&](Loaded& loaded, I, int) {
      C h[V];
      loaded.x.widen(h);
#pragma unroll
      for (int v = 0; v < V; ++v) squares += (h[v] - mean) * (h[v] - mean);
    });
    sum = rows::sum<LANES, 1>(squares) / C(length);
  }
  const C rstd = math::rsqrt<24>(sum + eps);
  if (WITH & STATS && live && threadIdx.x % LANES == 0) {
    if constexpr (CENTERED) *places.template of_row<MEAN>(mean_out, at) = mean;
    *places.template of_row<RSTD>(rstd_out, at) = rstd;
  }

  // The result.
  line.pass(reload, [&](Loaded& loaded, I column, int item) {
    C y[V], w[V], b[V];
    loaded.x.widen(y);
    if constexpr (WITH & WEIGHT) (EARLY ? scale.item[item] : weights(column)).widen(w);
    if constexpr (WITH & BIAS) rows::fetch(b, places.template at<SHIFT>(bias, at, column));
#pragma unroll
    for (int v = 0; v < V; ++v) {
      y[v] = (y[v] - mean) * rstd;
      if constexpr (WITH & WEIGHT) y[v] *= w[v];
      if constexpr (WITH & BIAS) y[v] += b[v];
    }
    rows::put(places.template at<OUT>(out, at, column), y);
  });
}
