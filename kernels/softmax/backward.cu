// Gradients from the result y: grad_x = y (grad - sum(grad y)), or LOG: grad - exp(y) sum(grad), along rows. Computed in C, rounded
// once. LANES threads share a row (rows/row.cuh). Shared memory: a value a warp. Bound: memory bandwidth.
#include "math/exp.cuh"
#include "rows/group.cuh"
#include "rows/place.cuh"
#include "rows/row.cuh"

enum Operand { GRAD_X, GRAD, Y, OPERANDS };

template <class T, class C, int DIGITS, bool LOG, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
softmax_backward(I count, I length, rows::Places<I, R, RC, OPERANDS> places, T* grad_x, const T* grad, const T* y) {
  struct Loaded { rows::Pack<T, V> grad, y; };
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    return Loaded{rows::loaded<T, V>(places.template at<GRAD>(grad, at, column)), rows::loaded<T, V>(places.template at<Y>(y, at, column))};
  };
  line.load(load);

  // The sum along the row.
  C sum = 0;
  line.pass(load, [&](Loaded& loaded, I, int) {
    C g[V], p[V];
    loaded.grad.widen(g);
    loaded.y.widen(p);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += LOG ? g[v] : g[v] * p[v];
  });
  sum = rows::sum<LANES>(sum);

  // The gradient.
  line.pass(load, [&](Loaded& loaded, I column, int) {
    C g[V], p[V];
    loaded.grad.widen(g);
    loaded.y.widen(p);
#pragma unroll
    for (int v = 0; v < V; ++v) g[v] = LOG ? g[v] - math::exp<DIGITS>(p[v]) * sum : p[v] * (g[v] - sum);
    rows::put(places.template at<GRAD_X>(grad_x, at, column), g);
  });
}
