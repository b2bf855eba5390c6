// Segments of rows by their offsets: segment s has the rows from offsets[s] to offsets[s + 1].
#pragma once
#include "core/dtype.cuh"

namespace segment {

constexpr u32 PIECE = 256;  // rows
constexpr u32 NONE = ~0u;   // of an entry that names no row

// The largest s in [0, count) with begin(s) <= at, for a `begin` that does not decrease; 0 if there is none. All lanes
// of a warp search together: 32 places per step.
template <class Begin> __device__ __forceinline__ u32 warp_search(u32 count, u32 at, const Begin& begin) {
  u32 low = 0, high = count;
  while (high - low > 1) {
    const u32 step = (high - low + 31) / 32, probe = low + threadIdx.x % 32 * step;
    const u32 found = __popc(__ballot_sync(~0u, probe < high && begin(probe) <= at));
    if (found == 0) return 0;
    low += (found - 1) * step;
    if (low + step < high) high = low + step;
  }
  return low;
}
// The same among [low, high), by one thread.
template <class Begin> __device__ __forceinline__ u32 search(u32 low, u32 high, u32 at, const Begin& begin) {
  while (high - low > 1) {
    const u32 middle = low + (high - low) / 2;
    if (begin(middle) <= at) low = middle;
    else high = middle;
  }
  return low;
}

// If `refused` is set, offsets are not read, and every segment is empty.
template <class Index> struct Bounds {
  const Index* offsets;
  bool valid;

  __device__ __forceinline__ Bounds(const Index* offsets, const i32* refused)
      : offsets(offsets), valid(*refused == 0) {}
  __device__ __forceinline__ u32 operator()(u32 s) const { return valid ? u32(offsets[s]) : 0u; }
};

// The last segment that begins at or before a row; LANES threads per row, and adjacent rows in a warp, whose lanes all
// take part: it finds the segments of its first and last rows, and each row its own between these.
template <int LANES, class Index>
__device__ __forceinline__ u32 segment_of(u32 segments, u32 row, const Bounds<Index>& bounds) {
  const u32 first = row - threadIdx.x % 32 / LANES;
  u32 s = warp_search(segments, first, bounds);
  if constexpr (LANES < 32) {
    const u32 last = warp_search(segments, first + 32 / LANES - 1, bounds);
    s = search(s, last + 1, row, bounds);
  }
  return s;
}

// A segment is cut into pieces of PIECE rows from its start; piece p of segment s is unit s + offsets[s] / PIECE + p.
// No two pieces have the same unit, since a segment of n rows spans at least ceil(n / PIECE) - 1 multiples of PIECE;
// there are segments + (all rows) / PIECE units.
template <class Index> struct FirstUnit {
  Bounds<Index> bounds;
  __device__ __forceinline__ u32 operator()(u32 s) const { return s + bounds(s) / PIECE; }
};

// Where the part of a piece is stored, of a segment of several: first pieces by the multiple of PIECE below their row,
// of which there are `multiples`, since one such segment at most begins behind each; later pieces behind these.
__device__ __forceinline__ u32 part_of(u32 begin, u32 piece, u32 multiples) {
  return begin / PIECE + (piece ? multiples + piece : 0);
}

}  // namespace segment
