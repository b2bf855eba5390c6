// values, indices = the elements of each row in order and their places; equal elements keep their order (LSD radix sort
// of rows of any length). Per 8-bit digit:
//
// count_digits:  per tile, a histogram of the digit.
// move_elements: ranks elements within their tile, orders the tile in shared memory, and stores runs of equal digits.
// Grid:          one CTA per tile of THREADS * ITEMS elements; a tile is of one row.
// Places:        of few tiles per row, each CTA adds up their histograms (counts[row][tile][digit]); SCANNED: they were
//                summed by kernels/indexing/sorted_keys.cu:scan_counts (counts[row][digit][tile], totals[row][digit]).
// FIRST, LAST:   the first pass reads x, the last one writes the results; passes between move (element, index) pairs.
// Shared:        an element and 4 bytes each, and one counter per warp and digit.   Bound: DRAM.
#include "sort/ranks.cuh"

using namespace sort;

constexpr int RADIX_THREADS = 256;

// A row of x or of moved elements, and where the CTA's tile of it begins.
template <class T, bool FIRST, int TILE> struct RowTile {
  u64 row;
  u32 tile, first, valid;
  const u8* from;
  i64 step;

  template <class I, int R>
  __device__ __forceinline__ RowTile(
      const u8* x, u32 n, u32 tiles, i64 (&offset)[3], const Lines<I, R>& lines) {
    row = blockIdx.x / tiles;
    tile = blockIdx.x - u32(row) * tiles;
    first = tile * TILE;
    valid = n - first < TILE ? n - first : TILE;
    lines.dims.locate(I(row), offset);
    step = FIRST ? lines.step[X] : i64(sizeof(T));
    from = FIRST ? x + offset[X] : x + row * n * sizeof(T);
  }
  __device__ __forceinline__ typename Order<T>::Word word(u32 slot) const { return at<T>(from, step, first + slot); }
};

// Where the counts of a digit are.
template <bool SCANNED> __device__ __forceinline__ u64 count_of(u64 row, u32 tile, u32 tiles, u32 digit) {
  return SCANNED ? (row * RADIX + digit) * tiles + tile : (row * tiles + tile) * RADIX + digit;
}

template <class T, class I, int R, int ITEMS, bool FIRST, bool SCANNED>
__global__ void __launch_bounds__(RADIX_THREADS) count_digits(
    u32* counts, const u8* x, u32 n, u32 tiles, u32 shift, typename Order<T>::Key flip, Lines<I, R> lines) {
  __shared__ u32 found[RADIX];
  i64 offset[3] = {0, 0, 0};
  const RowTile<T, FIRST, RADIX_THREADS * ITEMS> part(x, n, tiles, offset, lines);
  found[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const u32 slot = i * RADIX_THREADS + threadIdx.x;
    if (slot < part.valid) atomicAdd(&found[digit_of<T>(part.word(slot), flip, shift)], 1u);
  }
  __syncthreads();
  counts[count_of<SCANNED>(part.row, part.tile, tiles, threadIdx.x)] = found[threadIdx.x];
}

template <class T, class Index, class I, int R, int ITEMS, bool FIRST, bool LAST, bool SCANNED, bool HAS_VALUES>
__global__ void __launch_bounds__(RADIX_THREADS)
move_elements(u8* to_values, u8* to_indices, const u8* x, const u32* indices, const u32* counts, const u32* totals,
    u32 n, u32 tiles, u32 shift, typename Order<T>::Key flip, Lines<I, R> lines) {
  using Word = typename Order<T>::Word;
  using Tile = Ranks<RADIX_THREADS, ITEMS>;
  extern __shared__ __align__(16) u8 memory[];
  Word* const words = reinterpret_cast<Word*>(memory);
  u32* const places = reinterpret_cast<u32*>(words + Tile::TILE);
  const Tile tile = {reinterpret_cast<u32(*)[RADIX]>(places + Tile::TILE)};
  __shared__ u32 begin[RADIX];  // first place in the row of each of the tile's digits, less that in the tile
  i64 offset[3] = {0, 0, 0};
  const RowTile<T, FIRST, Tile::TILE> part(x, n, tiles, offset, lines);

  // 1. load, in flight together; slots after the row's end have the greatest digit, and so stay last
  Word word[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) word[i] = Tile::slot(i) < part.valid ? part.word(Tile::slot(i)) : Word(0);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) words[Tile::slot(i)] = word[i];

  // 2. the row's elements with the thread's digit: all, and those of earlier tiles
  u32 all = 0, earlier = 0;
  if constexpr (SCANNED) {
    all = totals[part.row * RADIX + threadIdx.x];
    earlier = counts[count_of<true>(part.row, part.tile, tiles, threadIdx.x)];
  } else {
#pragma unroll 2
    for (u32 t = 0; t < tiles; ++t) {
      const u32 found = counts[count_of<false>(part.row, t, tiles, threadIdx.x)];
      all += found;
      earlier += t < part.tile ? found : 0;
    }
  }
  u32 total;
  const u32 smaller = exclusive_sum<RADIX_THREADS>(all, total);

  // 3. order the tile in shared memory; a thread reads its own elements again, which takes no registers meanwhile
  u32 to[ITEMS], place[ITEMS];
  const u32* const held = FIRST ? nullptr : indices + part.row * n + part.first;
  const auto digit = [&](int i) {
    return Tile::slot(i) < part.valid ? digit_of<T>(words[Tile::slot(i)], flip, shift) : u32(RADIX - 1);
  };
  begin[threadIdx.x] = smaller + earlier - tile.rank(digit, to);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) word[i] = words[Tile::slot(i)];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) words[to[i]] = word[i];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const u32 slot = Tile::slot(i);
    if constexpr (FIRST) place[i] = part.first + slot;
    else place[i] = slot < part.valid ? held[slot] : 0;
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) places[to[i]] = place[i];
  __syncthreads();

  // 4. store
  const Results<T, Index, HAS_VALUES> results(to_values, to_indices, offset, lines);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const u32 slot = i * RADIX_THREADS + threadIdx.x;
    if (slot >= part.valid) break;
    const Word moved = words[slot];
    const u32 in_row = begin[digit_of<T>(moved, flip, shift)] + slot;
    if constexpr (LAST) {
      results.put(in_row, moved, places[slot]);
    } else {
      reinterpret_cast<Word*>(to_values)[part.row * n + in_row] = moved;
      reinterpret_cast<u32*>(to_indices)[part.row * n + in_row] = places[slot];
    }
  }
}
