// A thread's COUNT vectors of the rows to come: by cp.async into shared memory, STAGES rows, where no other thread looks, so that no
// barrier is needed. Accesses of 2 bytes, which cp.async lacks, wait in registers while the row before is worked on. `fetch(row)`
// calls `bring` for each vector of a row. Nothing comes where not ON.
#pragma once
#include "async_copy.cuh"
#include "rows/pack.cuh"

namespace rows {

template <class T, int V, int COUNT, int THREADS, int STAGES, bool ON = true> struct Ahead {
  static constexpr int BYTES = V * int(sizeof(T));
  static constexpr bool NARROW = BYTES < 4;
  static_assert(!NARROW || STAGES == 1);
  Pack<T, V>* own;  // [STAGES][COUNT][THREADS]
  u32 stage = 0;
  Pack<T, V> held[NARROW ? COUNT : 1] = {};

  __device__ __forceinline__ explicit Ahead(unsigned char* shared) : own(reinterpret_cast<Pack<T, V>*>(shared) + threadIdx.x) {}

  // The first rows, `step` apart from `row` on, on their way.
  template <class Fetch, class I> __device__ __forceinline__ void start(const Fetch& fetch, I row, I step) {
    if constexpr (ON)
#pragma unroll
      for (int ahead = 0; ahead < STAGES; ++ahead, turn()) order(fetch, row + ahead * step);
  }
  // Waits for `row`; then its vectors may be read.
  template <class Fetch, class I> __device__ __forceinline__ void enter(const Fetch& fetch, I row, I step) {
    if constexpr (ON && NARROW) order(fetch, row + step);
    if constexpr (ON) await_copies<STAGES - 1>();
  }
  // `row` has been read: its stage takes the one STAGES ahead.
  template <class Fetch, class I> __device__ __forceinline__ void leave(const Fetch& fetch, I row, I step) {
    if constexpr (ON && !NARROW) order(fetch, row + STAGES * step);
    turn();
  }
  __device__ __forceinline__ void bring(int k, const T* from) {
    if constexpr (NARROW) held[k].load(from);
    else copy_async<BYTES>(shared_address(own + (stage * COUNT + k) * THREADS), from, BYTES);
  }
  __device__ __forceinline__ const Pack<T, V>& operator[](int k) const { return own[(stage * COUNT + k) * THREADS]; }

 private:
  template <class Fetch, class I> __device__ __forceinline__ void order(const Fetch& fetch, I row) {
    fetch(row);
    commit_copies();
  }
  __device__ __forceinline__ void turn() {
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    if constexpr (ON && NARROW)
#pragma unroll
      for (int k = 0; k < COUNT; ++k) own[k * THREADS] = held[k];
  }
};

}  // namespace rows
