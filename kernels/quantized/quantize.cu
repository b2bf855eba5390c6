// code = clamp(round(x / scale) + zero) to one byte (quantized/codes.cuh), and the inverse.
//
// quantize_rows:   one scale per row; LANES threads per row (rows/row.cuh); RESIDENT rows stay in registers: x is read
//                  once.
// find_ranges:     ranges per column (COLUMN) or per tensor, as atomicMax on the bits of non-negative floats, whose
//                  order is that of integers: deterministic. One atomic pair per column and stripe.
// quantize_ranged: codes from those ranges, in reverse block order: the rows find_ranges read last are still in L2.
// dequantise:      the inverse, for any scale granularity.
// Threads:         in the last three a CTA has a stripe of rows: LANES threads along a row with V columns each, the
//                  others down the rows; DEPTH rows per thread in flight.
// Shared:          one range per warp; per column two floats per thread and column, 16 KB.
// Bound:           DRAM bandwidth; x is read twice unless the scale is per row.
#include "ptx/overlap.cuh"
#include "quantized/codes.cuh"
#include "rows/group.cuh"
#include "rows/place.cuh"
#include "rows/row.cuh"

using quantized::Codes;
using quantized::Range;
using quantized::Scale;

enum Operand { CODES, SCALES, ZEROS, X, OPERANDS };

template <class T, class P, bool ZERO, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, float, THREADS>)) quantize_rows(
    I count, I length, rows::Places<I, R, RC, OPERANDS> places, P* codes, float* scales, P* zeros, const T* x) {
  using Pack = rows::Pack<T, V>;
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  rows::Row<RESIDENT, Pack, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  overlap::wait();
  overlap::release();
  const auto load = [&](I column) { return rows::loaded<T, V>(places.template at<X>(x, at, column)); };
  line.load(load);

  // 1. Range of the row
  Range range{};
  line.pass(load, [&](Pack& pack, I, int) {
    float a[V];
    pack.widen(a);
#pragma unroll
    for (int v = 0; v < V; ++v) range.add(a[v]);
  });
  range = rows::group_reduce<LANES>(range, [](const Range& a, const Range& b) { return a.join(b); });
  const Scale scale = Codes<P, ZERO>::of(range);

  // 2. Codes
  line.pass(load, [&](Pack& pack, I column, int) {
    float a[V];
    pack.widen(a);
    Vec<P, V> made;
#pragma unroll
    for (int v = 0; v < V; ++v) made.at[v] = Codes<P, ZERO>::code(a[v], scale);
    if constexpr (RC == 0) *reinterpret_cast<Vec<P, V>*>(places.template at<CODES>(codes, at, column)) = made;
    else *places.template at<CODES>(codes, at, column) = made.at[0];
  });
  if (!live || threadIdx.x % LANES) return;
  *places.template of_row<SCALES>(scales, at) = scale.scale;
  if constexpr (ZERO) *places.template of_row<ZEROS>(zeros, at) = P(scale.zero);
}

// A CTA's part of the matrix: LANES V columns of a stripe of rows. `rows` calls load(row) for DEPTH rows of a thread,
// then each(row, loaded) for these.
template <int V, int LANES, int DEPTH, int THREADS, class I> struct Part {
  static constexpr I DOWN = THREADS / LANES;
  I first, column, end;
  bool live;
  __device__ __forceinline__ Part(I block, I count, I length, I stripe) {
    const I blocks = (length + LANES * V - 1) / (LANES * V), down = block / blocks;
    column = ((block - down * blocks) * LANES + threadIdx.x % LANES) * V;
    first = down * stripe + threadIdx.x / LANES;
    end = count - down * stripe < stripe ? count : (down + 1) * stripe;
    live = column < length;
  }
  template <class Load, class Each> __device__ __forceinline__ void rows(const Load& load, const Each& each) const {
    if (!live || first >= end) return;
    I row = first;
#pragma unroll 1
    while (true) {
      const I left = end - row;
      decltype(load(row)) held[DEPTH];
#pragma unroll
      for (int i = 0; i < DEPTH; ++i)
        if (i * DOWN < left) held[i] = load(row + i * DOWN);
#pragma unroll
      for (int i = 0; i < DEPTH; ++i)
        if (i * DOWN < left) each(row + i * DOWN, held[i]);
      if (left <= DEPTH * DOWN) return;
      row += DEPTH * DOWN;
    }
  }
};

template <class T, int V, int LANES, int DEPTH, int THREADS, int R, int RC, class I, bool COLUMN>
__global__ void __launch_bounds__(THREADS)
find_ranges(I count, I length, I stripe, rows::Places<I, R, RC, OPERANDS> places, u32* ranges, const T* x) {
  const Part<V, LANES, DEPTH, THREADS, I> part(blockIdx.x, count, length, stripe);
  // 1. Ranges of the thread's columns
  Range range[COLUMN ? V : 1] = {};
  const auto load = [&](I row) {
    i64 at[OPERANDS];
    places.enter(row, at);
    return rows::loaded<T, V>(places.template at<X>(x, at, part.column));
  };
  part.rows(load, [&](I, const rows::Pack<T, V>& pack) {
    float a[V];
    pack.widen(a);
#pragma unroll
    for (int v = 0; v < V; ++v) range[COLUMN ? v : 0].add(a[v]);
  });
  // 2. Reduce over the CTA, then by atomic maxima
  const auto widest = [](const Range& a, const Range& b) { return a.join(b); };
  if constexpr (COLUMN) {
    __shared__ Range found[THREADS / LANES][V][LANES];
#pragma unroll
    for (int v = 0; v < V; ++v) found[threadIdx.x / LANES][v][threadIdx.x % LANES] = range[v];
    __syncthreads();
    // One thread per column of the CTA
    const I begin = part.column - threadIdx.x % LANES * V;
    for (u32 i = threadIdx.x; i < LANES * V; i += THREADS) {
      const I column = begin + i;
      if (column >= length) break;
      Range all = found[0][i % V][i / V];
#pragma unroll
      for (int down = 1; down < THREADS / LANES; ++down) all = all.join(found[down][i % V][i / V]);
      atomicMax(ranges + 2 * column, __float_as_uint(all.down));
      atomicMax(ranges + 2 * column + 1, __float_as_uint(all.up));
    }
  } else {
    const Range all = rows::group_reduce<THREADS>(range[0], widest);
    if (threadIdx.x) return;
    atomicMax(ranges, __float_as_uint(all.down));
    atomicMax(ranges + 1, __float_as_uint(all.up));
  }
}

template <class T, class P, bool ZERO, int V, int LANES, int DEPTH, int THREADS, int R, int RC, class I, bool COLUMN>
__global__ void __launch_bounds__(THREADS) quantize_ranged(I count, I length, I stripe,
    rows::Places<I, R, RC, OPERANDS> places, P* codes, float* scales, P* zeros, const T* x, const u32* ranges) {
  constexpr int OWN = COLUMN ? V : 1;
  const Part<V, LANES, DEPTH, THREADS, I> part(gridDim.x - 1 - blockIdx.x, count, length, stripe);
  overlap::wait();
  overlap::release();
  // 1. Scales from the ranges
  Scale scale[OWN];
#pragma unroll
  for (int v = 0; v < OWN; ++v) {
    const u32* own = ranges + (COLUMN && part.live ? 2 * (part.column + v) : 0);
    scale[v] = Codes<P, ZERO>::of({__uint_as_float(own[0]), __uint_as_float(own[1])});
    if (part.first || !part.live || (!COLUMN && part.column)) continue;
    scales[part.column + v] = scale[v].scale;
    if constexpr (ZERO) zeros[part.column + v] = P(scale[v].zero);
  }
  // 2. Codes of the stripe
  const auto load = [&](I row) {
    i64 at[OPERANDS];
    places.enter(row, at);
    return rows::loaded<T, V>(places.template at<X>(x, at, part.column));
  };
  part.rows(load, [&](I row, const rows::Pack<T, V>& pack) {
    i64 at[OPERANDS];
    places.enter(row, at);
    float a[V];
    pack.widen(a);
    Vec<P, V> made;
#pragma unroll
    for (int v = 0; v < V; ++v) made.at[v] = Codes<P, ZERO>::code(a[v], scale[COLUMN ? v : 0]);
    *reinterpret_cast<Vec<P, V>*>(places.template at<CODES>(codes, at, part.column)) = made;
  });
}

template <class T, class P, bool ZERO, int V, int LANES, int DEPTH, int THREADS, int R, int RC, class I, bool COLUMN>
__global__ void __launch_bounds__(THREADS) dequantize(I count, I length, I stripe,
    rows::Places<I, R, RC, OPERANDS> places, const P* codes, const float* scales, const P* zeros, T* out) {
  const Part<V, LANES, DEPTH, THREADS, I> part(blockIdx.x, count, length, stripe);
  overlap::wait();
  overlap::release();
  const auto load = [&](I row) {
    i64 at[OPERANDS];
    places.enter(row, at);
    return *reinterpret_cast<const Vec<P, V>*>(places.template at<CODES>(codes, at, part.column));
  };
  part.rows(load, [&](I row, const Vec<P, V>& code) {
    i64 at[OPERANDS];
    places.enter(row, at);
    float a[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const I own = COLUMN ? part.column + v : 0;
      Scale scale{*(places.template of_row<SCALES>(scales, at) + own), 0.0f, 0};
      if constexpr (ZERO) scale.zero = *(places.template of_row<ZEROS>(zeros, at) + own);
      a[v] = Codes<P, ZERO>::value(code.at[v], scale);
    }
    rows::put(places.template at<X>(out, at, part.column), a);
  });
}
