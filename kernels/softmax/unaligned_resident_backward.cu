// grad_x = y (grad - sum(grad y)), or LOG: grad - exp(y) sum(grad), along contiguous rows at any alignment. Computed in
// C, rounded once.
//
// Mapping:  LANES threads per row, ITEMS vectors of grad and of y each in registers (rows/shifted_row.cuh);
//           THREADS / LANES rows per CTA. The alignment does not change bits.
// In place: grad_x is stored behind the barrier of the row's sum.
// Shared:   one value per warp.   Bound: DRAM, grad, y and grad_x once.
#include "math/exp.cuh"
#include "rows/group.cuh"
#include "rows/place.cuh"
#include "rows/shifted_row.cuh"

enum Operand { GRAD_X, GRAD, Y, OPERANDS };

template <class T, class C, int DIGITS, int LOG, int V, int ITEMS, int LANES, int THREADS, int R, class I>
__global__ void __launch_bounds__(THREADS) softmax_backward_unaligned_resident(I count, I length, C,
    rows::Places<I, R, 0, OPERANDS> places, T* grad_x, const T* grad, const T* y) {
  using Line = rows::ShiftedRow<T, V, ITEMS, LANES>;
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  const Line line(live ? u32(length) : 0);
  typename Line::Words grad_words = line.fetch(places.template at<GRAD>(grad, at, I(0)), convert<T>(0.0f));
  typename Line::Words y_words = line.fetch(places.template at<Y>(y, at, I(0)), convert<T>(0.0f));
  typename Line::Vectors grads, ys;
  line.shift(grad_words, grads);
  line.shift(y_words, ys);

  // 1. sum along the row
  C sum = 0;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    C g[V], p[V];
    grads[i].widen(g);
    ys[i].widen(p);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += LOG ? g[v] : g[v] * p[v];
  }
  sum = rows::sum<LANES>(sum);

  // 2. gradient
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (line.column(i) >= line.length) break;
    C g[V], p[V];
    grads[i].widen(g);
    ys[i].widen(p);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if constexpr (LOG) {
        // Two factors exp(y / 2): exp(y) may underflow where exp(y) * sum does not.
        const C root = math::exp<DIGITS>(p[v] * C(0.5));
        g[v] -= root * sum * root;
      } else {
        g[v] = p[v] * (g[v] - sum);
      }
    }
    grads[i].round(g);
  }
  line.store(grads, places.template at<GRAD_X>(grad_x, at, I(0)));
}
