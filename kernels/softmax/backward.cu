// grad_x = y (grad - sum(grad y)), SCALED: times scale, or LOG: grad - exp(y) sum(grad), along rows. Computed in C,
// rounded once.
//
// softmax_backward:          LANES threads per row (rows/row.cuh), resident in registers or streamed.
// softmax_backward_unaligned: one CTA per long row at any alignment, streamed (rows/unaligned.cuh; variant
// "unaligned"). *_cluster:                 the CTAs of a cluster share a row, sums combined through DSMEM
// (rows/cluster_reduce.cuh). softmax_backward_kept_cluster: as softmax_backward_unaligned_cluster; the first KEPT of
// grad and y are read once and
//                            stay in shared memory (variant "kept").
// Shared:    one value per warp.   Bound: DRAM.
#include "math/exp.cuh"
#include "rows/cluster_reduce.cuh"
#include "rows/hold.cuh"
#include "rows/unaligned.cuh"
#include "rows/place.cuh"

enum Of { PLAIN, LOG, SCALED };
enum Operand { GRAD_X, GRAD, Y, OPERANDS };

template <class C, int DIGITS, int OF> __device__ __forceinline__ C gradient(C grad, C y, C sum, C scale) {
  // exp(y) is applied as two factors exp(y / 2): exp(y) may underflow where exp(y) * sum does not.
  const C root = OF == LOG ? math::exp<DIGITS>(y * C(0.5)) : C(0);
  const C plain = OF == LOG ? grad - root * sum * root : y * (grad - sum);
  return OF == SCALED ? plain * scale : plain;
}

template <class T, class C, int DIGITS, int OF, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R,
    int RC, class I, int CTAS>
__device__ __forceinline__ void gradient_row(
    I count, I length, C scale, const rows::Places<I, R, RC, OPERANDS>& places, T* grad_x, const T* grad, const T* y) {
  struct Loaded { rows::Pack<T, V> grad, y; };
  const rows::Part<CTAS, I> part(length, V, THREADS / LANES, threadIdx.x / LANES);
  const bool live = part.row < count;
  i64 at[OPERANDS];
  places.enter(live ? part.row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? part.length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    return Loaded{rows::loaded<T, V>(places.template at<GRAD>(grad, at, part.first + column)),
        rows::loaded<T, V>(places.template at<Y>(y, at, part.first + column))};
  };
  line.load(load);
  rows::hold(line, &Loaded::grad, &Loaded::y);

  // 1. sum along the row
  C sum = 0;
  line.pass(load, [&](Loaded& loaded, I, int) {
    C g[V], p[V];
    loaded.grad.widen(g);
    loaded.y.widen(p);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += OF == LOG ? g[v] : g[v] * p[v];
  });
  sum = rows::cluster_reduce<CTAS, 0>(rows::sum<LANES>(sum), [](C a, C b) { return a + b; });

  // 2. gradient
  line.pass(load, [&](Loaded& loaded, I column, int) {
    C g[V], p[V];
    loaded.grad.widen(g);
    loaded.y.widen(p);
#pragma unroll
    for (int v = 0; v < V; ++v) g[v] = gradient<C, DIGITS, OF>(g[v], p[v], sum, scale);
    rows::put(places.template at<GRAD_X>(grad_x, at, part.first + column), g);
  });
  rows::cluster_barrier<CTAS>();
}

// Second launch bound: three CTAs of 512 threads on an SM; log_softmax_backward takes 0.96 of the time (H200).
template <bool RESIDENT, class C, int V, int THREADS>
constexpr int LEAST_CTAS = RESIDENT && V == 4 && sizeof(C) == 4 && THREADS == 512
    ? 3 : rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>;

template <class T, class C, int DIGITS, int OF, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R,
    int RC, class I>
__global__ void __launch_bounds__(THREADS, (LEAST_CTAS<RESIDENT, C, V, THREADS>))
    softmax_backward(I count, I length, C scale, rows::Places<I, R, RC, OPERANDS> places, T* grad_x, const T* grad,
        const T* y) {
  gradient_row<T, C, DIGITS, OF, V, ITEMS, LANES, THREADS, RESIDENT, R, RC, I, 1>(
      count, length, scale, places, grad_x, grad, y);
}

#if __CUDA_ARCH__ >= 900
template <class T, class C, int DIGITS, int OF, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R,
    int RC, class I, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(THREADS, 1) softmax_backward_cluster(
    I count, I length, C scale, rows::Places<I, R, RC, OPERANDS> places, T* grad_x, const T* grad, const T* y) {
  gradient_row<T, C, DIGITS, OF, V, ITEMS, LANES, THREADS, RESIDENT, R, RC, I, CTAS>(
      count, length, scale, places, grad_x, grad, y);
}
#endif

template <class T, class C, int DIGITS, int OF, int V, int ITEMS, int LANES, int R, class I, int CTAS, int KEPT>
__device__ __forceinline__ void gradient_part(
    I length, C scale, const rows::Places<I, R, 0, OPERANDS>& places, T* grad_x, const T* grad, const T* y) {
  const rows::Part<CTAS, I> part(length, V, 1, 0);
  i64 at[OPERANDS];
  places.enter(part.row, at);
  rows::UnalignedRow<T, C, V, ITEMS, LANES, I, 2> line{
      {places.template at<GRAD>(grad, at, part.first), places.template at<Y>(y, at, part.first)}, part.length};
  line.template keep<KEPT>(part.columns(length, V));
  // 1. sum along the row
  C sum = 0;
  line.template pass<KEPT, true>(C(0), [&](C (&a)[2][V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) sum += OF == LOG ? a[0][v] : a[0][v] * a[1][v];
  });
  sum = rows::cluster_reduce<CTAS, 0>(rows::sum<LANES>(sum), [](C a, C b) { return a + b; });
  // 2. gradient
  line.template write<KEPT>(places.template at<GRAD_X>(grad_x, at, part.first),
             [&](const C (&a)[2], I) { return gradient<C, DIGITS, OF>(a[0], a[1], sum, scale); });
  rows::cluster_barrier<CTAS>();
}

template <class T, class C, int DIGITS, int OF, int V, int ITEMS, int LANES, int R, class I>
__global__ void __launch_bounds__(LANES)
softmax_backward_unaligned(
    I length, C scale, rows::Places<I, R, 0, OPERANDS> places, T* grad_x, const T* grad, const T* y) {
  gradient_part<T, C, DIGITS, OF, V, ITEMS, LANES, R, I, 1, 0>(length, scale, places, grad_x, grad, y);
}

#if __CUDA_ARCH__ >= 900
template <class T, class C, int DIGITS, int OF, int V, int ITEMS, int LANES, int R, class I, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(LANES, 1) softmax_backward_unaligned_cluster(
    I length, C scale, rows::Places<I, R, 0, OPERANDS> places, T* grad_x, const T* grad, const T* y) {
  gradient_part<T, C, DIGITS, OF, V, ITEMS, LANES, R, I, CTAS, 0>(length, scale, places, grad_x, grad, y);
}

template <class T, class C, int DIGITS, int OF, int V, int ITEMS, int LANES, int R, class I, int KEPT, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(LANES, (rows::KEPT_CTAS<C, LANES>))
softmax_backward_kept_cluster(
    I length, C scale, rows::Places<I, R, 0, OPERANDS> places, T* grad_x, const T* grad, const T* y) {
  gradient_part<T, C, DIGITS, OF, V, ITEMS, LANES, R, I, CTAS, KEPT>(length, scale, places, grad_x, grad, y);
}
#endif
