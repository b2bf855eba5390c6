// out[i] = a function of the random bits at position offset + i of the stream (seed, subsequence), and of nothing
// else.
//
// Grid:      strides over chunks of V elements; a thread computes the blocks of a chunk.
// Stores:    one of V elements where x is contiguous and aligned to it, else one per element.
// Position:  is added to `offset` where it is not null, so that a replayed graph reads what it is then.
// Shared:    none.   Bound: DRAM, the bytes written, or the instructions of Philox (10 rounds of 2 wide products per
// block).
#include "core/index.cuh"
#include "random/chunk.cuh"
#include "random/distributions.cuh"

constexpr int THREADS = 256;

template <class I, class D, int V, int R>
__global__ void __launch_bounds__(THREADS)
    fill_random(typename D::Element* out, I count, u64 seed, u64 offset, u64 subsequence, const u64* position,
                philox::Numbers<typename D::Number> with, Dims<I, R, 1> dims) {
  using T = typename D::Element;
  const u64 begin = offset + (position ? *position : 0);
  for (I first = (I(blockIdx.x) * THREADS + threadIdx.x) * V; first < count; first += I(gridDim.x) * THREADS * V) {
    Vec<T, V> chunk;
    philox::draw_chunk<D>(seed, begin + first, subsequence, with, chunk.at);
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
