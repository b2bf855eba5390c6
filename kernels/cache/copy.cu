// dest page = source page, for pairs of page ids: K, V and their scales, all layers, in one launch.
//
// Grid:      blockIdx.y: array; blockIdx.x: (pair, layer, chunk of a page). A layer's page is one run of words.
// Loads:     UNROLL words per thread in flight.
// Errors:    a pair with an id out of range is skipped, and its status is 1.
// Shared:    none.   Bound: DRAM, latency when small.
#include "core/index.cuh"

// Strides of one array in bytes, and words per page.
struct Array {
  i64 layer, page;
  u32 words, unused;
};
struct Arrays { Array of[4]; };

template <int WIDTH, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
    copy_pages(u8* k_pages, u8* v_pages, u8* k_scales, u8* v_scales, const i32* source, const i32* dest, i32* status,
        const __grid_constant__ Arrays arrays, Divisor32 chunks, Divisor32 layers, u32 pages) {
  using T = typename Word<WIDTH>::type;
  const u32 part = blockIdx.y;
  u8* const base = part == 0 ? k_pages : part == 1 ? v_pages : part == 2 ? k_scales : v_scales;
  const Array& array = arrays.of[part];
  // 1. pair, layer, chunk
  const u32 run = chunks.divide(blockIdx.x), chunk = blockIdx.x - run * chunks.divisor;
  const u32 pair = layers.divide(run), layer = run - pair * layers.divisor;
  const u32 from = source[pair], to = dest[pair];
  const bool fits = from < pages && to < pages;
  if (part == 0 && layer == 0 && chunk == 0 && threadIdx.x == 0) status[pair] = fits ? 0 : 1;
  if (!fits) return;

  // 2. copy: all words of the chunk in flight
  const T* read = reinterpret_cast<const T*>(base + layer * array.layer + from * array.page);
  T* write = reinterpret_cast<T*>(base + layer * array.layer + to * array.page);
  const u32 first = chunk * (THREADS * UNROLL) + threadIdx.x;
  T word[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (first + u * THREADS < array.words) word[u] = read[first + u * THREADS];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (first + u * THREADS < array.words) write[first + u * THREADS] = word[u];
}
