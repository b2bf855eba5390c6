// out[i] = start + i * step, and out[count - 1] = last where that is given; computed in C, rounded to T.
//
// Threads:  UNROLL chunks of V elements.
// Shared:   none.   Bound: DRAM, the bytes written.
#include "core/index.cuh"

constexpr int THREADS = 256;

template <class T> struct Rounded {
  static __device__ __forceinline__ T from(double x) { return T(x); }
  static __device__ __forceinline__ T from(i64 x) { return T(x); }
};
template <> struct Rounded<f16> {
  static __device__ __forceinline__ f16 from(double x) { return convert<f16>(float(x)); }
};
template <> struct Rounded<bf16> {
  static __device__ __forceinline__ bf16 from(double x) { return convert<bf16>(float(x)); }
};

__device__ __forceinline__ double term(double start, double step, u64 i) { return fma(double(i), step, start); }
__device__ __forceinline__ i64 term(i64 start, i64 step, u64 i) { return i64(u64(start) + i * u64(step)); }

template <class I, class T, class C, int V, int UNROLL>
__global__ void __launch_bounds__(THREADS) sequence(T* out, I count, C start, C step, C last, i32 ends) {
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const I first = ((I(blockIdx.x) * UNROLL + u) * THREADS + threadIdx.x) * V;
    if (first >= count) return;
    Vec<T, V> value;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const I i = first + v;
      value.at[v] = Rounded<T>::from(ends && i + 1 == count ? last : term(start, step, i));
    }
    if (first + V <= count) {
      *reinterpret_cast<Vec<T, V>*>(out + first) = value;
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (first + v < count) out[first + v] = value.at[v];
    }
  }
}
