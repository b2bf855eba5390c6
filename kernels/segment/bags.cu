// Bags of entries: entry i of bag s, offsets[s] <= i < offsets[s + 1], names a row of a table by ids[i].
//
// list_entries:  rows[i] = ids[i], NONE if it is out of range (`status` is set) or ignored; bounds[s] = offsets[s], or
//                s * width. `refused` and `status` are set if offsets are out of order or range.
// count_entries: sizes[s] = the entries of bag s that name a row; one integer atomic per warp and bag.
// place_bags:    of entries sorted by row: bags[j] = the bag of entry positions[j], NONE if it has none, and its scale.
// weigh_entries: out[i] = sum of table[rows[i], :] * grad[s, :]: LANES threads per entry, V adjacent columns each; the
//                sums of threads are joined by shuffles in a fixed order.
// Shared:        none.   Bound: DRAM, of weigh_entries both rows.
#include "segment/bounds.cuh"
#include "segment/reductions.cuh"
#include "rows/group.cuh"
#include "core/index.cuh"

using segment::Bounds;
using segment::NONE;

constexpr u32 BAG_THREADS = 256;

// WIDTH: bags of equal width, without offsets; OPEN: the last bag ends after the last entry, without an offset.
enum Form { OFFSETS, OPEN, WIDTH };

template <class Id, class Index, Form FORM>
__global__ void __launch_bounds__(BAG_THREADS)
list_entries(u32* rows, i32* bounds, i32* refused, i32* status, const Id* ids, const Index* offsets, i64 extent,
             i64 ignored, u32 count, u32 bags, u32 width) {
  const u32 i = blockIdx.x * BAG_THREADS + threadIdx.x;
  // 1. the entry's row
  if (i < count) {
    const i64 id = i64(ids[i]);
    const bool found = id >= 0 && id < extent;
    if (!found && status) *status = 1;
    rows[i] = found && id != ignored ? u32(id) : NONE;
  }
  // 2. the bag's bound
  if (i > bags) return;
  const auto bound = [&](u32 s) -> i64 {
    if constexpr (FORM == WIDTH) return i64(s) * width;
    else return FORM == OPEN && s == bags ? i64(count) : i64(offsets[s]);
  };
  const i64 at = bound(i), next = i < bags ? bound(i + 1) : at;
  if (at < 0 || at > count || next < at) {
    *refused = 1;
    if (status) *status = 1;
  }
  bounds[i] = i32(at);
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
count_entries(u32* sizes, const u32* rows, const i32* offsets, const i32* refused, u32 bags, u32 count) {
  const Bounds<i32> bounds(offsets, refused);
  const u32 i = blockIdx.x * THREADS + threadIdx.x, lane = threadIdx.x % 32, first = i - lane;
  const u32 s = segment::segment_of<1>(bags, i, bounds);
  const u32 begin = bounds(s), end = bounds(s + 1);
  const bool own = i < count && begin <= i && i < end;
  const u32 named = __ballot_sync(~0u, own && rows[i] != NONE);
  // the first lane of each bag in the warp adds those of all its lanes
  if (!own || lane != (begin > first ? begin - first : 0)) return;
  const u32 lanes = end - first < 32 ? (1u << (end - first)) - 1 : ~0u;
  atomicAdd(sizes + s, u32(__popc(named & lanes & ~0u << lane)));
}

// The scale of an entry: its weight, or 1 over the size of its bag.
enum Scale { ONE, WEIGHT, MEAN };

template <class T, class C, Scale SCALE>
__global__ void __launch_bounds__(BAG_THREADS)
place_bags(u32* entries, C* scales, const u32* positions, const i32* offsets, const i32* refused, const T* weights,
           const u32* sizes, u32 bags, u32 count) {
  const Bounds<i32> bounds(offsets, refused);
  const u32 j = blockIdx.x * BAG_THREADS + threadIdx.x;
  if (j >= count) return;
  const u32 i = positions[j], s = segment::search(0, bags, i, bounds);
  const bool found = bounds(s) <= i && i < bounds(s + 1);
  entries[j] = found ? s : NONE;
  if constexpr (SCALE == WEIGHT) scales[j] = convert<C>(weights[i]);
  if constexpr (SCALE == MEAN) scales[j] = found ? C(1) / C(sizes[s]) : C(0);
}

template <class T, class C, int V, int LANES, int RC>
__global__ void __launch_bounds__(BAG_THREADS)
weigh_entries(T* out, const u8* table, const u8* grad, const u32* entries, const i32* offsets, const i32* refused,
              u32 bags, u32 count, u32 length, segment::Rows<RC> rows) {
  const Bounds<i32> bounds(offsets, refused);
  const u32 i = blockIdx.x * (BAG_THREADS / LANES) + threadIdx.x / LANES;
  const u32 s = segment::segment_of<LANES>(bags, i, bounds);
  const u32 row = i < count && bounds(s) <= i && i < bounds(s + 1) ? entries[i] : NONE;
  C sum = 0;
  for (u32 column = threadIdx.x % LANES * V; row != NONE && column < length; column += LANES * V) {
    i64 at[2];
    rows.template column<T>(column, at);
    C a[V], b[V];
    rows::fetch<T>(a, reinterpret_cast<const T*>(table + at[0] + i64(row) * rows.step[0]));
    rows::fetch<T>(b, reinterpret_cast<const T*>(grad + at[1] + i64(s) * rows.step[1]));
#pragma unroll
    for (int v = 0; v < V; ++v) sum += a[v] * b[v];
  }
  sum = rows::sum<LANES>(sum);
  if (i < count && threadIdx.x % LANES == 0) out[i] = convert<T>(sum);
}
