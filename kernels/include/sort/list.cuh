// Candidates for a row's k greatest, listed in one pass.
#pragma once
#include "sort/source.cuh"

namespace sort {

constexpr int DIGIT = 11, COPIES = 4, POOL = (1 << DIGIT) * COPIES;  // words

// The greatest key that `rank` of the threads' keys reach; the search by bits stops as soon as exactly `rank` reach it.
// One warp, one bit at a time.
template <class T>
__device__ __forceinline__ typename Order<T>::Key bound_of(u32* pool, typename Order<T>::Key own, u32 rank) {
  using Key = typename Order<T>::Key;
  Key* const keys = reinterpret_cast<Key*>(pool);
  __shared__ Key found;
  keys[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x < 32) {
    Key bound = 0;
    for (int bit = Order<T>::BITS - 1; bit >= 0; --bit) {
      const Key tried = bound | Key(1) << bit;
      u32 reach = 0;
#pragma unroll
      for (int i = 0; i < SELECT_THREADS; i += 32) reach += keys[i + threadIdx.x] >= tried;
      reach = __reduce_add_sync(~0u, reach);
      if (reach >= rank) bound = tried;
      if (reach == rank) break;
    }
    if (threadIdx.x == 0) found = bound;
  }
  __syncthreads();
  return found;
}

// Lists all keys >= a bound, in any order, and returns their number (not exact if they exceed the pool). The bound is a
// key that `rank` threads reach with the greatest element of their `samples` vectors.
template <class T, class S, class E>
__device__ __forceinline__ u32 list_greatest(
    u32* pool, const Entries<E>& entries, const S& source, u32 samples, u32 rank) {
  using Key = typename Order<T>::Key;
  constexpr u32 V = S::V, DEPTH = S::DEPTH, TILE = SELECT_THREADS * V, MOST = POOL * 4 / sizeof(E);
  struct Batch { Stored<T, V> at[DEPTH]; };
  __shared__ u32 listed;
  if (threadIdx.x == 0) listed = 0;
  const u32 whole = source.length / V * V, first = threadIdx.x * V;
  const auto load = [&](u32 i, u32 step, u32 end) {
    Batch batch;
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) batch.at[d] = i + d * step < end ? source.stored(i + d * step) : Stored<T, V>{};
    return batch;
  };

  // 1. bound from a sample of the row
  // The row's first vectors are in flight meanwhile.
  const u32 chosen = SELECT_THREADS * samples, stride = whole / V > chosen ? whole / V / chosen : 1;
  const u32 end = whole < chosen * stride * V ? whole : chosen * stride * V;
  const Batch some = load(first * stride, TILE * stride, end);
  Batch words = load(first, TILE, whole);
  Key greatest = 0;
#pragma unroll
  for (int d = 0; d < DEPTH; ++d) {
    if (first * stride + d * TILE * stride >= end) break;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const Key key = Order<T>::key(some.at[d].get(v)) ^ source.flip;
      greatest = key > greatest ? key : greatest;
    }
  }
  const Key bound = bound_of<T>(pool, greatest, rank);
  const Probe<T> probe(bound, source.flip);

  // 2. list keys that reach the bound
  // Most vectors fail the probe. The tail follows.
  bool full = false;
  const auto list = [&](u32 i) {
    const Keys<T, V> mine = source.keys(i);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (v >= mine.valid || mine.key[v] < bound) continue;
      const u32 slot = atomicAdd(&listed, 1u);
      if (slot < MOST) entries[slot] = entry(mine.key[v], source.place(i + v));
      else full = true;
    }
  };
  for (u32 i = first; i < whole && !full; i += TILE * DEPTH) {
    u32 passing = 0;
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) passing |= u32(i + d * TILE < whole && probe.passes(words.at[d])) << d;
    words = load(i + TILE * DEPTH, TILE, whole);
    for (; passing; passing &= passing - 1) list(i + (__ffs(passing) - 1) * TILE);
  }
  if (threadIdx.x == 0) list(whole);
  __syncthreads();
  return listed;
}

}  // namespace sort
