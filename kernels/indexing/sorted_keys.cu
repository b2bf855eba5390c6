// (key, position) pairs of an array of indices, sorted by key; equal keys keep their order (stable LSD radix sort).
//
// make_keys:    key[i] = base(i) + index[i] * key_step, or `none`, which sorts last, if index i is out of range
//               (`status` is set) or ignored.
// count_digits: per tile of SORT_TILE keys, a histogram of one 8-bit digit; counts[digit][tile].
// scan_counts:  one CTA per digit: exclusive sums over the tiles, and the digit's total.
// move_pairs:   ranks keys within their tile and writes pairs to their place. A warp ranks 32 keys per step: eight
//               ballots give the lanes with the same digit (A. Adinets and D. Merrill, "Onesweep", 2022, section 3).
// Shared:       one counter per warp and digit.   Bound: DRAM, 8 bytes read and written per key and digit.
#include "indexing/within.cuh"
#include "rows/cta_scan.cuh"
#include "core/index.cuh"

constexpr int SORT_THREADS = 256, SORT_ITEMS = 8;
constexpr int SORT_WARPS = SORT_THREADS / 32, WARP_TILE = 32 * SORT_ITEMS, SORT_TILE = SORT_THREADS * SORT_ITEMS;

// The digits of BITS bits of a key; a thread of a CTA per digit.
template <int BITS> struct Radix {
  static constexpr int COUNT = 1 << BITS;
  static_assert(COUNT == SORT_THREADS);
  static __device__ __forceinline__ u32 digit(u32 key, u32 shift) { return key >> shift & (COUNT - 1); }
};

// `dims`: the axes of the indices with their byte strides, and the strides of base(i) in keys. `ignored`: an index for
// which nothing is added, -1 if there is none.
template <class Index, int R, int MODE>
__global__ void __launch_bounds__(SORT_THREADS)
make_keys(u32* keys, const u8* index, i32* status, i64 extent, i64 ignored, u32 key_step, u32 none, u32 count,
          Dims<u32, R, 2> dims) {
  const u32 i = blockIdx.x * SORT_THREADS + threadIdx.x;
  if (i >= count) return;
  i64 at[2] = {};
  dims.locate(i, at);
  const i64 line = within<MODE>(i64(*reinterpret_cast<const Index*>(index + at[0])), extent);
  if (line < 0) *status = 1;
  keys[i] = line < 0 || line == ignored ? none : u32(at[1]) + u32(line) * key_step;
}

template <int BITS>
__global__ void __launch_bounds__(SORT_THREADS)
count_digits(u32* counts, const u32* keys, u32 shift, u32 count) {
  __shared__ u32 found[Radix<BITS>::COUNT];
  found[threadIdx.x] = 0;
  __syncthreads();
  const u32 first = blockIdx.x * SORT_TILE;
#pragma unroll
  for (int i = 0; i < SORT_ITEMS; ++i) {
    const u32 at = first + i * SORT_THREADS + threadIdx.x;
    if (at < count) atomicAdd(&found[Radix<BITS>::digit(keys[at], shift)], 1u);
  }
  __syncthreads();
  counts[threadIdx.x * gridDim.x + blockIdx.x] = found[threadIdx.x];
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS) scan_counts(u32* counts, u32* totals, u32 tiles) {
  u32 running = 0;
  for (u32 first = 0; first < tiles; first += THREADS) {
    const u32 tile = first + threadIdx.x;
    u32* const at = counts + blockIdx.x * tiles + tile;
    u32 total;
    const u32 before = exclusive_sum<THREADS>(tile < tiles ? *at : 0u, total);
    if (tile < tiles) *at = running + before;
    running += total;
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = running;
}

// FIRST: the position of a key is its index, and `positions` is not read.
template <int BITS, bool FIRST>
__global__ void __launch_bounds__(SORT_THREADS)
move_pairs(u32* to_keys, u32* to_positions, const u32* keys, const u32* positions, const u32* counts, const u32* totals,
           u32 shift, u32 count) {
  // Keys of the warp with this digit so far, then the place of the first one.
  __shared__ u32 place[SORT_WARPS][Radix<BITS>::COUNT];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (u32 digit = lane; digit < Radix<BITS>::COUNT; digit += 32) place[warp][digit] = 0;
  __syncwarp();

  // 1. rank keys within the warp, in order
  const u32 first = blockIdx.x * SORT_TILE + warp * WARP_TILE + lane;
  u32 key[SORT_ITEMS], rank[SORT_ITEMS];
#pragma unroll
  for (int i = 0; i < SORT_ITEMS; ++i) key[i] = first + i * 32 < count ? keys[first + i * 32] : 0u;
#pragma unroll
  for (int i = 0; i < SORT_ITEMS; ++i) {
    const u32 digit = Radix<BITS>::digit(key[i], shift);
    u32 same = __ballot_sync(~0u, first + i * 32 < count);
#pragma unroll
    for (int bit = 0; bit < BITS; ++bit) {
      const u32 ones = __ballot_sync(~0u, digit >> bit & 1);
      same &= digit >> bit & 1 ? ones : ~ones;
    }
    const u32 before = __popc(same & ((1u << lane) - 1)), seen = place[warp][digit];
    rank[i] = seen + before;
    __syncwarp();
    if (first + i * 32 < count && before == 0) place[warp][digit] = seen + __popc(same);
    __syncwarp();
  }
  __syncthreads();

  // 2. the place of each warp's first key with the thread's digit
  u32 total;
  u32 next = exclusive_sum<SORT_THREADS>(totals[threadIdx.x], total);
  next += counts[threadIdx.x * gridDim.x + blockIdx.x];
#pragma unroll
  for (int w = 0; w < SORT_WARPS; ++w) {
    const u32 own = place[w][threadIdx.x];
    place[w][threadIdx.x] = next;
    next += own;
  }
  __syncthreads();

  // 3. write pairs
#pragma unroll
  for (int i = 0; i < SORT_ITEMS; ++i) {
    if (first + i * 32 >= count) break;
    const u32 to = place[warp][Radix<BITS>::digit(key[i], shift)] + rank[i];
    to_keys[to] = key[i];
    to_positions[to] = FIRST ? first + i * 32 : positions[first + i * 32];
  }
}
