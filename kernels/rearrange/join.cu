// out[r, :] = [x0[r, :], x1[r, :], ...]: rows of several arrays one after another, for any element type.
//
// Units:    grains of GRAIN bytes, which divide every address, row and pitch. With GRAIN < BYTES, rows may begin
//           anywhere in a chunk.
// Threads:  UNROLL chunks of BYTES bytes of the flat result; all loads precede the stores. A chunk of one piece is
//           loaded as two aligned words and shifted; others go grain by grain.
// Pieces:   N at most; the unused ones begin behind the row.
// Shared:   none.   Bound: DRAM.
#include "core/index.cuh"
#include "rearrange/chunk.cuh"

constexpr int THREADS = 256;
constexpr int MOST = 16;

// Of each piece, in grains: where it begins in a row of the result, and its end; in bytes: from row to row, and its
// memory without gaps (0: only rows have none).
template <class I, int N> struct Pieces {
  I begin[N], end[N];
  i64 pitch[N], dense[N];
};

template <class I, int N, int GRAIN, int BYTES, int UNROLL>
__global__ void __launch_bounds__(THREADS, 3) join_rows(
    u8* out, I count, typename DivisorOf<I>::type per_row, Pieces<I, N> pieces, const u8* x0, const u8* x1,
    const u8* x2, const u8* x3, const u8* x4, const u8* x5, const u8* x6, const u8* x7, const u8* x8, const u8* x9,
    const u8* x10, const u8* x11, const u8* x12, const u8* x13, const u8* x14, const u8* x15) {
  using T = typename Word<GRAIN>::type;
  constexpr int V = BYTES / GRAIN;
  const u8* const x[MOST] = {x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15};

  struct Place { u64 at, first, last; I left; };  // the address, the memory around it, and grains to the piece's end
  const auto find = [&](I grain) {
    const I row = per_row.divide(grain), within = grain - row * per_row.divisor;
    I begin = pieces.begin[0], end = pieces.end[0];
    u64 base = u64(x[0]);
    i64 pitch = pieces.pitch[0], dense = pieces.dense[0];
#pragma unroll
    for (int p = 1; p < N; ++p) {
      const bool here = within >= pieces.begin[p];
      begin = here ? pieces.begin[p] : begin;
      end = here ? pieces.end[p] : end;
      base = here ? u64(x[p]) : base;
      pitch = here ? pieces.pitch[p] : pitch;
      dense = here ? pieces.dense[p] : dense;
    }
    const u64 first = base + i64(row) * pitch;
    return Place{first + u64(within - begin) * GRAIN, dense ? base : first,
        dense ? base + dense : first + u64(end - begin) * GRAIN, end - within};
  };

  const I base = (I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x) * V;
  typename Word<BYTES>::type value[UNROLL];
  bool whole[UNROLL];
  // 1. Load chunks, copy the others grain by grain
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const I first = base + u * (THREADS * V);
    whole[u] = false;
    if (first >= count) continue;
    const Place place = find(first);
    if constexpr (V == 1) {
      value[u] = *reinterpret_cast<const T*>(place.at);
      whole[u] = true;
    } else if (!(whole[u] = place.left >= V && load_chunk(value[u], place.at, place.first, place.last))) {
#pragma unroll 1
      for (I grain = first; grain < first + V && grain < count; ++grain)
        *reinterpret_cast<T*>(out + u64(grain) * GRAIN) = *reinterpret_cast<const T*>(find(grain).at);
    }
  }
  // 2. Store the chunks
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (whole[u])
      *reinterpret_cast<typename Word<BYTES>::type*>(out + u64(base + u * (THREADS * V)) * GRAIN) = value[u];
}
