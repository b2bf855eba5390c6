// values, indices = the k greatest (or smallest) of each row, sorted or in row order; ties go to the lower index.
// End::KTH: the last of these alone. MEDIAN: likewise, but the first NaN of a row that has one (keys are flipped).
//
// sort_rows:   short rows, TILE / length per CTA, bitonic sort of whole rows in shared memory (8 to 32 KB).
// select_rows: one CTA per row or per part of one.
//   fast path  a sample gives a bound that k keys and few more should reach; one pass lists these in shared memory (32
//              KB), where they are sorted.   Bound: DRAM.
//   radix      if too few or too many reach the bound, or k is large: histograms of 11-bit digits from the top (four
//              copies per bin to spread atomics) until the k-th key's leading digits are known; an ordered pass keeps
//              keys above and the first ties. Kept keys are sorted in shared memory, or as runs merged in scratch.
//              Every pass reads the row again, mostly from L2.   Bound: instructions and atomics.
#include "rows/cta_scan.cuh"
#include "core/index.cuh"
#include "sort/list.cuh"

using namespace sort;

constexpr int SORT_THREADS = 256;
constexpr u32 NO_PLACE = ~0u;
enum class End { FIRST_K, KTH, MEDIAN };

// Axes of the rows, and byte strides along the row, of x, values and indices.
template <class I, int R> struct Rows {
  Dims<I, R, 3> dims;
  i64 step[3];
};

// Copies the element at index `place` of the row to `slot` of the results.
template <class T, class I, int R>
__device__ __forceinline__ void put(
    const Rows<I, R>& rows, const i64 (&offset)[3], u8* values, u8* indices, const u8* x, u32 slot, u32 place) {
  *reinterpret_cast<typename Order<T>::Word*>(values + offset[1] + slot * rows.step[1]) = at<T>(
      x + offset[0], rows.step[0], place);
  *reinterpret_cast<i64*>(indices + offset[2] + slot * rows.step[2]) = place;
}

// Whether the entry at `slot` of a sorted row of n, whose first is row[0], is the one that a single result is.
template <End END, class E>
__device__ __forceinline__ bool is_single(const Entries<E>& entries, u32 row, u32 slot, u32 n, u32 k) {
  const auto is_nan = [&](u32 at) { return key_of(entries[row + at]) == 0; };  // of flipped floats
  if (END == End::MEDIAN && is_nan(n - 1)) return is_nan(slot) && (slot == 0 || !is_nan(slot - 1));
  return slot == k - 1;
}

template <class T, class I, int R, int TILE, End END>
__global__ void __launch_bounds__(SORT_THREADS) sort_rows(u8* values, u8* indices, const u8* x, I count, u32 n, u32 k,
    u32 length, u32 in_order, typename Order<T>::Key flip, Rows<I, R> rows) {
  using Key = typename Order<T>::Key;
  using E = typename EntryOf<Key>::type;
  __shared__ E tile[TILE];
  const Entries<E> entries = {tile};
  const I first = I(blockIdx.x) * (TILE / length);
  // 1. entries; past the row's end they are empty
  for (u32 i = threadIdx.x; i < TILE; i += SORT_THREADS) {
    const I row = first + i / length;
    const u32 place = i % length;
    E mine = {};
    if (row < count && place < n) {
      i64 offset[3] = {0, 0, 0};
      rows.dims.locate(row, offset);
      mine = entry(Order<T>::key(at<T>(x + offset[0], rows.step[0], place)) ^ flip, place);
    }
    entries[i] = mine;
  }
  sort_blocks<SORT_THREADS>(entries, TILE, length);
  // 2. in_order: sort the first k by index
  if (in_order) {
    for (u32 i = threadIdx.x; i < TILE; i += SORT_THREADS)
      entries[i] = i % length < k ? entry(Key(0), index_of(entries[i])) : E{};
    sort_blocks<SORT_THREADS>(entries, TILE, length);
  }
  // 3. store
  for (u32 i = threadIdx.x; i < TILE; i += SORT_THREADS) {
    const I row = first + i / length;
    const u32 slot = i % length;
    if (row >= count || slot >= (END == End::FIRST_K ? k : n)) continue;
    if (END != End::FIRST_K && !is_single<END>(entries, i - slot, slot, n, k)) continue;
    i64 offset[3] = {0, 0, 0};
    rows.dims.locate(row, offset);
    put<T>(rows, offset, values, indices, x, END == End::FIRST_K ? slot : 0, index_of(entries[i]));
  }
}

// Radix-select state: the k-th greatest key without its low `shift` bits; `ties` keys with this prefix are among the k.
// `nan`: the first NaN, if looked for.
template <class Key> struct Threshold {
  Key prefix;
  int shift;
  u32 ties, nan;
};

// Radix select: 11 bits per pass, from the top. For one result, until the last of the ties is that in row order.
template <class T, End END, class S>
__device__ __forceinline__ Threshold<typename Order<T>::Key> threshold(u32* pool, const S& source, u32 k) {
  using Key = typename Order<T>::Key;
  constexpr int V = S::V, PER = (1 << DIGIT) / SELECT_THREADS;
  __shared__ u32 found[3], first_nan;
  Threshold<Key> top = {0, Order<T>::BITS, k, NO_PLACE};
  if (END == End::FIRST_K && k == source.length) return top;
  if (END == End::MEDIAN && threadIdx.x == 0) first_nan = NO_PLACE;
  while (top.shift > 0) {
    const int low = top.shift > DIGIT ? top.shift - DIGIT : 0;
    const u32 digits = 1u << (top.shift - low);
    for (u32 i = threadIdx.x; i < digits; i += SELECT_THREADS) reinterpret_cast<uint4*>(pool)[i] = uint4{0, 0, 0, 0};
    __syncthreads();
    // 1. histogram of the next digit of keys with the prefix
    for (u32 i = threadIdx.x * V; i < source.length; i += SELECT_THREADS * V * 2) {
      const Keys<T, V> both[2] = {source.keys(i), source.keys(i + SELECT_THREADS * V)};
#pragma unroll
      for (int v = 0; v < 2 * V; ++v) {
        const Key key = both[v / V].key[v % V];
        const bool mine = top.shift == Order<T>::BITS || (key >> top.shift) == top.prefix;
        if (END == End::MEDIAN && v % V < both[v / V].valid && key == 0) {
          const u32 place = source.place(i + (v / V) * SELECT_THREADS * V + v % V);
          top.nan = place < top.nan ? place : top.nan;
        }
        if (v % V < both[v / V].valid && mine)
          atomicAdd(&pool[u32((key >> low) & (digits - 1)) * COPIES + threadIdx.x % COPIES], 1u);
      }
    }
    if (END == End::MEDIAN && top.nan != NO_PLACE) atomicMin(&first_nan, top.nan);
    __syncthreads();
    if (END == End::MEDIAN && first_nan != NO_PLACE) return {0, 0, 0, first_nan};
    // 2. the digit at which k is reached
    u32 count[PER], mine = 0, total;
#pragma unroll
    for (int j = 0; j < PER; ++j) {
      const u32 rank = threadIdx.x * PER + j;
      const uint4 four = rank < digits ? reinterpret_cast<const uint4*>(pool)[digits - 1 - rank] : uint4{0, 0, 0, 0};
      count[j] = four.x + four.y + four.z + four.w;
      mine += count[j];
    }
    u32 before = exclusive_sum<SELECT_THREADS>(mine, total);
#pragma unroll
    for (int j = 0; j < PER; ++j) {
      if (before < top.ties && top.ties <= before + count[j])
        found[0] = digits - 1 - (threadIdx.x * PER + j), found[1] = before, found[2] = count[j];
      before += count[j];
    }
    __syncthreads();
    top = {Key(top.prefix << (top.shift - low)) | found[0], low, top.ties - found[1], NO_PLACE};
    if (found[2] == (END == End::FIRST_K ? top.ties : 1)) break;  // CTA barriers precede the next write of `found`
  }
  return top;
}

// keep(slot, index, key), in row order, for the k keys of the source above the threshold or first among its ties; or,
// for one result, for the last of these ties.
template <class T, End END, class S, class Keep>
__device__ __forceinline__ void keep_in_order(
    const S& source, const Threshold<typename Order<T>::Key>& top, u32 k, const Keep& keep) {
  using Key = typename Order<T>::Key;
  constexpr int V = S::V;
  u32 above = 0, ties = 0;  // of the tiles before
  for (u32 base = 0; base < source.length; base += SELECT_THREADS * V) {
    const u32 i = base + threadIdx.x * V;
    const Keys<T, V> mine = source.keys(i);
    u32 ups = 0, evens = 0;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const Key head = top.shift == Order<T>::BITS ? Key(0) : mine.key[v] >> top.shift;
      ups |= u32(v < mine.valid && head > top.prefix) << v;
      evens |= u32(v < mine.valid && head == top.prefix) << v;
    }
    u32 total;
    const u32 before = exclusive_sum<SELECT_THREADS>(u32(__popc(ups) | __popc(evens) << 16), total);
    u32 up = above + (before & 0xffff), even = ties + (before >> 16);
#pragma unroll
    for (int v = 0; v < V && (ups | evens); ++v) {
      const bool is_up = ups >> v & 1, is_even = evens >> v & 1;
      if (END == End::FIRST_K ? is_up || (is_even && even < top.ties) : is_even && even == top.ties - 1)
        keep(up + (even < top.ties ? even : top.ties), i + v, mine.key[v]);
      up += is_up;
      even += is_even;
    }
    above += total & 0xffff;
    ties += total >> 16;
    if ((END != End::FIRST_K || above + top.ties == k) && ties >= top.ties) break;
  }
}

// Sorts entries in the pool, descending; there is room up to the next power of two above `count`.
template <class E> __device__ __forceinline__ void sort_listed(const Entries<E>& entries, u32 count) {
  u32 length = 4;
  while (length < count) length *= 2;
  for (u32 i = count + threadIdx.x; i < length; i += SELECT_THREADS) entries[i] = E{};
  sort_blocks<SELECT_THREADS>(entries, length, length);
}

// Merge sort of `count` entries in scratch: pool-sized runs, then pairs of runs, each entry ranked by binary search in
// the other run. Returns the buffer with the result, `a` or `b`.
template <class E> __device__ __forceinline__ E* sort_in_scratch(E* a, E* b, const Entries<E>& pool, u32 count) {
  constexpr u32 RUN = POOL * 4 / sizeof(E);
  for (u64 begin = 0; begin < count; begin += RUN) {
    __syncthreads();
    for (u32 i = threadIdx.x; i < RUN; i += SELECT_THREADS) pool[i] = begin + i < count ? a[begin + i] : E{};
    sort_blocks<SELECT_THREADS>(pool, RUN, RUN);
    for (u32 i = threadIdx.x; i < RUN && begin + i < count; i += SELECT_THREADS) a[begin + i] = pool[i];
  }
  for (u64 run = RUN; run < count; run *= 2) {
    __syncthreads();
    for (u64 i = threadIdx.x; i < count; i += SELECT_THREADS) {
      const E mine = a[i];
      const u64 pair = i / (2 * run) * (2 * run), middle = pair + run;
      const bool first = i < middle;
      u64 low = first ? middle : pair, high = first ? middle + run : middle;
      if (low > count) low = count;
      if (high > count) high = count;
      const u64 begin = low;
      while (low < high) {  // entries of the other run that come before this one
        const u64 half = (low + high) / 2;
        if (mine < a[half]) low = half + 1;
        else high = half;
      }
      b[(first ? i : i - run) + (low - begin)] = mine;
    }
    E* const swapped = a;
    a = b, b = swapped;
  }
  __syncthreads();
  return a;
}

// `n`: elements per row, or listed indices of one. A row has `parts` parts of `part` elements, each of which lists at
// most k indices, `listed` per row. `samples`: sample vectors per thread, 0: radix select. `in_order`: row order.
template <class T, class I, int R, int ROLE, bool VECTOR, End END>
__global__ void __launch_bounds__(SELECT_THREADS, 2)
    select_rows(u8* values, u8* indices, const u8* x, u32* list, void* scratch, u32 n, u32 k, u32 parts, u32 part,
        u32 listed, u32 samples, u32 rank, u32 in_order, typename Order<T>::Key flip, Rows<I, R> rows) {
  using Key = typename Order<T>::Key;
  using E = typename EntryOf<Key>::type;
  __shared__ alignas(16) u32 pool[POOL];
  constexpr u32 MOST = sizeof(pool) / sizeof(E);
  const Entries<E> entries = {reinterpret_cast<E*>(pool)};
  const I row = ROLE == PART ? blockIdx.x / parts : blockIdx.x;
  const u32 which = ROLE == PART ? blockIdx.x % parts : 0;
  i64 offset[3] = {0, 0, 0};
  rows.dims.locate(row, offset);
  u32* const own_list = list + u64(row) * listed;
  const u32 begin = which * part, length = ROLE == PART && n - begin > part ? part : n - begin;
  const Source<T, ROLE, VECTOR> source = {x + offset[0], rows.step[0], own_list, begin, length, flip};
  const u32 kept = k < length ? k : length;
  const bool ordered = ROLE == PART || in_order;
  const auto give = [&](u32 slot, u32 place) {
    if constexpr (ROLE == PART) own_list[u64(which) * (k < part ? k : part) + slot] = place;
    else put<T>(rows, offset, values, indices, x, slot, place);
  };

  // 1. fast path: list above a sampled bound, sort. A median's NaN are at the row's other end.
  const u32 found = samples && END != End::MEDIAN ? list_greatest<T>(pool, entries, source, samples, rank) : 0;
  if (found >= kept && found <= MOST) {
    sort_listed(entries, found);
    if constexpr (END != End::FIRST_K) {
      if (threadIdx.x == 0) give(0, index_of(entries[kept - 1]));
      return;
    }
    if (ordered) {  // sort again by index alone
      for (u32 i = threadIdx.x; i < kept; i += SELECT_THREADS) entries[i] = entry(Key(0), index_of(entries[i]));
      sort_listed(entries, kept);
    }
  } else {
    // 2. radix select, then keep in order
    const Threshold<Key> top = threshold<T, END>(pool, source, kept);
    if constexpr (END != End::FIRST_K) {
      if (top.nan == NO_PLACE)
        keep_in_order<T, END>(source, top, kept, [&](u32, u32 i, Key) { give(0, source.place(i)); });
      else if (threadIdx.x == 0) give(0, top.nan);
      return;
    }
    if (ordered)
      return keep_in_order<T, END>(source, top, kept, [&](u32 slot, u32 i, Key) { give(slot, source.place(i)); });
    if (k > MOST) {
      E* const a = reinterpret_cast<E*>(scratch) + u64(row) * 2 * k;
      keep_in_order<T, END>(
          source, top, kept, [&](u32 slot, u32 i, Key key) { a[slot] = entry(key, source.place(i)); });
      const E* const sorted = sort_in_scratch(a, a + k, entries, k);
      for (u32 slot = threadIdx.x; slot < k; slot += SELECT_THREADS) give(slot, index_of(sorted[slot]));
      return;
    }
    keep_in_order<T, END>(
        source, top, kept, [&](u32 slot, u32 i, Key key) { entries[slot] = entry(key, source.place(i)); });
    sort_listed(entries, kept);
  }
  // 3. store
  for (u32 slot = threadIdx.x; slot < kept; slot += SELECT_THREADS) give(slot, index_of(entries[slot]));
}
