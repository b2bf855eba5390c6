// TMA boxes of a page pool that hold one k_block.
#pragma once
#include "attention/cache.cuh"

namespace attention {

// BOXES of a page pool for one k_block: the lane's is `row` of the page that entry `page` of the page table names.
template <int BN, int BOXES> struct PageBoxes {
  static constexpr int ROWS = BN / BOXES;
  int row;
  u32 page, absent;  // page: one behind the last where the box is not read; absent: a bit per box whose page is missing
  // Keys from `first` on. `table`: the sequence's page table row; `seen`: the keys that some query of the tile sees.
  __device__ __forceinline__ void look_up(const Cache& cache, const i32* table, int first, Keys seen) {
    const u32 lane = threadIdx.x % 32;
    const int key = first + int(lane) * ROWS, entry = key / int(cache.page_keys);
    const bool counts = lane < BOXES && key < seen.end && key + ROWS > seen.first;
    row = key - entry * int(cache.page_keys);
    page = min(counts ? u32(table[entry]) : cache.pages, cache.pages);
    absent = __ballot_sync(~0u, counts && page == cache.pages);
  }
};

}  // namespace attention
