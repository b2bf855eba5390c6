// A thread's COUNT vectors of the rows to come: by cp.async into shared memory, STAGES rows, where no other thread looks, so that no
// barrier is needed. Accesses of 2 bytes, which cp.async lacks, wait in registers while the row before is worked on.
#pragma once
#include "async_copy.cuh"
#include "rows/pack.cuh"

namespace rows {

template <class T, int V, int COUNT, int THREADS, int STAGES> struct Ahead {
  static constexpr int BYTES = V * int(sizeof(T));
  static constexpr bool NARROW = BYTES < 4;
  static_assert(!NARROW || STAGES == 1);
  Pack<T, V>* own;  // [STAGES][COUNT][THREADS]
  u32 stage = 0;
  Pack<T, V> held[NARROW ? COUNT : 1] = {};

  __device__ __forceinline__ explicit Ahead(unsigned char* shared) : own(reinterpret_cast<Pack<T, V>*>(shared) + threadIdx.x) {}

  // Vector k of the row that takes this stage next: asked for once the present row has been read, or, NARROW, at any time.
  __device__ __forceinline__ void bring(int k, const T* from) {
    if constexpr (NARROW) held[k].load(from);
    else copy_async<BYTES>(shared_address(own + (stage * COUNT + k) * THREADS), from, BYTES);
  }
  // Vector k of the present row, once it has come.
  __device__ __forceinline__ const Pack<T, V>& operator[](int k) const { return own[(stage * COUNT + k) * THREADS]; }

  // To the next row.
  __device__ __forceinline__ void turn() {
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    if constexpr (NARROW)
#pragma unroll
      for (int k = 0; k < COUNT; ++k) own[k * THREADS] = held[k];
  }
};

}  // namespace rows
