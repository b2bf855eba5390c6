// grad_x = rstd (g - mean(g) - n mean(g n)) along rows, g = grad weight, n = (x - mean) rstd; see norm/gradient.cuh.
//
// Grid:      persistent CTAs; a CTA takes rows blockIdx.x, blockIdx.x + gridDim.x, ... (a stripe).
// Pipeline:  resident rows: cp.async, STAGES rows prefetched (rows/prefetcher.cuh). A thread has the same columns of
//            every row, so weight and its parts of grad_weight and grad_bias stay in registers.
// Weights:   each CTA writes its sums as one row of `partial`; sum_stripes adds these in order. Streamed rows:
//            grad_weight and grad_bias are left to norm_weight_backward, with 2 more reads.
// Shared:    STAGES rows of x and grad per group.   Bound: DRAM.
//
// norm_backward_unaligned: grad_x of one long row per CTA, or per cluster, at any alignment (rows/unaligned.cuh).
// norm_backward_kept_cluster: the same; grad and x, or grad alone, are read once and stay in shared memory.
#include "norm/gradient.cuh"
#include "ptx/overlap.cuh"
#include "rows/cluster_reduce.cuh"
#include "rows/prefetcher.cuh"
#include "rows/group.cuh"
#include "rows/row.cuh"
#include "rows/stripe.cuh"
#include "rows/unaligned.cuh"

using namespace norms;

template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int CTAS, int STAGES,
    int R, int RC, class I, bool CENTERED, int WITH>
__global__ void __launch_bounds__(THREADS, CTAS) norm_backward(I count, I length, Places<I, R, RC> places, T* grad_x,
    C* partial, const T* grad, const T* x, const C* means, const C* rstds, const W* weight) {
  struct Loaded { rows::Pack<T, V> x, grad; };
  using Line = rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I>;
  extern __shared__ __align__(16) unsigned char shared[];
  const u32 lane = threadIdx.x % LANES;
  const rows::Stripe<I, THREADS / LANES> stripe(LANES);
  i64 at[OPERANDS];
  const auto line_of = [&](I row) {  // rows past the last one are empty
    places.enter(row < count ? row : 0, at);
    return Line(row < count ? length : 0, lane);
  };
  const auto statistics = [&](I row) {
    line_of(row);
    return Statistics<CENTERED, C>(places, at, means, rstds);
  };
  const auto load = [&](I column) {
    return Loaded{rows::loaded<T, V>(places.template at<X>(x, at, column)),
        rows::loaded<T, V>(places.template at<GRAD>(grad, at, column))};
  };
  const auto scales = [&](I column) { return rows::loaded<W, V>(places.template at<SCALE>(weight, at, column)); };
  rows::Row<RESIDENT && (WITH & WEIGHT), rows::Pack<W, V>, V, ITEMS, LANES, I> weights(length, lane);
  rows::Prefetcher<T, V, 2 * ITEMS, THREADS, STAGES, RESIDENT> prefetcher(shared);
  const auto issue_row = [&](I row) {
    line_of(row).pass(load, [&](Loaded&, I column, int i) {
      prefetcher.issue(2 * i, places.template at<X>(x, at, column));
      prefetcher.issue(2 * i + 1, places.template at<GRAD>(grad, at, column));
    });
  };
  // Normalized x (n), grad, and g = grad * weight of one vector.
  const auto terms = [&](const Loaded& loaded, I column, int i, const Statistics<CENTERED, C>& of, C(&normal)[V],
                         C(&raw)[V], C(&g)[V]) {
    C w[V];
    (RESIDENT ? prefetcher[2 * i] : loaded.x).widen(normal);
    (RESIDENT ? prefetcher[2 * i + 1] : loaded.grad).widen(raw);
    if constexpr (WITH & WEIGHT) (RESIDENT ? weights.item[i] : scales(column)).widen(w);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      normal[v] = of.normal(normal[v]);
      g[v] = WITH & WEIGHT ? raw[v] * w[v] : raw[v];
    }
  };

  // 1. prologue: weights, first rows
  line_of(0);
  weights.load(scales);
  prefetcher.start(issue_row, stripe.row, stripe.step);
  C scale[ITEMS][V] = {}, shift[ITEMS][V] = {};
  Statistics<CENTERED, C> next = statistics(stripe.row);
  u32 parity = 0;
#pragma unroll 1
  // 2. persistent loop over rows
  for (I first = stripe.first; first < count; first += stripe.step, parity ^= 1) {
    const I row = first + stripe.group;
    const Statistics<CENTERED, C> of = next;
    next = statistics(row + stripe.step);
    prefetcher.wait(issue_row, row, stripe.step);

    // 2a. row means; this row's part of grad_weight and grad_bias
    Line line = line_of(row);
    rows::Two<C> sum = {0, 0};
    line.pass(load, [&](Loaded& loaded, I column, int i) {
      C normal[V], raw[V], g[V];
      terms(loaded, column, i, of, normal, raw, g);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum = sum + rows::Two<C>{g[v], g[v] * normal[v]};
        if constexpr (RESIDENT && WITH & WEIGHT) scale[i][v] += raw[v] * normal[v];
        if constexpr (RESIDENT && WITH & BIAS) shift[i][v] += raw[v];
      }
    });
    if constexpr (CENTERED) sum = rows::sum<LANES>(sum, parity);
    else sum.second = rows::sum<LANES>(sum.second, parity);
    const C plain = CENTERED ? sum.first / C(length) : C(0), along = sum.second / C(length);

    // 2b. grad_x
    line.pass(load, [&](Loaded& loaded, I column, int i) {
      C normal[V], raw[V], g[V];
      terms(loaded, column, i, of, normal, raw, g);
#pragma unroll
      for (int v = 0; v < V; ++v) g[v] = (g[v] - plain - normal[v] * along) * of.rstd;
      rows::put(places.template at<GRAD_X>(grad_x, at, column), g);
    });
    prefetcher.release(issue_row, row, stripe.step);
  }

  // 3. epilogue: reduce grad_weight and grad_bias
  if constexpr (RESIDENT && WITH != 0) {
    overlap::release();
    const Partial<WITH, C, I> to(partial, blockIdx.x, length);
    if constexpr (WITH & WEIGHT) stripe.template store<LANES>(scale, reinterpret_cast<C*>(shared), to.weight, length);
    if constexpr (WITH & BIAS) stripe.template store<LANES>(shift, reinterpret_cast<C*>(shared), to.bias, length);
  }
}

template <class T, class C, int V, int ITEMS, int LANES, int R, class I, bool CENTERED, int WITH, int CTAS, int KEPT>
__device__ __forceinline__ void gradient_part(I length, const Places<I, R, 0>& places, T* grad_x, const T* grad,
    const T* x, const C* means, const C* rstds, const T* weight) {
  constexpr int SCALED = WITH & WEIGHT, INPUTS = 2 + SCALED;
  const rows::Part<CTAS, I> part(length, V, 1, 0);
  i64 at[OPERANDS];
  places.enter(part.row, at);
  rows::UnalignedRow<T, C, V, ITEMS, LANES, I, INPUTS> line;
  line.from[0] = places.template at<GRAD>(grad, at, part.first);
  line.from[1] = places.template at<X>(x, at, part.first);
  if constexpr (SCALED) line.from[2] = places.template at<SCALE>(weight, at, part.first);
  line.length = part.length;
  line.template keep<KEPT>(part.columns(length, V));
  const Statistics<CENTERED, C> of(places, at, means, rstds);

  // 1. row means
  rows::Two<C> sum = {0, 0};
  line.template pass<KEPT, true>(C(0), [&](C (&a)[INPUTS][V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const C g = SCALED ? a[0][v] * a[INPUTS - 1][v] : a[0][v];
      sum = sum + rows::Two<C>{g, g * of.normal(a[1][v])};
    }
  });
  if constexpr (CENTERED) sum = rows::sum<LANES>(sum, 0);
  else sum.second = rows::sum<LANES>(sum.second, 0);
  sum = rows::cluster_reduce<CTAS, 0>(sum, [](const rows::Two<C>& a, const rows::Two<C>& b) { return a + b; });
  const C plain = CENTERED ? sum.first / C(length) : C(0), along = sum.second / C(length);

  // 2. grad_x
  line.template write<KEPT>(places.template at<GRAD_X>(grad_x, at, part.first), [&](const C (&a)[INPUTS], I) {
    const C g = SCALED ? a[0] * a[INPUTS - 1] : a[0];
    return (g - plain - of.normal(a[1]) * along) * of.rstd;
  });
  rows::cluster_barrier<CTAS>();
}

template <class T, class C, int V, int ITEMS, int LANES, int R, class I, bool CENTERED, int WITH>
__global__ void __launch_bounds__(LANES) norm_backward_unaligned(I length, Places<I, R, 0> places, T* grad_x,
    const T* grad, const T* x, const C* means, const C* rstds, const T* weight) {
  gradient_part<T, C, V, ITEMS, LANES, R, I, CENTERED, WITH, 1, 0>(
      length, places, grad_x, grad, x, means, rstds, weight);
}

#if __CUDA_ARCH__ >= 900
template <class T, class C, int V, int ITEMS, int LANES, int R, class I, bool CENTERED, int WITH, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(LANES, 1) norm_backward_unaligned_cluster(I length,
    Places<I, R, 0> places, T* grad_x, const T* grad, const T* x, const C* means, const C* rstds, const T* weight) {
  gradient_part<T, C, V, ITEMS, LANES, R, I, CENTERED, WITH, CTAS, 0>(
      length, places, grad_x, grad, x, means, rstds, weight);
}

// Three CTAs per SM: with four, ptxas spills.
template <class T, class C, int V, int ITEMS, int LANES, int R, class I, bool CENTERED, int WITH, int KEPT, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(LANES, (rows::KEPT_CTAS<C, LANES> * 3 / 4))
    norm_backward_kept_cluster(I length, Places<I, R, 0> places, T* grad_x, const T* grad, const T* x, const C* means,
        const C* rstds, const T* weight) {
  gradient_part<T, C, V, ITEMS, LANES, R, I, CENTERED, WITH, CTAS, KEPT>(
      length, places, grad_x, grad, x, means, rstds, weight);
}
#endif
