// out = (x - mean) rstd weight[channel] + bias[channel], rstd = 1 / sqrt(mean((x - mean)^2) + eps) (group_norm).
//
// Rows:      the elements that share statistics: channels of a group and positions, in the order of memory.
// norm_channels: LANES threads per row: part of a warp, a warp, or a CTA (rows/row.cuh), resident or streamed;
//            *_cluster: the CTAs of a cluster share a row (rows/cluster_reduce.cuh).
// Vectors:   along the innermost axis of columns. ONE: all columns of a vector are of one channel.
// Accuracy:  mean and mean square deviation are two passes, so that a large mean costs no accuracy.
// Rounding:  computed in C, rounded once.
// Shared:    one value per warp.   Bound: DRAM.
#include "math/sqrt.cuh"
#include "rows/cluster_reduce.cuh"
#include "rows/hold.cuh"
#include "rows/place.cuh"

enum With { WEIGHT = 1, BIAS = 2, STATS = 4, ONE = 8 };
enum Operand { OUT, MEAN, RSTD, X, SCALE, SHIFT, OPERANDS };

// Weights of the V columns of a vector: one each, or one for all.
template <int V, int PER, class W, class C>
__device__ __forceinline__ void of_columns(C (&w)[V], const rows::Pack<W, PER>& from) {
  C own[PER];
  from.widen(own);
#pragma unroll
  for (int v = 0; v < V; ++v) w[v] = own[PER == 1 ? 0 : v];
}

template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    int WITH, int CTAS>
__device__ __forceinline__ void norm_row(I count, I length, C eps, const rows::Places<I, R, RC, OPERANDS>& places,
    T* out, C* mean_out, C* rstd_out, const T* x, const W* weight, const W* bias) {
  constexpr int PER = WITH & ONE ? 1 : V;
  struct Loaded { rows::Pack<T, V> x; };
  struct Weights { rows::Pack<W, PER> scale, shift; };
  const rows::Part<CTAS, I> part(length, V, THREADS / LANES, threadIdx.x / LANES);
  const bool live = part.row < count;
  i64 at[OPERANDS];
  places.enter(live ? part.row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? part.length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    return Loaded{rows::loaded<T, V>(places.template at<X>(x, at, part.first + column))};
  };
  line.load(load);
  // EARLY: weights are loaded with x if registers suffice.
  constexpr bool EARLY = RESIDENT && (WITH & ONE || LANES <= 256);
  rows::Row<EARLY, Weights, V, ITEMS, LANES, I> early(live ? part.length : 0, threadIdx.x % LANES);
  const auto weights = [&](I column) {
    Weights loaded;
    if constexpr (WITH & WEIGHT) loaded.scale.load(places.template at<SCALE>(weight, at, part.first + column));
    if constexpr (WITH & BIAS) loaded.shift.load(places.template at<SHIFT>(bias, at, part.first + column));
    return loaded;
  };
  early.load(weights);
  if constexpr (WITH & WEIGHT) rows::hold(early, &Weights::scale);
  if constexpr (WITH & BIAS) rows::hold(early, &Weights::shift);
  rows::hold(line, &Loaded::x);

  // 1. mean, rstd
  const auto plus = [](C a, C b) { return a + b; };
  C sum = 0, squares = 0;
  line.pass(load, [&](Loaded& loaded, I, int) {
    C h[V];
    loaded.x.widen(h);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += h[v];
  });
  const C mean = rows::cluster_reduce<CTAS, 0>(rows::sum<LANES, 0>(sum), plus) / C(length);
  line.pass(load, [&](Loaded& loaded, I, int) {
    C h[V];
    loaded.x.widen(h);
#pragma unroll
    for (int v = 0; v < V; ++v) squares += (h[v] - mean) * (h[v] - mean);
  });
  squares = rows::cluster_reduce<CTAS, 1>(rows::sum<LANES, 1>(squares), plus) / C(length);
  const C rstd = math::rsqrt<24>(squares + eps);
  if (WITH & STATS && live && part.first == 0 && threadIdx.x % LANES == 0) {
    *places.template of_row<MEAN>(mean_out, at) = mean;
    *places.template of_row<RSTD>(rstd_out, at) = rstd;
  }

  // 2. result
  line.pass(load, [&](Loaded& loaded, I column, int item) {
    C y[V], w[V], b[V];
    loaded.x.widen(y);
    const Weights by = EARLY ? early.item[item] : weights(column);
    if constexpr (WITH & WEIGHT) of_columns(w, by.scale);
    if constexpr (WITH & BIAS) of_columns(b, by.shift);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      y[v] = (y[v] - mean) * rstd;
      if constexpr (WITH & WEIGHT) y[v] *= w[v];
      if constexpr (WITH & BIAS) y[v] += b[v];
    }
    rows::put(places.template at<OUT>(out, at, part.first + column), y);
  });
  rows::cluster_barrier<CTAS>();
}

template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    int WITH>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
    norm_channels(I count, I length, C eps, rows::Places<I, R, RC, OPERANDS> places, T* out, C* mean_out, C* rstd_out,
        const T* x, const W* weight, const W* bias) {
  norm_row<T, W, C, V, ITEMS, LANES, THREADS, RESIDENT, R, RC, I, WITH, 1>(
      count, length, eps, places, out, mean_out, rstd_out, x, weight, bias);
}

#if __CUDA_ARCH__ >= 900
template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    int WITH, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(THREADS, 1)
    norm_channels_cluster(I count, I length, C eps, rows::Places<I, R, RC, OPERANDS> places, T* out, C* mean_out,
        C* rstd_out, const T* x, const W* weight, const W* bias) {
  norm_row<T, W, C, V, ITEMS, LANES, THREADS, RESIDENT, R, RC, I, WITH, CTAS>(
      count, length, eps, places, out, mean_out, rstd_out, x, weight, bias);
}
#endif
