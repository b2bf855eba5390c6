// out[i] = a function of the random bits at position offset + i of the stream (seed, subsequence), and of nothing else.
//
// Grid:      strides over chunks of V elements; a thread computes the blocks of a chunk.
// Stores:    one of V elements where x is contiguous and aligned to it, else one per element.
// Offsets:   where the first position is inside a block, a chunk of k blocks reads k + 1, and shifts their elements.
// Position:  is added to `offset` where it is not null, so that a replayed graph reads what it is then.
// Shared:    none.   Bound: DRAM, the bytes written, or the instructions of Philox (10 rounds of 2 wide products per block).
#include "core/index.cuh"
#include "random/distributions.cuh"

constexpr int THREADS = 256;

// The elements of `BLOCKS` blocks from `index` on.
template <class D, int BLOCKS>
__device__ __forceinline__ void draw_blocks(u64 seed, u64 index, u64 subsequence,
                                            const philox::Numbers<typename D::Number>& with,
                                            typename D::Element (&drawn)[BLOCKS * D::PER_BLOCK]) {
#pragma unroll
  for (int b = 0; b < BLOCKS; ++b) {
    typename D::Element part[D::PER_BLOCK];
    D::draw(philox::block_at<D::PER_BLOCK>(seed, index + b, subsequence), with, part);
#pragma unroll
    for (int e = 0; e < D::PER_BLOCK; ++e) drawn[b * D::PER_BLOCK + e] = part[e];
  }
}

template <class I, class D, int V, int R>
__global__ void __launch_bounds__(THREADS)
    fill_random(typename D::Element* out, I count, u64 seed, u64 offset, u64 subsequence, const u64* position,
                philox::Numbers<typename D::Number> with, Dims<I, R, 1> dims) {
  using T = typename D::Element;
  constexpr int PER_BLOCK = D::PER_BLOCK, BLOCKS = V / PER_BLOCK;
  static_assert(BLOCKS * PER_BLOCK == V, "whole blocks");
  const u64 begin = offset + (position ? *position : 0);
  const u32 shift = u32(begin % PER_BLOCK);
  for (I first = (I(blockIdx.x) * THREADS + threadIdx.x) * V; first < count; first += I(gridDim.x) * THREADS * V) {
    const u64 index = (begin + first) / PER_BLOCK;
    Vec<T, V> chunk;
    if (shift == 0) {
      draw_blocks<D, BLOCKS>(seed, index, subsequence, with, chunk.at);
    } else {
      T drawn[V + PER_BLOCK];
      draw_blocks<D, BLOCKS + 1>(seed, index, subsequence, with, drawn);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        chunk.at[v] = drawn[v];
#pragma unroll
        for (int s = 1; s < PER_BLOCK; ++s)
          if (shift == s) chunk.at[v] = drawn[v + s];
      }
    }
    if constexpr (R == 0) {
      if (first + V <= count) {
        *reinterpret_cast<Vec<T, V>*>(out + first) = chunk;
        continue;
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (first + v >= count) break;
      i64 at[1] = {R == 0 ? i64(first + v) * i64(sizeof(T)) : 0};
      if constexpr (R > 0) dims.locate(first + v, at);
      *reinterpret_cast<T*>(reinterpret_cast<char*>(out) + at[0]) = chunk.at[v];
    }
  }
}
