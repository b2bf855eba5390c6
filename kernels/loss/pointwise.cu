// Losses of an element and its target, Loss::apply of the text before this file: each, their sum, or the gradient of x,
// and Loss::second, that of a third operand. Computed in C.
//
// pointwise:       one result per thread, or both gradients.
// pointwise_sum:   a CTA adds up every gridDim.x-th tile; the number of elements alone fixes the grid, so the order.
//                  pointwise_total (total.cu) adds up what they find.
// Shared:          one value per warp.   Bound: DRAM.
#include "core/index.cuh"
#include "rows/group.cuh"

constexpr int POINTWISE_THREADS = 256;
enum Pointwise { OUT, SECOND, GRAD, X, TARGET, THIRD, OPERANDS };

template <class E> __device__ __forceinline__ E* moved(E* base, i64 bytes) {
  return reinterpret_cast<E*>(reinterpret_cast<u64>(base) + bytes);
}

// What the loss of an element is computed from; operands that a loss lacks are 0, and the gradient 1.
template <class C> struct PointwiseElement {
  C grad, x, target, third;

  template <class T>
  __device__ __forceinline__ PointwiseElement(
      const i64 (&at)[OPERANDS], const C* grads, const T* xs, const T* targets, const T* thirds) {
    grad = grads ? *moved(grads, at[GRAD]) : C(1);
    x = convert<C>(*moved(xs, at[X]));
    target = convert<C>(*moved(targets, at[TARGET]));
    third = thirds ? convert<C>(*moved(thirds, at[THIRD])) : C(0);
  }
};

template <class O, class T, class C, int DIGITS, int R, class I>
__global__ void __launch_bounds__(POINTWISE_THREADS) pointwise(I count, C param, C scale, Dims<I, R, OPERANDS> dims,
    O* out, O* second, const C* grad, const T* x, const T* target, const T* third) {
  const u64 i = u64(blockIdx.x) * POINTWISE_THREADS + threadIdx.x;
  if (i >= count) return;
  i64 at[OPERANDS] = {};
  dims.locate(I(i), at);
  const PointwiseElement<C> e(at, grad, x, target, third);
  *moved(out, at[OUT]) = convert<O>(Loss::apply<DIGITS, C>(e.grad, e.x, e.target, e.third, param, scale));
  if (second)
    *moved(second, at[SECOND]) = convert<O>(Loss::second<DIGITS, C>(e.grad, e.x, e.target, e.third, param, scale));
}

template <class T, class C, int DIGITS, int R, class I>
__global__ void __launch_bounds__(POINTWISE_THREADS) pointwise_sum(I count, C param, C scale,
    Dims<I, R, OPERANDS> dims, C* partial, const void*, const C* grad, const T* x, const T* target, const T* third) {
  C sum = 0;
#pragma unroll 4
  for (u64 i = u64(blockIdx.x) * POINTWISE_THREADS + threadIdx.x; i < count; i += u64(gridDim.x) * POINTWISE_THREADS) {
    i64 at[OPERANDS] = {};
    dims.locate(I(i), at);
    const PointwiseElement<C> e(at, grad, x, target, third);
    sum += Loss::apply<DIGITS, C>(e.grad, e.x, e.target, e.third, param, scale);
  }
  sum = rows::sum<POINTWISE_THREADS>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
