// Checks the page table of one sequence and reports in `status`.
#pragma once
#include "attention/cache.cuh"

namespace attention {

// status 0: every page that some token sees exists; 1: some page is missing; 2: the length is out of range;
// 3 (for all sequences): the sequence starts decrease or are out of range.
template <int THREADS, class P> __device__ __forceinline__ void check(const Cache& cache, const P& p, u32 sequence) {
  const i64 length = cache.lengths ? cache.lengths[sequence] : i64(cache.capacity);
  const i32* starts = p.starts_q;
  const int used = cache.length(sequence), size = int(cache.page_keys), pages = (used + size - 1) / size;
  const Standing first = {used, i64(used) - Extent(starts, sequence, p.rows).count, sequence, 0};
  bool wrong = false, broken = starts && (starts[0] < 0 || starts[cache.sequences] > i64(p.rows));
  for (u32 at = threadIdx.x; starts && at < cache.sequences; at += THREADS) broken |= starts[at] > starts[at + 1];
  for (int at = keys_of(p, first, 0).first / size + int(threadIdx.x); at < pages; at += THREADS)
    wrong |= u32(cache.table[sequence * cache.table_step + at]) >= cache.pages;
  __shared__ bool found[2][THREADS / 32];
  wrong = __any_sync(~0u, wrong);
  broken = __any_sync(~0u, broken);
  if (threadIdx.x % 32 == 0) found[0][threadIdx.x / 32] = wrong, found[1][threadIdx.x / 32] = broken;
  __syncthreads();
  for (int warp = 0; warp < THREADS / 32; ++warp) wrong |= found[0][warp], broken |= found[1][warp];
  if (threadIdx.x == 0) cache.status[sequence] = broken ? 3 : length < 0 || length > cache.capacity ? 2 : wrong;
}

}  // namespace attention
