// Runs of equal neighbours in x: the first element of each, its index, its length, and the run of every element.
//
// count_runs: per tile of 4,096 elements, how many runs begin in it. kernels/indexing/nonzero.cu:scan_tiles sums them.
// write_runs: one pass more over the tile; run r of the tile is number begins[tile] + r.
// Mapping:    32 adjacent elements per warp and step; a ballot marks the heads, the elements that differ from the one
//             before. Heads are listed in shared memory, so that results are stored coalesced.
// Lengths:    the difference of two heads of a tile; a run that leaves its tile is added up by integer atomics, whose
//             sum does not depend on their order.
// Sorted:     `places` are the positions of sorted elements before the sort; null where x is in its own order.
// Shared:     8.5 KB.   Bound: DRAM, two reads of x.
#include "core/index.cuh"
#include "sort/entry.cuh"
#include "rows/cta_scan.cuh"

using namespace sort;

constexpr int RUN_THREADS = 256, RUN_ITEMS = 16, RUN_TILE = RUN_THREADS * RUN_ITEMS;

template <class T, int R> struct Elements {
  using Word = typename Order<T>::Word;
  using Key = typename Order<T>::Key;
  const u8* x;
  u32 count;
  const Dims<u32, R, 1>& dims;

  __device__ __forceinline__ Word word(u32 i) const {
    i64 offset[1] = {0};
    dims.locate(i, offset);
    return *reinterpret_cast<const Word*>(x + offset[0]);
  }
  __device__ __forceinline__ Key key(u32 i) const { return Order<T>::key(word(i)); }
};

// Index of item i of a thread: elements of a warp are contiguous.
__device__ __forceinline__ u32 slot_of(u32 first, int i) {
  return first + (threadIdx.x / 32 * RUN_ITEMS + i) * 32 + threadIdx.x % 32;
}

// keep(i, heads) per item of the warp, with a bit for each lane whose element begins a run; returns how many there are.
// DISTINCT_NAN: every NaN is a run.
template <bool DISTINCT_NAN, class T, int R, class Keep>
__device__ __forceinline__ u32 heads_of(const Elements<T, R>& elements, u32 first, const Keep& keep) {
  using Key = typename Order<T>::Key;
  u32 found = 0;
#pragma unroll
  for (int i = 0; i < RUN_ITEMS; ++i) {
    const u32 at = slot_of(first, i);
    const bool valid = at < elements.count;
    const Key key = valid ? elements.key(at) : Key(0);
    Key before = __shfl_up_sync(~0u, key, 1);
    if (threadIdx.x % 32 == 0 && valid && at > 0) before = elements.key(at - 1);
    const bool differs = at == 0 || key != before || (DISTINCT_NAN && key == Order<T>::ALL);
    const u32 heads = __ballot_sync(~0u, valid && differs);
    keep(i, heads);
    found += __popc(heads);
  }
  return found;
}

// Runs that begin in earlier warps of the CTA, where `found` begin in this one.
__device__ __forceinline__ u32 runs_before(u32 found, u32& total) {
  const u32 before = exclusive_sum<RUN_THREADS>(threadIdx.x % 32 == 0 ? found : 0u, total);
  return __shfl_sync(~0u, before, 0);
}

template <class T, int R, bool DISTINCT_NAN>
__global__ void __launch_bounds__(RUN_THREADS)
count_runs(u32* counts, const u8* x, u32 count, Dims<u32, R, 1> dims) {
  const Elements<T, R> elements{x, count, dims};
  u32 total;
  runs_before(heads_of<DISTINCT_NAN>(elements, blockIdx.x * RUN_TILE, [](int, u32) {}), total);
  if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// The results hold `size` runs; what is left of them repeats the first run, or `fill` where `filled`, of length
// 0. `lengths` is zero before. `inverse`, `lengths` and `index` may be null.
template <class T, int R, bool DISTINCT_NAN>
__global__ void __launch_bounds__(RUN_THREADS)
write_runs(u8* out, i64* inverse, u64* lengths, i64* index, const i64* begins, const i64* found, const u8* x,
           const u32* places, u32 count, i64 size, u64 fill, u32 filled, Dims<u32, R, 1> dims) {
  using Word = typename Order<T>::Word;
  __shared__ u16 listed[RUN_TILE];
  __shared__ u32 heads[RUN_THREADS / 32][RUN_ITEMS];
  const Elements<T, R> elements{x, count, dims};
  Word* const values = reinterpret_cast<Word*>(out);
  const u32 first = blockIdx.x * RUN_TILE, left = count - first, valid = left < RUN_TILE ? left : RUN_TILE;
  const i64 begin = begins[blockIdx.x];

  // 1. heads of the tile, and the run of each element
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto keep = [&](int i, u32 bits) { if (lane == 0) heads[warp][i] = bits; };
  u32 total, before = runs_before(heads_of<DISTINCT_NAN>(elements, first, keep), total);
#pragma unroll 1
  for (int i = 0; i < RUN_ITEMS; ++i) {
    const u32 bits = heads[warp][i], at = slot_of(first, i), until = before + __popc(bits & (~0u >> (31 - lane)));
    if (bits >> lane & 1) listed[until - 1] = u16(at - first);
    if (inverse && at < count) inverse[places ? places[at] : at] = begin + until - 1;
    before += __popc(bits);
  }
  __syncthreads();

  // 2. a run per thread
  for (u32 i = threadIdx.x; i < total; i += RUN_THREADS) {
    const i64 run = begin + i;
    const u32 at = first + listed[i];
    if (run >= size) break;
    values[run] = elements.word(at);
    if (index) index[run] = places ? places[at] : at;
    if (!lengths) continue;
    if (i + 1 < total) lengths[run] = listed[i + 1] - listed[i];
    else atomicAdd(lengths + run, u64(valid - listed[i]));
  }
  if (lengths && threadIdx.x == 0 && begin > 0 && begin <= size)
    atomicAdd(lengths + begin - 1, u64(total ? listed[0] : valid));

  // 3. the rest of the results
  const Word rest = filled ? Word(fill) : elements.word(0);
  const i64 step = i64(gridDim.x) * RUN_THREADS;
  for (i64 run = *found + i64(blockIdx.x) * RUN_THREADS + threadIdx.x; run < size; run += step) {
    values[run] = rest;
    if (index) index[run] = places ? places[0] : 0;
  }
}
