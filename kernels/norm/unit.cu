// out = c x, or GRADIENT: grad_x = c (grad - x dot / norm**2) and grad_g = dot / norm, along rows; c = g / max(norm,
// eps), norm = sqrt(sum(x**2)), dot = sum(grad x). Where norm < eps, grad_x = c grad. Computed in C, rounded once.
//
// unit:         LANES threads per row: part of a warp, a warp, or a CTA (rows/row.cuh), resident or streamed.
// unit_cluster: the CTAs of a cluster share a row (rows/cluster_reduce.cuh).
// SCALED:       g is there, one per row; else 1.
// Shared:       two values per warp.   Bound: DRAM.
#include "norm/unit.cuh"
#include "rows/cluster_reduce.cuh"
#include "rows/hold.cuh"
#include "rows/place.cuh"
#include "rows/row.cuh"

using namespace norms;
enum Operand { OUT, GRAD_G, GRAD, X, G, OPERANDS };

template <class T, class C, bool SCALED, bool GRADIENT, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R,
    int RC, class I, int CTAS>
__device__ __forceinline__ void unit_row(I count, I length, C eps, const rows::Places<I, R, RC, OPERANDS>& places,
    T* out, T* grad_g, const T* grad, const T* x, const T* g) {
  struct Loaded { rows::Pack<T, V> x, grad; };
  const rows::Part<CTAS, I> part(length, V, THREADS / LANES, threadIdx.x / LANES);
  const bool live = part.row < count;
  i64 at[OPERANDS];
  places.enter(live ? part.row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? part.length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    Loaded loaded;
    loaded.x = rows::loaded<T, V>(places.template at<X>(x, at, part.first + column));
    if constexpr (GRADIENT) loaded.grad = rows::loaded<T, V>(places.template at<GRAD>(grad, at, part.first + column));
    return loaded;
  };
  line.load(load);
  if constexpr (GRADIENT) rows::hold(line, &Loaded::x, &Loaded::grad);
  else rows::hold(line, &Loaded::x);

  // 1. sums along the row
  using State = UnitSums<C, GRADIENT>;
  State sums = State::none();
  line.pass(load, [&](Loaded& loaded, I, int) {
    C a[V], d[V] = {};
    loaded.x.widen(a);
    if constexpr (GRADIENT) loaded.grad.widen(d);
#pragma unroll
    for (int v = 0; v < V; ++v) sums.add(a[v], d[v]);
  });
  const auto plus = [](const State& a, const State& b) { return a + b; };
  sums = rows::cluster_reduce<CTAS, 0>(rows::group_reduce<LANES>(sums, plus), plus);

  // 2. factors of the row
  const UnitFactors<C, GRADIENT> of(sums, SCALED ? convert<C>(*places.template of_row<G>(g, at)) : C(1), eps);
  if constexpr (GRADIENT && SCALED)
    if (live && part.first == 0 && threadIdx.x % LANES == 0)
      *places.template of_row<GRAD_G>(grad_g, at) = convert<T>(of.of_scale(sums));

  // 3. the row
  line.pass(load, [&](Loaded& loaded, I column, int) {
    C a[V], d[V] = {};
    loaded.x.widen(a);
    if constexpr (GRADIENT) loaded.grad.widen(d);
#pragma unroll
    for (int v = 0; v < V; ++v) a[v] = of(a[v], d[v]);
    rows::put(places.template at<OUT>(out, at, part.first + column), a);
  });
  rows::cluster_barrier<CTAS>();
}

template <class T, class C, bool SCALED, bool GRADIENT, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R,
    int RC, class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
    unit(I count, I length, C eps, rows::Places<I, R, RC, OPERANDS> places, T* out, T* grad_g, const T* grad,
        const T* x, const T* g) {
  unit_row<T, C, SCALED, GRADIENT, V, ITEMS, LANES, THREADS, RESIDENT, R, RC, I, 1>(
      count, length, eps, places, out, grad_g, grad, x, g);
}

#if __CUDA_ARCH__ >= 900
template <class T, class C, bool SCALED, bool GRADIENT, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R,
    int RC, class I, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(THREADS, 1)
    unit_cluster(I count, I length, C eps, rows::Places<I, R, RC, OPERANDS> places, T* out, T* grad_g, const T* grad,
        const T* x, const T* g) {
  unit_row<T, C, SCALED, GRADIENT, V, ITEMS, LANES, THREADS, RESIDENT, R, RC, I, CTAS>(
      count, length, eps, places, out, grad_g, grad, x, g);
}
#endif
