// Prefetcher of a thread's COUNT vectors of the next STAGES rows, by cp.async into shared memory that only this thread
// reads, so that no barrier is needed. 2-byte accesses, which cp.async lacks, are loaded to registers one row ahead
// instead. fetch(row) calls `issue` for each vector of a row. Not ON: does nothing.
#pragma once
#include "ptx/async_copy.cuh"
#include "rows/pack.cuh"

namespace rows {

template <class T, int V, int COUNT, int THREADS, int STAGES, bool ON = true> struct Prefetcher {
  static constexpr int BYTES = V * int(sizeof(T));
  static constexpr bool NARROW = BYTES < 4;
  static_assert(!NARROW || STAGES == 1);
  Pack<T, V>* own;  // [STAGES][COUNT][THREADS]
  u32 stage = 0;
  Pack<T, V> held[NARROW ? COUNT : 1] = {};

  __device__ __forceinline__ explicit Prefetcher(unsigned char* shared)
      : own(reinterpret_cast<Pack<T, V>*>(shared) + threadIdx.x) {}

  // Prologue: issues the first STAGES rows: row, row + step, ...
  template <class Fetch, class I> __device__ __forceinline__ void start(const Fetch& fetch, I row, I step) {
    if constexpr (ON)
#pragma unroll
      for (int ahead = 0; ahead < STAGES; ++ahead, advance()) commit(fetch, row + ahead * step);
  }
  // Wait: afterwards the vectors of `row` may be read.
  template <class Fetch, class I> __device__ __forceinline__ void wait(const Fetch& fetch, I row, I step) {
    if constexpr (ON && NARROW) commit(fetch, row + step);
    if constexpr (ON) await_copies<STAGES - 1>();
  }
  // Release: `row` has been read; its stage is refilled with the row STAGES ahead.
  template <class Fetch, class I> __device__ __forceinline__ void release(const Fetch& fetch, I row, I step) {
    if constexpr (ON && !NARROW) commit(fetch, row + STAGES * step);
    advance();
  }
  // Issues the load of vector k.
  __device__ __forceinline__ void issue(int k, const T* from) {
    if constexpr (NARROW) held[k].load(from);
    else copy_async<BYTES>(shared_address(own + (stage * COUNT + k) * THREADS), from, BYTES);
  }
  __device__ __forceinline__ const Pack<T, V>& operator[](int k) const { return own[(stage * COUNT + k) * THREADS]; }

 private:
  // Issues and commits one row.
  template <class Fetch, class I> __device__ __forceinline__ void commit(const Fetch& fetch, I row) {
    fetch(row);
    commit_copies();
  }
  // Advances to the next stage.
  __device__ __forceinline__ void advance() {
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    if constexpr (ON && NARROW)
#pragma unroll
      for (int k = 0; k < COUNT; ++k) own[k * THREADS] = held[k];
  }
};

}  // namespace rows
