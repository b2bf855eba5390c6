// out[i] = value for the elements of a strided view.
//
// Grid:      one element per thread.   Bound: latency, DRAM.
#include "core/dtype.cuh"
#include "core/index.cuh"

template <class T, int THREADS, int R, class I>
__global__ void __launch_bounds__(THREADS) fill_strided(I count, Dims<I, R, 1> dims, T* out, T value) {
  const I i = I(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= count) return;
  i64 offset[1] = {0};
  if constexpr (R > 0) dims.locate(i, offset);
  *reinterpret_cast<T*>(reinterpret_cast<u8*>(out) + offset[0]) = value;
}
