// out = max(z - t, 0) along rows (sparsemax), or SQUARED: max(z / 2 - t, 0)^2 (entmax15); z = x - max(x), and t makes
// the sum of the row 1 (A. F. T. Martins, R. F. Astudillo, "From softmax to sparsemax", 2016; B. Peters, V. Niculae,
// A. F. T. Martins, "Sparse sequence-to-sequence models", 2019).
//
// Threads:   LANES threads per row (rows/row.cuh), resident or streamed.
// t:         f(t) = sum - 1 is convex and decreasing, and t = -1 is left of its root: Newton's steps approach that
//            from the left. f_{k+1} / f_k + f'_{k+1} / f'_k <= 1, so that f f' falls to a quarter at least in every
//            step, from 2 length^2 at most: STEPS suffice for every length below 2^24 (f64: 2^20). In exact arithmetic
//            sparsemax is done as soon as a step leaves the support as it is.
// sparse_softmax_backward: grad_x = w (grad - sum(w grad) / sum(w)); w = 1 where y > 0, or SQUARED: sqrt(y).
// Special:   a row with NaN or +inf, or with -inf only, is NaN.
// Shared:    two values per warp.   Bound: DRAM, L2 where rows are streamed.
#include "math/extrema.cuh"
#include "math/sqrt.cuh"
#include "rows/hold.cuh"
#include "rows/group.cuh"
#include "rows/place.cuh"
#include "rows/stripe.cuh"

enum Operand { OUT, X, OPERANDS };

template <class T, class C, bool SQUARED, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC,
    class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
    sparse_softmax(I count, I length, rows::Places<I, R, RC, OPERANDS> places, T* out, const T* x) {
  constexpr int STEPS = sizeof(C) == 8 ? 52 : 40;
  struct Loaded { rows::Pack<T, V> x; };
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) { return Loaded{rows::loaded<T, V>(places.template at<X>(x, at, column))}; };
  line.load(load);
  rows::hold(line, &Loaded::x);

  // 1. maximum
  C most = C(__uint_as_float(0xff800000));
  line.pass(load, [&](Loaded& loaded, I, int) {
    C a[V];
    loaded.x.widen(a);
#pragma unroll
    for (int v = 0; v < V; ++v) most = math::maximum(most, a[v]);
  });
  most = rows::group_reduce<LANES, 0>(most, [](C a, C b) { return math::maximum(a, b); });
  const auto above = [&](C a, C t) {
    const C z = a - most;
    return math::maximum((SQUARED ? z * C(0.5) : z) - t, C(0));
  };

  // 2. t
  C t = -1;
  bool more = true;  // the same in all threads of a row
  for (int step = 0; step < STEPS; ++step) {
    rows::Two<C> sum = {0, 0};  // f + 1, and -f'
    line.pass(load, [&](Loaded& loaded, I, int) {
      C a[V];
      loaded.x.widen(a);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const C s = above(a[v], t);
        sum = sum + (SQUARED ? rows::Two<C>{s * s, 2 * s} : rows::Two<C>{s, C(s > 0 ? 1 : 0)});
      }
    });
    sum = rows::sum<LANES, 1>(sum, step & 1);
    const C next = t + (sum.first - 1) / sum.second;
    if (more) {
      more = next > t;  // no progress: the root, up to rounding; or NaN
      t = next;
    }
    if (!(LANES <= 32 ? __any_sync(~0u, more) : more)) break;
  }

  // 3. result
  line.pass(load, [&](Loaded& loaded, I column, int) {
    C y[V];
    loaded.x.widen(y);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const C s = above(y[v], t);
      y[v] = SQUARED ? s * s : s;
    }
    rows::put(places.template at<OUT>(out, at, column), y);
  });
}

enum GradientOperand { GRAD_X, GRAD, Y, GRADIENT_OPERANDS };

template <class T, class C, bool SQUARED, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC,
    class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
    sparse_softmax_backward(I count, I length, rows::Places<I, R, RC, GRADIENT_OPERANDS> places, T* grad_x,
        const T* grad, const T* y) {
  struct Loaded { rows::Pack<T, V> grad, y; };
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[GRADIENT_OPERANDS];
  places.enter(live ? row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    return Loaded{rows::loaded<T, V>(places.template at<GRAD>(grad, at, column)),
        rows::loaded<T, V>(places.template at<Y>(y, at, column))};
  };
  line.load(load);
  rows::hold(line, &Loaded::grad, &Loaded::y);
  const auto weights = [](const Loaded& loaded, C (&w)[V]) {
    loaded.y.widen(w);
#pragma unroll
    for (int v = 0; v < V; ++v)
      if constexpr (SQUARED) w[v] = math::sqrt<24>(w[v]);
      else w[v] = w[v] > 0 ? C(1) : w[v];  // 0, or NaN
  };
  rows::Two<C> sum = {0, 0};
  line.pass(load, [&](Loaded& loaded, I, int) {
    C g[V], w[V];
    loaded.grad.widen(g);
    weights(loaded, w);
#pragma unroll
    for (int v = 0; v < V; ++v) sum = sum + rows::Two<C>{w[v] * g[v], w[v]};
  });
  sum = rows::sum<LANES>(sum);
  const C mean = sum.second == C(0) ? C(0) : sum.first / sum.second;
  line.pass(load, [&](Loaded& loaded, I column, int) {
    C g[V], w[V];
    loaded.grad.widen(g);
    weights(loaded, w);
#pragma unroll
    for (int v = 0; v < V; ++v) g[v] = w[v] * (g[v] - mean);
    rows::put(places.template at<GRAD_X>(grad_x, at, column), g);
  });
}
