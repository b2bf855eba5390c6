// The gradient of norms over channels. With n = (x - mean) rstd and g = grad weight[channel], over a row's elements
//   grad_x = rstd (g - mean(g) - n mean(g n)),  and of a channel grad_weight = sum(grad n), grad_bias = sum(grad).
//
// Rows:      one CTA, or a cluster of them, per row of CHANNELS channels; LANES threads per channel (rows/row.cuh).
// Order:     a channel's sums are a row's part of grad_weight and grad_bias; weighted, they add up to the row's
//            means, in channel order. `partial` is [items][ranks of a cluster][those requested][all channels];
//            sum_stripes adds up the first two axes in order.
// Pipeline:  resident where the CTA's groups hold all channels of the row; else grad and x are read again (from L2).
// Shared:    two values per warp.   Bound: DRAM.
#include "rows/cluster_reduce.cuh"
#include "rows/place.cuh"
#include "rows/row.cuh"
#include "rows/stripe.cuh"

enum With { WEIGHT = 1, BIAS = 2 };
enum Operand { PARTIAL, GRAD_X, GRAD, X, MEAN, RSTD, SCALE, OPERANDS };

template <class I, int R, int RC> using Places = rows::Places<I, R, RC, OPERANDS>;

template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    int WITH, int CTAS>
__device__ __forceinline__ void gradient_row(I count, I channels, I all_channels, I length,
    const Places<I, R, RC>& places, C* partial, T* grad_x, const T* grad, const T* x, const C* means, const C* rstds,
    const W* weight) {
  struct Loaded { rows::Pack<T, V> x, grad; };
  constexpr u32 GROUPS = THREADS / LANES;
  const rows::Part<CTAS, I> part(length, V, 1, 0);
  const u32 lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
  if (part.row >= count) return;
  const I first = part.row * channels;
  i64 at[OPERANDS];
  places.enter(first, at);
  const C mean = *places.template of_row<MEAN>(means, at), rstd = *places.template of_row<RSTD>(rstds, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(0, lane);
  C scale = 1;
  const auto enter = [&](I channel) {  // groups past the last channel have no columns
    const bool live = channel < channels;
    places.enter(first + (live ? channel : 0), at);
    line.length = live ? part.length : 0;
    if constexpr (WITH & WEIGHT) scale = convert<C>(*places.template of_row<SCALE>(weight, at));
  };
  const auto load = [&](I column) {
    return Loaded{rows::loaded<T, V>(places.template at<X>(x, at, part.first + column)),
        rows::loaded<T, V>(places.template at<GRAD>(grad, at, part.first + column))};
  };
  const auto terms = [&](const Loaded& loaded, C (&normal)[V], C (&raw)[V]) {
    loaded.x.widen(normal);
    loaded.grad.widen(raw);
#pragma unroll
    for (int v = 0; v < V; ++v) normal[v] = (normal[v] - mean) * rstd;
  };
  const auto plus = [](const rows::Two<C>& a, const rows::Two<C>& b) { return a + b; };

  // 1. sums of channels; means of the row
  rows::Two<C> sum = {0, 0};
  u32 parity = 0;
#pragma unroll 1
  for (I base = 0; base < channels; base += GROUPS, parity ^= 1) {
    const I channel = base + group;
    enter(channel);
    line.load(load);
    rows::Two<C> own = {0, 0};
    line.pass(load, [&](Loaded& loaded, I, int) {
      C normal[V], raw[V];
      terms(loaded, normal, raw);
#pragma unroll
      for (int v = 0; v < V; ++v) own = own + rows::Two<C>{raw[v], raw[v] * normal[v]};
    });
    own = rows::sum<LANES, 0>(own, parity);
    if (lane != 0 || channel >= channels) continue;
    sum = sum + rows::Two<C>{own.first * scale, own.second * scale};
    if constexpr (WITH != 0) {
      constexpr int SUMS = (WITH & WEIGHT) + (WITH & BIAS) / 2;
      C* to = places.template of_row<PARTIAL>(partial, at) + i64(blockIdx.x % CTAS) * SUMS * all_channels;
      if constexpr (WITH & WEIGHT) *to = own.second;
      if constexpr (WITH & BIAS) to[(SUMS - 1) * all_channels] = own.first;
    }
  }
  sum = rows::cluster_reduce<CTAS, 0>(rows::sum<THREADS, 1>(sum), plus);
  const C terms_of_row = C(length * channels), plain = sum.first / terms_of_row, along = sum.second / terms_of_row;

  // 2. grad_x
#pragma unroll 1
  for (I channel = group; channel < channels; channel += GROUPS) {
    enter(channel);
    line.pass(load, [&](Loaded& loaded, I column, int) {
      C normal[V], raw[V];
      terms(loaded, normal, raw);
#pragma unroll
      for (int v = 0; v < V; ++v) raw[v] = (raw[v] * scale - plain - normal[v] * along) * rstd;
      rows::put(places.template at<GRAD_X>(grad_x, at, part.first + column), raw);
    });
  }
  rows::cluster_barrier<CTAS>();
}

template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    int WITH>
__global__ void __launch_bounds__(THREADS) norm_channels_backward(I count, I channels, I all_channels,
    I length, Places<I, R, RC> places, C* partial, T* grad_x, const T* grad, const T* x, const C* means,
    const C* rstds, const W* weight) {
  gradient_row<T, W, C, V, ITEMS, LANES, THREADS, RESIDENT, R, RC, I, WITH, 1>(
      count, channels, all_channels, length, places, partial, grad_x, grad, x, means, rstds, weight);
}

#if __CUDA_ARCH__ >= 900
template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    int WITH, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(THREADS) norm_channels_backward_cluster(I count,
    I channels, I all_channels, I length, Places<I, R, RC> places, C* partial, T* grad_x, const T* grad, const T* x,
    const C* means, const C* rstds, const W* weight) {
  gradient_row<T, W, C, V, ITEMS, LANES, THREADS, RESIDENT, R, RC, I, WITH, CTAS>(
      count, channels, all_channels, length, places, partial, grad_x, grad, x, means, rstds, weight);
}
#endif
