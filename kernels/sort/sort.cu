// values, indices = the elements of each row in order and their places; equal elements keep their order (stable sort).
//
// sort_short: TILE / length rows per CTA, bitonic sort of whole rows in shared memory; entries of a key and its index
//             are distinct, so that ties go to the lower index.
// sort_row:   one CTA per row of at most THREADS * ITEMS elements: an LSD radix sort whose keys and places go through
//             shared memory, one 8-bit digit per pass. x is read again for the values, from L2 or L1.
// Shared:     8 or 16 bytes per element (sort_short); a key, 2 bytes, and one counter per warp and digit (sort_row).
// Bound:      instruction issue.
#include "sort/ranks.cuh"

using namespace sort;

constexpr int SHORT_THREADS = 256;

template <class T, class Index, class I, int R, int TILE, bool HAS_VALUES>
__global__ void __launch_bounds__(SHORT_THREADS) sort_short(u8* values, u8* indices, const u8* x, I count, u32 n,
    u32 length, typename Order<T>::Key flip, Lines<I, R> lines) {
  using Key = typename Order<T>::Key;
  using E = typename EntryOf<Key>::type;
  __shared__ E tile[TILE];
  const Entries<E> entries = {tile};
  const I first = I(blockIdx.x) * (TILE / length);
  // 1. entries, the greatest key for the first element; slots after the row's end are empty
  for (u32 i = threadIdx.x; i < TILE; i += SHORT_THREADS) {
    const I row = first + i / length;
    const u32 place = i % length;
    E mine = {};
    if (row < count && place < n) {
      i64 offset[3] = {0, 0, 0};
      lines.dims.locate(row, offset);
      const Key key = Order<T>::key(at<T>(x + offset[X], lines.step[X], place)) ^ flip;
      mine = entry(Key(key ^ Order<T>::ALL), place);
    }
    entries[i] = mine;
  }
  sort_blocks<SHORT_THREADS>(entries, TILE, length);
  // 2. store
  for (u32 i = threadIdx.x; i < TILE; i += SHORT_THREADS) {
    const I row = first + i / length;
    const u32 slot = i % length;
    if (row >= count || slot >= n) continue;
    i64 offset[3] = {0, 0, 0};
    lines.dims.locate(row, offset);
    const u32 place = index_of(entries[i]);
    const Results<T, Index, HAS_VALUES> results(values, indices, offset, lines);
    results.put(slot, HAS_VALUES ? at<T>(x + offset[X], lines.step[X], place) : typename Order<T>::Word(0), place);
  }
}

template <class T, class Index, class I, int R, int THREADS, int ITEMS, bool HAS_VALUES>
__global__ void __launch_bounds__(THREADS, 1)
sort_row(u8* values, u8* indices, const u8* x, u32 n, typename Order<T>::Key flip, Lines<I, R> lines) {
  using Word = typename Order<T>::Word;
  using Key = typename Order<T>::Key;
  using Tile = Ranks<THREADS, ITEMS>;
  extern __shared__ __align__(16) u8 memory[];
  Word* const keys = reinterpret_cast<Word*>(memory);
  u16* const places = reinterpret_cast<u16*>(keys + Tile::TILE);
  const Tile tile = {reinterpret_cast<u32(*)[RADIX]>(places + Tile::TILE)};
  i64 offset[3] = {0, 0, 0};
  lines.dims.locate(I(blockIdx.x), offset);

  // 1. keys; slots from n on have the greatest key, and so stay last
#pragma unroll 4
  for (int i = 0; i < ITEMS; ++i) {
    const u32 slot = Tile::slot(i);
    keys[slot] = Word(slot < n ? Order<T>::key(at<T>(x + offset[X], lines.step[X], slot)) ^ flip : Order<T>::ALL);
    places[slot] = u16(slot);
  }

  // 2. per digit: ranks, then keys and places to these
#pragma unroll 1
  for (u32 shift = 0; shift < Order<T>::BITS; shift += RADIX_BITS) {
    Key key[ITEMS];
    u32 to[ITEMS];
    u32 place[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) key[i] = keys[Tile::slot(i)];
    tile.rank([&](int i) { return u32(key[i] >> shift) & (RADIX - 1); }, to);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) keys[to[i]] = Word(key[i]);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) place[i] = places[Tile::slot(i)];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) places[to[i]] = u16(place[i]);
    __syncthreads();
  }

  // 3. store; a key does not say which zero or NaN the element is
  const Results<T, Index, HAS_VALUES> results(values, indices, offset, lines);
  for (u32 i = threadIdx.x; i < n; i += THREADS)
    results.put(i, HAS_VALUES ? at<T>(x + offset[X], lines.step[X], places[i]) : Word(0), places[i]);
}
