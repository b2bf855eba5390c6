// The results of unit.cu along an axis that is not innermost: out = c x, or GRADIENT: grad_x and grad_g. Computed in C,
// rounded once.
//
// unit_columns:         V adjacent columns per thread; WARPS warps split the axis, DEPTH loads of an input in flight;
//                       two passes. Warps' sums are added in warp order, so V does not change bits.
// unit_columns_cluster: the CTAs of a cluster share a long axis, which takes one CTA too long where columns are few.
// SCALED:               g is there, one per column; else 1.
// Shared:               the sums of each column and warp.   Bound: DRAM.
#include "norm/unit.cuh"
#include "rows/cluster_reduce.cuh"
#include "rows/pack.cuh"
#include "rows/place.cuh"

using namespace norms;
enum Operand { OUT, GRAD_G, GRAD, X, G, OPERANDS };

// `places` has the other axes, the innermost of them as columns; `*_step`: byte stride of the axis of the sums.
template <class T, class C, bool SCALED, bool GRADIENT, int V, int WARPS, int R, class I, int CTAS>
__device__ __forceinline__ void unit_strip(I count, I length, I extent, C eps,
    const rows::Places<I, R, 0, OPERANDS>& places, i64 out_step, i64 grad_step, i64 x_step, T* out, T* grad_g,
    const T* grad, const T* x, const T* g) {
  using State = UnitSums<C, GRADIENT>;
  using Pack = rows::Pack<T, V>;
  constexpr int DEPTH = (V * int(sizeof(C)) > 8 ? 4 : 8) / (1 + GRADIENT);
  constexpr I STEP = I(DEPTH) * WARPS;
  __shared__ State sums[WARPS][V][32];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I strip = I(blockIdx.x) / CTAS, rank = I(blockIdx.x) % CTAS;
  const I blocks = (length + 32 * V - 1) / (32 * V), row = strip / blocks;
  const I column = ((strip - row * blocks) * 32 + lane) * V;
  const I part = (extent + CTAS - 1) / CTAS, first = min(extent, part * rank);
  const bool live = row < count && column < length;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  const I start = live ? column : 0, end = live ? min(extent, first + part) : 0;
  const u8* const from_x = reinterpret_cast<const u8*>(places.template at<X>(x, at, start));
  const u8* const from_grad = reinterpret_cast<const u8*>(places.template at<GRAD>(grad, at, start));
  const auto load = [&](I base, Pack (&xs)[DEPTH], Pack (&grads)[DEPTH]) {
#pragma unroll
    for (int k = 0; k < DEPTH; ++k)
      if (const i64 down = i64(base + k * WARPS); base + k * WARPS < end) {
        xs[k].load(reinterpret_cast<const T*>(from_x + down * x_step));
        if constexpr (GRADIENT) grads[k].load(reinterpret_cast<const T*>(from_grad + down * grad_step));
      }
  };

  // 1. sums of every column
  State sum[V];
#pragma unroll
  for (int v = 0; v < V; ++v) sum[v] = State::none();
#pragma unroll 1
  for (I base = first + warp; base < end; base += STEP) {
    Pack xs[DEPTH], grads[DEPTH];
    load(base, xs, grads);
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
      if (base + k * WARPS >= end) break;
      C a[V], d[V] = {};
      xs[k].widen(a);
      if constexpr (GRADIENT) grads[k].widen(d);
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v].add(a[v], d[v]);
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) sums[warp][v][lane] = sum[v];
  __syncthreads();
#pragma unroll
  for (int v = 0; v < V; ++v) {
    sum[v] = sums[0][v][lane];
#pragma unroll 1
    for (int w = 1; w < WARPS; ++w) sum[v] = sum[v] + sums[w][v][lane];
  }
  if constexpr (CTAS > 1) rows::join_strips<CTAS>(sum, [](const State& a, const State& b) { return a + b; });

  // 2. factors of every column
  C factor[V], along[V];
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const C scale = SCALED && live ? convert<C>(places.template at<G>(g, at, column)[v]) : C(1);
    const UnitFactors<C, GRADIENT> of(sum[v], scale, eps);
    factor[v] = of.factor, along[v] = of.along;
    if constexpr (GRADIENT && SCALED)
      if (live && rank == 0 && warp == 0)
        places.template at<GRAD_G>(grad_g, at, column)[v] = convert<T>(of.of_scale(sum[v]));
  }

  // 3. result
  u8* const to = reinterpret_cast<u8*>(places.template at<OUT>(out, at, start));
#pragma unroll 1
  for (I base = first + warp; base < end; base += STEP) {
    Pack xs[DEPTH], grads[DEPTH];
    load(base, xs, grads);
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
      if (base + k * WARPS >= end) break;
      C a[V], d[V] = {};
      xs[k].widen(a);
      if constexpr (GRADIENT) grads[k].widen(d);
#pragma unroll
      for (int v = 0; v < V; ++v) a[v] = factor[v] * (GRADIENT ? d[v] - a[v] * along[v] : a[v]);
      rows::put(reinterpret_cast<T*>(to + i64(base + k * WARPS) * out_step), a);
    }
  }
  rows::cluster_barrier<CTAS>();
}

template <class T, class C, bool SCALED, bool GRADIENT, int V, int WARPS, int R, class I>
__global__ void __launch_bounds__(WARPS * 32) unit_columns(I count, I length, I extent, C eps,
    rows::Places<I, R, 0, OPERANDS> places, i64 out_step, i64 grad_step, i64 x_step, T* out, T* grad_g, const T* grad,
    const T* x, const T* g) {
  unit_strip<T, C, SCALED, GRADIENT, V, WARPS, R, I, 1>(
      count, length, extent, eps, places, out_step, grad_step, x_step, out, grad_g, grad, x, g);
}

#if __CUDA_ARCH__ >= 900
template <class T, class C, bool SCALED, bool GRADIENT, int V, int WARPS, int R, class I, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(WARPS * 32) unit_columns_cluster(I count, I length,
    I extent, C eps, rows::Places<I, R, 0, OPERANDS> places, i64 out_step, i64 grad_step, i64 x_step, T* out, T* grad_g,
    const T* grad, const T* x, const T* g) {
  unit_strip<T, C, SCALED, GRADIENT, V, WARPS, R, I, CTAS>(
      count, length, extent, eps, places, out_step, grad_step, x_step, out, grad_g, grad, x, g);
}
#endif
