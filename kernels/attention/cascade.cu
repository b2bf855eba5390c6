// The shared prefix as `parts` sequences of part_pages pages each: part_lengths[i] = clamp(keys - i * part_keys, 0,
// part_keys), part_table[i, :] = table[i * part_pages, ...], -1 behind the table's end.
//
// Grid:      one CTA; its threads stride over the table.
// Status:    a sequence whose status is 0 gets 5 where the prefix's length is below 0 or beyond the capacity of the
//            table, and 4 where a page in use is not in the pool.
// Shared:    one flag per warp.   Bound: latency.
#include "core/dtype.cuh"
#include "ptx/overlap.cuh"

struct Prefix {
  const i32 *table, *length;  // length: null: `keys`
  i32 *part_table, *part_lengths, *status;  // each may be null
  i64 step, keys;  // from one entry of the table to the next; keys in use
  u32 columns, page_keys, pages, parts, part_pages, sequences;
};

template <int THREADS> __global__ void __launch_bounds__(THREADS) attention_cascade_prefix(Prefix p) {
  overlap::wait();
  overlap::release();
  const i64 capacity = i64(p.columns) * p.page_keys, part_keys = i64(p.part_pages) * p.page_keys;
  const i64 given = p.length ? i64(*p.length) : min(p.keys, capacity), used = min(max(given, i64(0)), capacity);

  // 1. lengths and table of the parts
  if (p.part_lengths)
    for (u32 i = threadIdx.x; i < p.parts; i += THREADS)
      p.part_lengths[i] = i32(min(max(used - i * part_keys, i64(0)), part_keys));
  if (p.part_table)
    for (u32 i = threadIdx.x; i < p.parts * p.part_pages; i += THREADS)
      p.part_table[i] = i < p.columns ? p.table[i * p.step] : -1;

  // 2. status
  if (!p.status) return;
  bool missing = false;
  for (u32 i = threadIdx.x; i64(i) * p.page_keys < used; i += THREADS) missing |= u32(p.table[i * p.step]) >= p.pages;
  __shared__ bool warps[THREADS / 32];
  missing = __any_sync(~0u, missing);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = missing;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < THREADS / 32; ++warp) missing |= warps[warp];
  const i32 found = given != used ? 5 : missing ? 4 : 0;
  for (u32 i = threadIdx.x; found && i < p.sequences; i += THREADS)
    if (p.status[i] == 0) p.status[i] = found;
}
