// A row that CTAS CTAs of a cluster share (CTAS = 1: one CTA, or a part of one, has all of it). Each takes a contiguous part, of
// whole vectors but for the last; states are joined through distributed shared memory in the order of the ranks, so that every
// CTA gets the same bits. Shared memory: a state for each TURN.
#pragma once
#include "cluster.cuh"
#include "rows/group.cuh"

namespace rows {

template <int CTAS, class I> struct Part {
  I row;     // of the group of threads
  I first;   // column of the part
  I length;  // of the part

  // GROUPS rows per CTA where CTAS is 1.
  __device__ __forceinline__ Part(I length, int vector, int groups, int group) {
    if constexpr (CTAS == 1) {
      row = I(blockIdx.x) * groups + group, first = 0, this->length = length;
    } else {
      const I vectors = (length + vector - 1) / vector, part = (vectors + CTAS - 1) / CTAS * vector;
      row = I(blockIdx.x) / CTAS;
      first = min(length, part * (I(blockIdx.x) % CTAS));
      this->length = min(part, length - first);
    }
  }
};

// From the CTA's own state to the row's. All threads of the cluster take part; calls differ in TURN.
template <int CTAS, int TURN, class S, class Join> __device__ __forceinline__ S across(const S& own, const Join& join) {
  if constexpr (CTAS == 1) return own;
  static_assert(sizeof(S) % 4 == 0);
  __shared__ S slot;
  if (threadIdx.x == 0) slot = own;
  cluster::arrive();
  cluster::await();
  S whole = own;
#pragma unroll 1
  for (u32 rank = 0; rank < CTAS; ++rank) {
    union Words { S whole; u32 word[sizeof(S) / 4]; __device__ Words() {} } words;
    const u32 there = cluster::address(shared_address(&slot), rank);
#pragma unroll
    for (int i = 0; i < int(sizeof(S) / 4); ++i)
      asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(words.word[i]) : "r"(there + 4 * i) : "memory");
    whole = rank ? join(whole, words.whole) : words.whole;
  }
  return whole;
}

// No CTA ends while another may read its shared memory.
template <int CTAS> __device__ __forceinline__ void part_ways() {
  if constexpr (CTAS > 1) {
    cluster::arrive();
    cluster::await();
  }
}

}  // namespace rows
