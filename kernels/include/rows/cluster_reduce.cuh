// A row shared by the CTAS CTAs of a cluster (CTAS = 1: by one CTA or a part of it). Each CTA takes a contiguous part
// of whole vectors (the last one the rest); states are joined through DSMEM in rank order, so that every CTA gets the
// same bits. Shared memory: one state per SLOT and CTA, and its own.
#pragma once
#include "ptx/cluster.cuh"
#include "rows/group.cuh"

namespace rows {

template <int CTAS, class I> struct Part {
  I row;     // row of the thread group
  I first;   // first column of the part
  I length;  // columns of the part

  // Columns of every part but the last.
  static __device__ __forceinline__ I columns(I length, int vector) {
    return ((length + vector - 1) / vector + CTAS - 1) / CTAS * vector;
  }
  // CTAS = 1: GROUPS rows per CTA.
  __device__ __forceinline__ Part(I length, int vector, int groups, int group) {
    if constexpr (CTAS == 1) {
      row = I(blockIdx.x) * groups + group, first = 0, this->length = length;
    } else {
      const I part = columns(length, vector);
      row = I(blockIdx.x) / CTAS;
      first = min(length, part * (I(blockIdx.x) % CTAS));
      this->length = min(part, length - first);
    }
  }
};

// What the CTA of this rank has at the place of `own`, which is in shared memory.
template <class S> __device__ __forceinline__ S of_rank(const S* own, u32 rank) {
  static_assert(sizeof(S) % 4 == 0);
  union Words { S whole; u32 word[sizeof(S) / 4]; __device__ Words() {} } words;
  const u32 there = cluster::address(shared_address(own), rank);
#pragma unroll
  for (int i = 0; i < int(sizeof(S) / 4); ++i)
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(words.word[i]) : "r"(there + 4 * i) : "memory");
  return words.whole;
}
// The states of the cluster's CTAs in rank order, in shared memory: one warp fetches all of them at once. All threads
// take part; consecutive calls differ in SLOT (shared-memory slot).
template <int CTAS, int SLOT, class S> __device__ __forceinline__ const S* fetched(const S& own) {
  static_assert(CTAS <= 32);
  __shared__ S slot, all[CTAS];
  if (threadIdx.x == 0) slot = own;
  cluster::arrive();
  cluster::await();
  if (threadIdx.x < CTAS) all[threadIdx.x] = of_rank(&slot, threadIdx.x);
  __syncthreads();
  return all;
}
// All-reduce of the CTAs' states over the cluster.
template <int CTAS, int SLOT, class S, class Join>
__device__ __forceinline__ S cluster_reduce(const S& own, const Join& join) {
  if constexpr (CTAS == 1) return own;
  const S* const all = fetched<CTAS, SLOT>(own);
  S whole = all[0];
#pragma unroll
  for (int rank = 1; rank < CTAS; ++rank) whole = join(whole, all[rank]);
  return whole;
}

// Joins the states of V columns per lane over the cluster, in rank order; every warp of a CTA has the same.
template <int CTAS, int V, class S, class Join>
__device__ __forceinline__ void join_strips(S (&state)[V], const Join& join) {
  constexpr u32 STATES = V * 32;
  __shared__ S own[V][32], all[CTAS][V][32];
  const u32 lane = threadIdx.x % 32;
  if (threadIdx.x < 32)
#pragma unroll
    for (int v = 0; v < V; ++v) own[v][lane] = state[v];
  cluster::arrive();
  cluster::await();
  for (u32 i = threadIdx.x; i < CTAS * STATES; i += blockDim.x)
    (&all[0][0][0])[i] = of_rank(&own[0][0] + i % STATES, i / STATES);
  __syncthreads();
#pragma unroll
  for (int v = 0; v < V; ++v) {
    state[v] = all[0][v][lane];
#pragma unroll
    for (int rank = 1; rank < CTAS; ++rank) state[v] = join(state[v], all[rank][v][lane]);
  }
}

// Cluster barrier: no CTA exits while another may read its shared memory.
template <int CTAS> __device__ __forceinline__ void cluster_barrier() {
  if constexpr (CTAS > 1) {
    cluster::arrive();
    cluster::await();
  }
}

}  // namespace rows
