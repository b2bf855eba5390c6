// values, indices = the k greatest (or smallest) elements of each row and their places; ties go to the lower place.
//
// held_rows:     rows of at most 8,192 elements of at most 32 bits and k of at most about 150, read once.
// Grid:          one warp per row, four rows per CTA; or one row per CTA of LANES threads.
//                k = 1 (KEEP = 0): the greatest entry is joined by shuffles, and 2 to 4 are left out.
// 1. load:       a thread has ITEMS vectors of V elements in registers; an entry is a key with its index (place).
// 2. bound:      a thread's elements form 2 * KEEP groups; the KEEP greatest of their maxima are sorted by one warp.
//                At least k elements reach the k-th of these, and few others do.
// 3. filter:     elements that reach the bound go to shared memory. If they exceed CAPACITY (rising rows), a bound that
//                fewer reach is searched bit by bit.
// 4. sort:       one warp sorts the list in registers (bitonic).
// Shared:        CAPACITY entries of 4 bytes (8 for 32-bit kinds) per row.   Bound: instruction issue.
//
// greatest_rows: k = 1, rows of any length, one CTA per row: the argmax reducer over keys.   Bound: DRAM.
#include "rows/cta_scan.cuh"
#include "core/index.cuh"
#include "rows/reducers.cuh"
#include "sort/compact.cuh"

using namespace sort;

// Axes of the rows, and byte strides along the row, of x, values and indices.
template <class I, int R> struct Rows {
  Dims<I, R, 3> dims;
  i64 step[3];
};

enum Operand { X, VALUES, INDICES };

template <class T> using WordOf = typename Order<T>::Word;

// Copies the element at `place` of the row to `slot` of the results.
template <class T, class I, int R>
__device__ __forceinline__ void put(
    const Rows<I, R>& rows, const i64 (&offset)[3], u8* values, u8* indices, const u8* x, u32 slot, u32 place) {
  const auto* from = reinterpret_cast<const WordOf<T>*>(x + offset[X] + place * rows.step[X]);
  *reinterpret_cast<WordOf<T>*>(values + offset[VALUES] + slot * rows.step[VALUES]) = *from;
  *reinterpret_cast<i64*>(indices + offset[INDICES] + slot * rows.step[INDICES]) = place;
}

// V elements from index `place`; V > 1: contiguous and aligned to V elements.
template <class T, int V> __device__ __forceinline__ Vec<WordOf<T>, V> load(const u8* row, i64 step, u32 place) {
  if constexpr (V > 1) return *reinterpret_cast<const Vec<WordOf<T>, V>*>(row + i64(place) * sizeof(T));
  else return {*reinterpret_cast<const WordOf<T>*>(row + place * step)};
}

// One warp sorts `count` (at most 32 N) entries and calls give(slot, place) for the first k: by place if `in_order`.
template <int BYTES, int N, class E, class Give>
__device__ __forceinline__ void give_sorted(
    const E* list, u32 count, u32 k, bool in_order, u32 lane, const Give& give) {
  E x[N];
#pragma unroll
  for (int r = 0; r < N; ++r) x[r] = lane * N + r < count ? list[lane * N + r] : E{};
#pragma unroll 1
  for (int pass = 0; pass <= in_order; ++pass) {
    if (pass)
#pragma unroll
      for (int r = 0; r < N; ++r) x[r] = lane * N + r < k ? Compact<BYTES>::of(0, Compact<BYTES>::place(x[r])) : E{};
    sort_registers<32>(x, lane);
  }
#pragma unroll
  for (int r = 0; r < N; ++r)
    if (lane * N + r < k) give(lane * N + r, Compact<BYTES>::place(x[r]));
}

// The warp's lane that holds the k-th sorted entry writes it, with at least 1, which is below every element.
template <class C, int N, class E>
__device__ __forceinline__ void share_kth(const E (&sorted)[N], u32 k, u32 lane, E* kth) {
#pragma unroll
  for (int r = 0; r < N; ++r)
    if (lane * N + r == k - 1) *kth = greater(sorted[r], C::with(E{}, 0));
}

template <class T, class I, int R, int V, int ITEMS, int LANES, int KEEP>
__global__ void __launch_bounds__(LANES < 128 ? 128 : LANES) held_rows(u8* values, u8* indices, const u8* x, I count,
    u32 n, u32 k, u32 in_order, typename Order<T>::Key flip, Rows<I, R> rows) {
  using C = Compact<int(sizeof(T))>;
  using E = typename C::E;
  constexpr int ROWS = LANES == 32 ? 4 : 1, KEPT = KEEP ? KEEP : 1, MAXIMA = KEPT * LANES, GROUPS = 2 * KEPT;
  constexpr u32 CAPACITY = LANES == 32 ? 2 * MAXIMA : 256;
  static_assert(MAXIMA <= CAPACITY);
  __shared__ E lists[ROWS][CAPACITY];
  __shared__ u32 listed;
  __shared__ E shared_bound;
  const u32 lane = threadIdx.x % LANES, in_warp = threadIdx.x % 32;
  E* const list = lists[threadIdx.x / LANES];
  const I row = I(blockIdx.x) * ROWS + threadIdx.x / LANES;
  if (ROWS > 1 && row >= count) return;
  i64 offset[3] = {0, 0, 0};
  rows.dims.locate(row, offset);

  // 1. load and make entries
  Vec<WordOf<T>, V> held[ITEMS];
  const auto place = [&](int item) { return (item * LANES + lane) * V; };
  // one item less does not hold the row
  const auto there = [&](int item) { return item < ITEMS - 1 || place(item) < n; };
#pragma unroll
  for (int i = 0; i < ITEMS; ++i)
    if (there(i)) held[i] = load<T, V>(x + offset[X], rows.step[X], place(i));
  E own[ITEMS * V];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    typename Order<T>::Key keys[V];
    keys_of<T, V>(held[i], flip, keys);
#pragma unroll
    for (int v = 0; v < V; ++v) own[i * V + v] = there(i) ? C::of(keys[v], place(i) + v) : E{};
  }
  const auto give = [&](u32 to, u32 from) { put<T>(rows, offset, values, indices, x, to, from); };
  if constexpr (KEEP == 0) {
    E most = own[0];
#pragma unroll
    for (int i = 1; i < ITEMS * V; ++i) most = greater(most, own[i]);
    most = rows::group_reduce<LANES>(most, [](const E& a, const E& b) { return greater(a, b); });
    if (lane == 0) give(0, C::place(most));
    return;
  }

  // 2. bound
  E most[GROUPS] = {};
#pragma unroll
  for (int i = 0; i < ITEMS * V; ++i) most[i % GROUPS] = greater(most[i % GROUPS], own[i]);
  sort_registers<1>(most, 0);
  E bound;
  if constexpr (LANES == 32) {
    E kept[KEPT];
#pragma unroll
    for (int r = 0; r < KEPT; ++r) kept[r] = most[r];
    sort_registers<32>(kept, in_warp);
    share_kth<C>(kept, k, in_warp, list);
    __syncwarp();
    bound = list[0];
    __syncwarp();
  } else {
#pragma unroll
    for (int r = 0; r < KEPT; ++r) list[r * LANES + lane] = most[r];
    if (threadIdx.x == 0) listed = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
      E kept[MAXIMA / 32];
#pragma unroll
      for (int r = 0; r < MAXIMA / 32; ++r) kept[r] = list[r * 32 + in_warp];
      sort_registers<32>(kept, in_warp);
      share_kth<C>(kept, k, in_warp, &shared_bound);
    }
    __syncthreads();
    bound = shared_bound;
  }

  // 3. filter
  u32 parity = 0;
  const auto reaching = [&](const E& least, u32& mine) {
    mine = 0;
#pragma unroll
    for (int i = 0; i < ITEMS * V; ++i) mine += !(own[i] < least);
    if constexpr (LANES == 32) return __reduce_add_sync(~0u, mine);
    else return rows::sum<LANES>(mine, parity ^= 1);
  };
  u32 mine, found = reaching(bound, mine);
  if (found > CAPACITY) {
    bound = E{};
#pragma unroll 1
    for (int bit = C::BITS - 1; bit >= 0; --bit) {
      const E tried = C::with(bound, bit);
      const u32 reach = reaching(tried, mine);
      if (reach < k) continue;
      bound = tried, found = reach;
      if (found <= CAPACITY) break;
    }
    reaching(bound, mine);
  }
  u32 base = 0;
  const u32 before = inclusive_sum_of_warp(mine, in_warp) - mine;
  if constexpr (LANES > 32) {
    if (in_warp == 31) base = atomicAdd(&listed, before + mine);
    base = __shfl_sync(~0u, base, 31);
  }
  u32 slot = base + before;
#pragma unroll
  for (int i = 0; i < ITEMS * V; ++i)
    if (!(own[i] < bound)) list[slot++] = own[i];
  if constexpr (LANES == 32) __syncwarp();
  else __syncthreads();

  // 4. sort and store
  if (LANES > 32 && threadIdx.x >= 32) return;
  if (found <= 32) give_sorted<int(sizeof(T)), 1>(list, found, k, in_order, in_warp, give);
  else if (found <= 64) give_sorted<int(sizeof(T)), 2>(list, found, k, in_order, in_warp, give);
  else if (found <= 128) give_sorted<int(sizeof(T)), 4>(list, found, k, in_order, in_warp, give);
  else if constexpr (CAPACITY > 128) give_sorted<int(sizeof(T)), 8>(list, found, k, in_order, in_warp, give);
}

template <class T, class I, int R, int V, int ITEMS, int THREADS>
__global__ void __launch_bounds__(THREADS)
greatest_rows(u8* values, u8* indices, const u8* x, u32 n, typename Order<T>::Key flip, Rows<I, R> rows) {
  using Key = typename Order<T>::Key;
  // k = 1. One CTA per row: whole vectors, then the tail by elements.
  using Most = rows::ArgMax<Key, i64>;
  i64 offset[3] = {0, 0, 0};
  rows.dims.locate(I(blockIdx.x), offset);
  const u8* const row = x + offset[X];
  auto state = Most::none();
  const u32 whole = n - n % V;
  for (u64 base = threadIdx.x * V; base < whole; base += u64(THREADS) * V * ITEMS) {
    Vec<WordOf<T>, V> some[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
      if (base + i * THREADS * V < whole) some[i] = load<T, V>(row, rows.step[X], u32(base) + i * THREADS * V);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (base + i * THREADS * V >= whole) break;
      Key keys[V];
      keys_of<T, V>(some[i], flip, keys);
      Most::add(state, keys, i64(base + i * THREADS * V));
    }
  }
  if (threadIdx.x < n - whole) {
    const u32 place = whole + threadIdx.x;
    const Key keys[1] = {Key(Order<T>::key(load<T, 1>(row, sizeof(T), place).at[0]) ^ flip)};
    Most::add(state, keys, i64(place));
  }
  state = Most::template gather<THREADS>(state);
  if (threadIdx.x == 0) put<T>(rows, offset, values, indices, x, 0, u32(state.at));
}
