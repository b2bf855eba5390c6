// out = x where x > 0, slope * x elsewhere; computed in f32, rounded once.
//
// Grid:   one thread per element, THREADS per CTA.
// Bound:  DRAM, twice the bytes of x.
#include "core/dtype.cuh"

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS)
sloped_relu(T* out, const T* x, float slope, u64 count) {
  const u64 i = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= count) return;
  const float value = convert<float>(x[i]);
  out[i] = convert<T>(value > 0 ? value : slope * value);
}
