// out = epilogue(sum over splits s of partials[s]): the second pass of split K, in the order of the splits.
//
// Input:   `partials` is [splits][batch][m][n], contiguous.
// Threads: V neighbouring columns per thread, one vector load per split, four splits in flight.
// Shared:  none.   Bound: L2 bandwidth mostly, as the partial sums have just been written.
#include "products/epilogue.cuh"
#include "core/index.cuh"
#include "ptx/overlap.cuh"

template <class Acc, int V, int THREADS, class I, class Epi>
__global__ void __launch_bounds__(THREADS)
reduce(const Acc* partials, Epi epilogue, Batch batch, I vectors, u32 splits, u32 m,
       typename DivisorOf<I>::type row_vectors, typename DivisorOf<I>::type rows) {
  overlap::wait();
  overlap::release();
  const I i = I(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= vectors) return;
  const Vec<Acc, V>* at = reinterpret_cast<const Vec<Acc, V>*>(partials) + i;
  // 1. Add the splits in order
  Acc sum[V] = {};
#pragma unroll 4
  for (u32 s = 0; s < splits; ++s, at += vectors) {
    const Vec<Acc, V> part = *at;
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += part.at[v];
  }

  // 2. Epilogue of the V columns
  const I row = row_vectors.divide(i), matrix = rows.divide(row);
  const i64 from_m = i64(row - matrix * m), from_n = i64(i - row * row_vectors.divisor) * V;
  const Epi out = epilogue.at_batch(batch.locate(u32(matrix)));
  if constexpr (V == 1) {
    out.store(sum[0], from_m, from_n);
  } else {
#pragma unroll
    for (int v = 0; v < V; v += 2) {
      Acc pair[2] = {sum[v], sum[v + 1]};
      out.store(pair, from_m, from_n + v, true);
    }
  }
}
