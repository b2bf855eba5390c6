// offsets[s] = how many of the sorted ids are below s: the first row of segment s, of segments + 1 offsets.
//
// Mapping: one thread per offset, which bisects the ids. Ids of another order give offsets of [0, count] nevertheless.
// Shared:  none.   Bound: latency, log2(count) dependent loads.
#include "core/dtype.cuh"

constexpr u32 OFFSETS_THREADS = 256;

template <class Index, class Id>
__global__ void __launch_bounds__(OFFSETS_THREADS)
first_rows(Index* offsets, const Id* ids, u32 count, u32 segments) {
  const u32 s = blockIdx.x * OFFSETS_THREADS + threadIdx.x;
  if (s > segments) return;
  u32 low = 0, high = count;
  while (low < high) {
    const u32 middle = low + (high - low) / 2;
    if (i64(ids[middle]) < i64(s)) low = middle + 1;
    else high = middle;
  }
  offsets[s] = Index(low);
}
