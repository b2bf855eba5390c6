// Page table lookups for one k_block, in shared memory, one k_block ahead of the copies that use them.
#pragma once
#include "attention/opaque.cuh"
#include "attention/cache.cuh"
#include "ptx/async_copy.cuh"

namespace attention {

// Double-buffered by k_block parity: each key's page id (by cp.async) and slot in the page, slot -1 where no query of
// the CTA sees the key. Readable after the copies are awaited and a CTA barrier.
template <int BN> struct PageLines {
  static constexpr int BYTES = 2 * BN * 8;
  u32 lines;  // shared-memory address

  __device__ __forceinline__ u32 line(int block, int key) const { return lines + ((block & 1) * BN + key) * 8; }

  // `table` is the sequence's page table row; one thread per key.
  __device__ __forceinline__ void look_up(const Cache& cache, const i32* table, int block, Keys seen) const {
    const int thread = threadIdx.x, size = int(opaque(cache.page_keys)), key = block * BN + thread, page = key / size;
    if (thread >= BN) return;
    const bool counts = key >= seen.first && key < seen.end;
    copy_async<4>(line(block, thread), table + (counts ? page : 0), counts ? 4 : 0);
    store_shared(line(block, thread) + 4, counts ? key - page * size : -1);
  }

  // Address of a key's row of one head; null if it must not be read.
  template <class T>
  __device__ __forceinline__ const T* row(
      const Cache& cache, const T* head, const OperandStrides& strides, int block, int key) const {
    Vec<i32, 2> at;
    load_shared(at, line(block, key));
    const i64 place = i64(at.at[0]) * int(strides.batch) + i64(at.at[1]) * int(strides.row);
    return at.at[1] >= 0 && u32(at.at[0]) < cache.pages ? head + place : nullptr;
  }
};

// Whether some page of keys [seen.first, seen.end) is missing; per thread, of THREADS that share the pages.
template <int THREADS> __device__ __forceinline__ bool misses(const Cache& cache, const i32* table, Keys seen) {
  bool missing = false;
  const int size = int(cache.page_keys), end = (seen.end + size - 1) / size;
  for (int at = seen.first / size + int(threadIdx.x); at < end; at += THREADS) missing |= u32(table[at]) >= cache.pages;
  return missing;
}

// Which of a thread's keys exist: bit 2 n + e is key first + 8 n + e, for N pairs.
template <int N> __device__ __forceinline__ u32 present(const Cache& cache, u32 sequence, int first) {
  u32 there = 0;
#pragma unroll 1
  for (int bit = 0; bit < 2 * N; ++bit) there |= u32(cache.has(sequence, first + bit / 2 * 8 + bit % 2)) << bit;
  return there;
}

}  // namespace attention
