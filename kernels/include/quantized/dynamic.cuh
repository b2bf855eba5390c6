// Dynamic quantization of rows to i8 in shared memory, one scale per row: bit for bit the codes and scales of
// quantize_rows.
#pragma once
#include "quantized/codes.cuh"

namespace quantized {

// All THREADS of the CTA process one row at a time by accesses of ACCESS bytes, in two passes: range, then codes. Rows
// are padded with zeros to `pitch` bytes. Ends with a barrier.
template <class S, int ACCESS, int THREADS>
__device__ __forceinline__ void quantize_tokens(
    i8* codes, float* scales, const S* x, i64 row, u32 m, u32 k, u32 pitch) {
  constexpr int V = ACCESS / int(sizeof(S));
  for (u32 i = 0; i < m; ++i, x += row, codes += pitch) {
    Range range{};
    for (u32 at = threadIdx.x * V; at < k; at += THREADS * V) {
      float a[V];
      rows::fetch<S>(a, x + at);
#pragma unroll
      for (int v = 0; v < V; ++v) range.add(a[v]);
    }
    range = rows::group_reduce<THREADS>(range, [](const Range& a, const Range& b) { return a.join(b); }, i % 2);
    const Scale scale = Codes<i8, false>::of(range);
    for (u32 at = threadIdx.x * V; at < k; at += THREADS * V) {
      float a[V];
      rows::fetch<S>(a, x + at);
      Vec<i8, V> made;
#pragma unroll
      for (int v = 0; v < V; ++v) made.at[v] = Codes<i8, false>::code(a[v], scale);
      *reinterpret_cast<Vec<i8, V>*>(codes + at) = made;
    }
    for (u32 at = k + threadIdx.x; at < pitch; at += THREADS) codes[at] = 0;
    if (threadIdx.x == 0) scales[i] = scale.scale;
  }
  __syncthreads();
}

}  // namespace quantized
