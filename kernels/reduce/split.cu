// first, second = the members of pairs (second pass of a reduction with two results).
//
// Grid:      one result per thread.   Bound: latency.
#include "core/dtype.cuh"
#include "core/index.cuh"
#include "rows/reducers.cuh"

enum Operand { FIRST, SECOND, PAIRS, OPERANDS };

template <class T> __device__ __forceinline__ T* stepped(T* base, i64 bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<u64>(base) + bytes);
}

template <class T, int THREADS, int R, class I>
__global__ void __launch_bounds__(THREADS)
    split_pairs(I results, Dims<I, R, OPERANDS> dims, T* first, T* second, const rows::ResultPair<T>* pairs) {
  const I result = I(blockIdx.x) * THREADS + threadIdx.x;
  if (result >= results) return;
  i64 offset[OPERANDS] = {0};
  if constexpr (R > 0) dims.locate(result, offset);
  const rows::ResultPair<T> pair = *stepped(pairs, offset[PAIRS]);
  *stepped(first, offset[FIRST]) = pair.first;
  *stepped(second, offset[SECOND]) = pair.second;
}
