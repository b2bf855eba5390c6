// loss = -w[y] x[y] of each row of log-probabilities x and its label y, and the gradient of x, which is 0 elsewhere.
//
// Mapping:  one thread per row. nll_backward writes x[y]'s gradient into rows that are 0 already.
// Labels:   ignored: loss and gradient are 0. Out of range: never read; loss and the row's gradients are NaN, and
//           `status` is set.
// Shared:   none.   Bound: DRAM, one sector per row.
#include "core/dtype.cuh"
#include "loss/labelled.cuh"

constexpr int NLL_THREADS = 256;

// Steps count elements.
template <class T, class W, class C, class L>
__global__ void __launch_bounds__(NLL_THREADS) nll_rows(u32 count, i64 classes, i64 ignore, C* losses, i64 loss_step,
    i32* status, const L* labels, i64 label_step, const W* weight, i64 weight_step, const T* x, i64 row_step,
    i64 class_step) {
  const u32 row = blockIdx.x * NLL_THREADS + threadIdx.x;
  if (row >= count) return;
  const Labelled<C> own(labels + row * label_step, ignore, classes, [&](i64 label) {
    return weight ? convert<C>(weight[label * weight_step]) : C(1);
  });
  C loss = own.weight;
  if (own.wrong(classes)) {
    if (status) atomicOr(status, 1);
  } else if (own.counts) {
    loss = -(own.weight * convert<C>(x[row * row_step + own.label * class_step]));
  }
  losses[row * loss_step] = loss;
}

// `totals`: sum(w[y]), MEAN alone.
template <class T, class W, class C, class L, bool MEAN>
__global__ void __launch_bounds__(NLL_THREADS) nll_backward(u32 count, i64 classes, i64 ignore, const C* grad,
    i64 grad_step, const C* totals, i32* status, const L* labels, i64 label_step, const W* weight, i64 weight_step,
    T* out, i64 row_step, i64 class_step) {
  const u32 row = blockIdx.x * NLL_THREADS + threadIdx.x;
  if (row >= count) return;
  const Labelled<C> own(labels + row * label_step, ignore, classes, [&](i64 label) {
    return weight ? convert<C>(weight[label * weight_step]) : C(1);
  });
  T* slopes = out + row * row_step;
  if (own.wrong(classes)) {
    if (status) atomicOr(status, 1);
    for (i64 label = 0; label < classes; ++label) slopes[label * class_step] = convert<T>(not_a_number<C>());
  } else if (own.counts) {
    const C g = grad[row * grad_step] / (MEAN ? totals[0] : C(1));
    slopes[own.label * class_step] = convert<T>(-(g * own.weight));
  }
}
