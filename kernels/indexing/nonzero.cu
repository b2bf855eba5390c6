// out = indices of nonzero elements, in C order. Three launches over tiles of 4,096 elements, 16 per thread.
//
// count_tiles: nonzero elements per tile.
// scan_tiles:  one CTA: first output row of each tile, and the total.
// write_tiles: reads the tile again, compacts its nonzero elements into a list in shared memory (8 KB), writes rows of
//              indices, coalesced.
// Bound:       DRAM, two reads of x.
#include "rows/cta_scan.cuh"
#include "core/index.cuh"

constexpr int TILE_THREADS = 256, PER_THREAD = 16, TILE = TILE_THREADS * PER_THREAD;

// Whether an element has a bit of `mask` set; the mask excludes the sign of floats.
template <class T> __device__ __forceinline__ bool is_set(T x, u64 mask) { return (u64(x) & mask) != 0; }
__device__ __forceinline__ bool is_set(uint4 x, u64 mask) {
  return (((u64(x.y) << 32 | x.x) | (u64(x.w) << 32 | x.z)) & mask) != 0;
}

// One bit per nonzero byte of four (under `mask`): an addition without carry between bytes sets the top bits, and a
// multiplication gathers these.
__device__ __forceinline__ u32 set_of_four(u32 bytes, u32 mask) {
  bytes &= mask;
  const u32 tops = (((bytes & 0x7f7f7f7f) + 0x7f7f7f7f) | bytes) & 0x80808080;
  return ((tops >> 7) * 0x10204080) >> 28;
}

// One bit per element of the thread in the tile at `first`. VECTOR: x is contiguous and 16-byte aligned.
template <bool VECTOR, int WIDTH, class I, int R>
__device__ __forceinline__ u32 set_of(const u8* x, u64 mask, I first, I count, const Dims<I, R, 1>& dims) {
  using T = typename Word<WIDTH>::type;
  const I begin = first + threadIdx.x * PER_THREAD;
  u32 set = 0;
  if (VECTOR && begin + PER_THREAD <= count) {
    if constexpr (WIDTH == 1) {
      const uint4 whole = *reinterpret_cast<const uint4*>(x + begin);
      const u32 four = u32(mask);
      return set_of_four(whole.x, four) | set_of_four(whole.y, four) << 4 | set_of_four(whole.z, four) << 8 |
          set_of_four(whole.w, four) << 12;
    }
    constexpr int V = 16 / WIDTH;
    Vec<T, V> part[PER_THREAD / V];
#pragma unroll
    for (int i = 0; i < PER_THREAD / V; ++i) part[i] = reinterpret_cast<const Vec<T, V>*>(x + i64(begin) * WIDTH)[i];
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i) set |= u32(is_set(part[i / V].at[i % V], mask)) << i;
    return set;
  }
#pragma unroll 4
  for (int i = 0; i < PER_THREAD; ++i) {
    if (begin + i >= count) break;
    i64 offset[1] = {0};
    dims.locate(begin + i, offset);
    set |= u32(is_set(*reinterpret_cast<const T*>(x + offset[0]), mask)) << i;
  }
  return set;
}

// Launch 1: nonzero elements per tile.
template <bool VECTOR, int WIDTH, class I, int R>
__global__ void __launch_bounds__(TILE_THREADS)
    count_tiles(u32* counts, const u8* x, u64 mask, I count, Dims<I, R, 1> dims) {
  const u32 set = set_of<VECTOR, WIDTH>(x, mask, I(blockIdx.x) * TILE, count, dims);
  u32 total;
  exclusive_sum<TILE_THREADS>(u32(__popc(set)), total);
  if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// Launch 2: exclusive scan of the counts, by one CTA.
template <int THREADS>
__global__ void __launch_bounds__(THREADS) scan_tiles(i64* begins, i64* found, const u32* counts, u32 tiles) {
  i64 running = 0;
  for (u32 base = 0; base < tiles; base += THREADS) {
    const u32 tile = base + threadIdx.x;
    u32 total;
    const u32 before = exclusive_sum<THREADS>(tile < tiles ? counts[tile] : 0u, total);
    if (tile < tiles) begins[tile] = running + before;
    running += total;
  }
  if (threadIdx.x == 0) *found = running;
}

// Extents of x, innermost last.
template <class I, int RANK> struct Extents { typename DivisorOf<I>::type extent[RANK]; };

// Launch 3: indices of the nonzero elements of each tile.
template <bool VECTOR, int WIDTH, class I, int R, int RANK>
__global__ void __launch_bounds__(TILE_THREADS)
write_tiles(i64* out, const i64* begins, const u8* x, u64 mask, I count, Dims<I, R, 1> dims, Extents<I, RANK> shape) {
  __shared__ u16 listed[TILE];
  const I first = I(blockIdx.x) * TILE;
  u32 set = set_of<VECTOR, WIDTH>(x, mask, first, count, dims), total;
  u32 slot = exclusive_sum<TILE_THREADS>(u32(__popc(set)), total);
  // 1. compact the tile in order
  for (; set; set &= set - 1) listed[slot++] = u16(threadIdx.x * PER_THREAD + __ffs(int(set)) - 1);
  __syncthreads();
  // 2. unravel each index, store a row
  i64* rows = out + begins[blockIdx.x] * RANK;
  for (u32 i = threadIdx.x; i < total; i += TILE_THREADS) {
    I rest = first + listed[i];
#pragma unroll
    for (int axis = RANK - 1; axis > 0; --axis) {
      const I outer = shape.extent[axis].divide(rest);
      rows[i64(i) * RANK + axis] = i64(rest - outer * shape.extent[axis].divisor);
      rest = outer;
    }
    rows[i64(i) * RANK] = i64(rest);
  }
}
