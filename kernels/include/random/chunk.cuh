// Elements at consecutive positions, a few of which make whole blocks.
#pragma once
#include "random/philox.cuh"

namespace philox {

// The elements of `BLOCKS` blocks from `index` on.
template <class D, int BLOCKS, class With>
__device__ __forceinline__ void draw_blocks(u64 seed, u64 index, u64 subsequence, const With& with,
                                            typename D::Element (&drawn)[BLOCKS * D::PER_BLOCK]) {
#pragma unroll
  for (int b = 0; b < BLOCKS; ++b) {
    typename D::Element part[D::PER_BLOCK];
    D::draw(block_at<D::PER_BLOCK>(seed, index + b, subsequence), with, part);
#pragma unroll
    for (int e = 0; e < D::PER_BLOCK; ++e) drawn[b * D::PER_BLOCK + e] = part[e];
  }
}

// The V elements at `begin` and on. Where `begin` is inside a block, which is the same question for all threads of a
// grid whose chunks begin V elements after each other, they are of one block more, and are shifted.
template <class D, int V, class With>
__device__ __forceinline__ void draw_chunk(u64 seed, u64 begin, u64 subsequence, const With& with,
                                           typename D::Element (&chunk)[V]) {
  constexpr int PER_BLOCK = D::PER_BLOCK, BLOCKS = V / PER_BLOCK;
  static_assert(BLOCKS * PER_BLOCK == V, "whole blocks");
  const u64 index = begin / PER_BLOCK;
  const u32 shift = u32(begin % PER_BLOCK);
  if (shift == 0) {
    draw_blocks<D, BLOCKS>(seed, index, subsequence, with, chunk);
    return;
  }
  typename D::Element drawn[V + PER_BLOCK];
  draw_blocks<D, BLOCKS + 1>(seed, index, subsequence, with, drawn);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    chunk[v] = drawn[v];
#pragma unroll
    for (int s = 1; s < PER_BLOCK; ++s)
      if (shift == s) chunk[v] = drawn[v + s];
  }
}

}  // namespace philox
