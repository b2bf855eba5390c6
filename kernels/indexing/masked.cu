// Elements under a mask, in C order: out = x[mask] (pack_tiles), out = where(mask, source in order, x) (unpack_tiles).
//
// Launches:  kernels/indexing/nonzero.cu:count_tiles and scan_tiles rank the first element of each tile under the mask;
//            then one of these, over the same tiles of 4,096 elements.
// Mapping:   32 adjacent elements per warp and step, 16 steps; a ballot ranks the elements of a step. The mask's loads
//            are all in flight, then UNROLL moves at a time.
// Bytes:     elements are moved as words of WIDTH bytes, and not computed with.
// Shared:    one count per warp.   Bound: DRAM, two reads of the mask.
#include "rows/cta_scan.cuh"
#include "core/index.cuh"

constexpr int MASK_THREADS = 256, MASK_STEPS = 16, MASK_TILE = MASK_THREADS * MASK_STEPS, UNROLL = 4;

// Index of the thread's element of a step: those of a warp are contiguous.
template <class I> __device__ __forceinline__ I element_of(I first, int step) {
  return first + (threadIdx.x / 32 * MASK_STEPS + step) * 32 + threadIdx.x % 32;
}

// One bit per step whose element is under the mask.
template <class I, int R>
__device__ __forceinline__ u32 under(const u8* mask, I first, I count, const Dims<I, R, 1>& dims) {
  u32 bits = 0;
#pragma unroll
  for (int step = 0; step < MASK_STEPS; ++step) {
    const I at = element_of(first, step);
    i64 offset[1] = {0};
    dims.locate(at < count ? at : 0, offset);
    bits |= u32(at < count && mask[offset[0]] != 0) << step;
  }
  return bits;
}

// Ranks of the warp's elements under the mask, step after step; all threads of the CTA construct one.
struct Ranks {
  u32 bits;
  i64 begin;
  __device__ __forceinline__ Ranks(u32 bits, i64 tile_begin) : bits(bits) {
    u32 found = 0, total;
#pragma unroll
    for (int step = 0; step < MASK_STEPS; ++step) found += __popc(__ballot_sync(~0u, bits >> step & 1));
    const u32 before = exclusive_sum<MASK_THREADS>(threadIdx.x % 32 == 0 ? found : 0u, total);
    begin = tile_begin + __shfl_sync(~0u, before, 0);
  }
  // Rank of the element of a step, whose steps before were asked for; negative if it is not under the mask.
  __device__ __forceinline__ i64 next(int step) {
    const u32 set = __ballot_sync(~0u, bits >> step & 1), lane = threadIdx.x % 32;
    const i64 rank = begin + __popc(set & ((1u << lane) - 1));
    begin += __popc(set);
    return set >> lane & 1 ? rank : -1;
  }
};

// packed[r] = x[i] for the element i of rank r < size, and zero bytes behind the last rank. REST: rest[i] = 0 where
// packed has x[i], else x[i], for the gradient of unpack_tiles.
template <class I, int R, int RM, int WIDTH, bool REST>
__global__ void __launch_bounds__(MASK_THREADS)
pack_tiles(u8* packed, u8* rest, i64 size, const i64* begins, const i64* found, const u8* mask, const u8* x, I count,
           Dims<I, RM, 1> mask_dims, Dims<I, R, 2> dims) {
  using T = typename Word<WIDTH>::type;
  const I first = I(blockIdx.x) * MASK_TILE;
  Ranks ranks(under(mask, first, count, mask_dims), begins[blockIdx.x]);
  T* const kept = reinterpret_cast<T*>(packed);
#pragma unroll 1
  for (int base = 0; base < MASK_STEPS; base += UNROLL) {
    T value[UNROLL];
    i64 rank[UNROLL], offset[UNROLL][2];
    // 1. load
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const I at = element_of(first, base + u);
      rank[u] = ranks.next(base + u);
      offset[u][0] = offset[u][1] = 0;
      dims.locate(at < count ? at : 0, offset[u]);
      value[u] = T{};
      if (REST ? at < count : rank[u] >= 0) value[u] = *reinterpret_cast<const T*>(x + offset[u][0]);
    }
    // 2. store
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (rank[u] >= 0 && rank[u] < size) kept[rank[u]] = value[u];
      if (REST && element_of(first, base + u) < count)
        *reinterpret_cast<T*>(rest + offset[u][1]) = rank[u] < 0 || rank[u] >= size ? value[u] : T{};
    }
  }
  // 3. zero bytes behind the last rank
  const i64 step = i64(gridDim.x) * MASK_THREADS;
  for (i64 at = *found + i64(blockIdx.x) * MASK_THREADS + threadIdx.x; at < size; at += step) kept[at] = T{};
}

// out[i] = source[r] for the element i of rank r < size; else x[i], or zero bytes where there is no x (!BASE). A rank
// beyond the source is reported in `status` if that is not null.
template <class I, int R, int RM, int RS, int WIDTH, bool BASE>
__global__ void __launch_bounds__(MASK_THREADS)
unpack_tiles(u8* out, i32* status, const i64* begins, const u8* mask, const u8* x, const u8* source, i64 size, I count,
             Dims<I, RM, 1> mask_dims, Dims<I, R, 2> dims, Dims<I, RS, 1> source_dims) {
  using T = typename Word<WIDTH>::type;
  const I first = I(blockIdx.x) * MASK_TILE;
  Ranks ranks(under(mask, first, count, mask_dims), begins[blockIdx.x]);
  bool beyond = false;
#pragma unroll 1
  for (int base = 0; base < MASK_STEPS; base += UNROLL) {
    T value[UNROLL];
    i64 offset[UNROLL][2];
    // 1. load
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const I at = element_of(first, base + u);
      const i64 rank = ranks.next(base + u);
      offset[u][0] = offset[u][1] = 0;
      dims.locate(at < count ? at : 0, offset[u]);
      value[u] = T{};
      i64 from[1] = {0};
      if (rank >= 0 && rank < size) {
        source_dims.locate(I(rank), from);
        value[u] = *reinterpret_cast<const T*>(source + from[0]);
      } else if (BASE && at < count) {
        value[u] = *reinterpret_cast<const T*>(x + offset[u][1]);
      }
      beyond |= rank >= size;
    }
    // 2. store
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (element_of(first, base + u) < count) *reinterpret_cast<T*>(out + offset[u][0]) = value[u];
  }
  // 3. report: one atomic per warp with a rank beyond the source
  if (status && __any_sync(~0u, beyond) && threadIdx.x % 32 == 0) atomicOr(status, 1);
}
