// Losses of an element and its target, Loss::apply of the text before this file: each, their sum, or the gradient of x.
// Computed in C.
//
// pointwise:       one result per thread.
// pointwise_sum:   a CTA adds up every gridDim.x-th tile; the number of elements alone fixes the grid, so the order.
//                  pointwise_total (total.cu) adds up what they find.
// Shared:          one value per warp.   Bound: DRAM.
#include "core/index.cuh"
#include "rows/group.cuh"

constexpr int POINTWISE_THREADS = 256;
enum Pointwise { OUT, GRAD, X, TARGET, OPERANDS };

template <class E> __device__ __forceinline__ E* moved(E* base, i64 bytes) {
  return reinterpret_cast<E*>(reinterpret_cast<u64>(base) + bytes);
}

// The loss of element i, or the gradient.
template <int DIGITS, class C, class T>
__device__ __forceinline__ C loss_of(const i64 (&at)[OPERANDS], const C* grad, const T* x,
    const T* target, C beta, C delta, C scale) {
  const C pull = grad ? *moved(grad, at[GRAD]) : C(1);
  return Loss::apply<DIGITS, C>(
      pull, convert<C>(*moved(x, at[X])), convert<C>(*moved(target, at[TARGET])), beta, delta, scale);
}

template <class O, class T, class C, int DIGITS, int R, class I>
__global__ void __launch_bounds__(POINTWISE_THREADS) pointwise(I count, C beta, C delta, C scale,
    Dims<I, R, OPERANDS> dims, O* out, const C* grad, const T* x, const T* target) {
  const u64 i = u64(blockIdx.x) * POINTWISE_THREADS + threadIdx.x;
  if (i >= count) return;
  i64 at[OPERANDS] = {};
  dims.locate(I(i), at);
  *moved(out, at[OUT]) = convert<O>(loss_of<DIGITS>(at, grad, x, target, beta, delta, scale));
}

template <class T, class C, int DIGITS, int R, class I>
__global__ void __launch_bounds__(POINTWISE_THREADS) pointwise_sum(I count, C beta, C delta, C scale,
    Dims<I, R, OPERANDS> dims, C* partial, const C* grad, const T* x, const T* target) {
  C sum = 0;
#pragma unroll 4
  for (u64 i = u64(blockIdx.x) * POINTWISE_THREADS + threadIdx.x; i < count; i += u64(gridDim.x) * POINTWISE_THREADS) {
    i64 at[OPERANDS] = {};
    dims.locate(I(i), at);
    sum += loss_of<DIGITS>(at, grad, x, target, beta, delta, scale);
  }
  sum = rows::sum<POINTWISE_THREADS>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
