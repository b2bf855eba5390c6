// Reductions over any axes, by the reducers of rows/reducers.cuh. Every order of terms is fixed by the reduced extent alone.
//
// reduce_rows: terms lie along the innermost axis, or anyhow. LANES threads share a row (rows/row.cuh); a row longer than a chunk
// is CHUNKED: a CTA each, whose states go to `partial`, [chunks][results]. What a row has beyond whole vectors comes one by one.
// ANYWHERE: rows start at any address (rows/pack.cuh).
// reduce_columns: results lie along the innermost axis. A thread takes V of them and goes down the terms, DEPTH at a time, WARPS
// of a CTA side by side; CHUNKED as above.
// join_chunks: the states of a result's chunks together: OUTS results a CTA, its other threads along the chunks.
// Shared memory: a state a warp, or a state a column and warp. Bound: memory bandwidth.
#include "overlap.cuh"
#include "rows/group.cuh"
#include "rows/place.cuh"
#include "rows/reducers.cuh"
#include "rows/row.cuh"

enum Operand { OUT, X, OPERANDS };

template <class Op, class T, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I, bool CHUNKED,
          bool ANYWHERE>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
reduce_rows(I count, I length, I chunk, I chunks, int correction, rows::Places<I, R, RC, OPERANDS> places, typename Op::Result* out,
            typename Op::State* partial, const T* x) {
  using Piece = rows::Piece<T, V, ANYWHERE>;
  const I part = CHUNKED ? I(blockIdx.x) % chunks : 0, block = CHUNKED ? I(blockIdx.x) / chunks : I(blockIdx.x);
  const I row = block * (THREADS / LANES) + threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  const I first = part * chunk, n = live ? (CHUNKED ? min(chunk, length - first) : length) : 0, whole = n - n % V;

  // The thread's own terms.
  auto state = Op::none();
  rows::Row<RESIDENT, Piece, V, ITEMS, LANES, I> line(whole, lane);
  const auto from = [&](I column) { return places.template at<X>(x, at, first + column); };
  const T *begin = ANYWHERE ? from(0) : nullptr, *end = ANYWHERE ? begin + n : nullptr;
  const auto load = [&](I column) {
    Piece piece;
    piece.load(from(column), begin, end);
    return piece;
  };
  line.load(load);
  line.pass(load, [&](Piece& piece, I column, int) {
    C a[V];
    piece.whole(ANYWHERE ? from(column) : nullptr, begin, end).widen(a);
    Op::add(state, a, first + column);
  });
  if constexpr (V > 1)
    for (I column = whole + lane; column < n; column += LANES) {
      const C a[1] = {convert<C>(*from(column))};
      Op::add(state, a, first + column);
    }

  // Those of the row.
  state = Op::template gather<LANES>(state);
  if (!live || lane != 0) return;
  if constexpr (CHUNKED) partial[i64(part) * count + row] = state;
  else *places.template of_row<OUT>(out, at) = Op::finish(state, length, correction);
}

// `places` has the innermost kept axis as its columns and the others as rows; `along` goes along the terms, `extent` of them.
template <class Op, class T, class C, int V, int WARPS, int R, int RT, class I, bool CHUNKED>
__global__ void __launch_bounds__(WARPS * 32, (rows::LEAST_CTAS<true, C, WARPS * 32>))
reduce_columns(I count, I length, I extent, I chunk, I chunks, int correction, rows::Places<I, R, 0, OPERANDS> places,
               Dims<I, RT, 1> along, typename Op::Result* out, typename Op::State* partial, const T* x) {
  using State = typename Op::State;
  constexpr int DEPTH = 4;
  struct Held { State state; __device__ Held() {} };
  __shared__ Held states[WARPS][V][32];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I blocks = (length + 32 * V - 1) / (32 * V), part = CHUNKED ? I(blockIdx.x) % chunks : 0;
  const I block = CHUNKED ? I(blockIdx.x) / chunks : I(blockIdx.x), row = block / blocks;
  const I column = ((block - row * blocks) * 32 + lane) * V, first = part * chunk;
  const bool live = row < count && column < length;
  i64 at[OPERANDS];
  places.enter(row < count ? row : 0, at);
  const T* from = places.template at<X>(x, at, live ? column : 0);
  const I end = live ? (CHUNKED ? min(extent, first + chunk) : extent) : 0;

  // A warp's terms of each column.
  State state[V];
#pragma unroll
  for (int v = 0; v < V; ++v) state[v] = Op::none();
  const auto load = [&](I i) {
    i64 offset[1] = {0};
    if constexpr (RT > 0) along.locate(i, offset);
    return rows::loaded<T, V>(reinterpret_cast<const T*>(reinterpret_cast<const u8*>(from) + offset[0]));
  };
  const I whole = first < end ? end - (end - first) % DEPTH : end;
#pragma unroll 2
  for (I i = first + warp * DEPTH; i < whole; i += WARPS * DEPTH) {
    C a[DEPTH][V];
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) load(i + k).widen(a[k]);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      C terms[DEPTH];
#pragma unroll
      for (int k = 0; k < DEPTH; ++k) terms[k] = a[k][v];
      Op::add(state[v], terms, i);
    }
  }
  for (I i = whole + warp; i < end; i += WARPS) {
    C a[V];
    load(i).widen(a);
#pragma unroll
    for (int v = 0; v < V; ++v) Op::add(state[v], reinterpret_cast<const C(&)[1]>(a[v]), i);
  }
#pragma unroll
  for (int v = 0; v < V; ++v) states[warp][v][lane].state = state[v];
  __syncthreads();

  // The warps' in order; thread i has column i of the CTA.
  for (u32 i = threadIdx.x; i < 32 * V; i += WARPS * 32) {
    State total = states[0][i % V][i / V].state;
#pragma unroll 1
    for (int w = 1; w < WARPS; ++w) total = Op::join(total, states[w][i % V][i / V].state);
    const I own = (block - row * blocks) * (32 * V) + i;
    if (row >= count || own >= length) continue;
    if constexpr (CHUNKED) partial[(i64(part) * count + row) * length + own] = total;
    else *places.template at<OUT>(out, at, own) = Op::finish(total, extent, correction);
  }
}

template <class Op, int THREADS, int OUTS, int R, class I>
__global__ void __launch_bounds__(THREADS, 1)
join_chunks(I results, u32 chunks, i64 extent, int correction, Dims<I, R, 1> dims, typename Op::Result* out, const typename Op::State* partial) {
  using State = typename Op::State;
  const I result = I(blockIdx.x) * OUTS + threadIdx.x % OUTS;
  const bool live = result < results;
  overlap::wait();
  State state = Op::none();
#pragma unroll 4
  for (u32 chunk = threadIdx.x / OUTS; live && chunk < chunks; chunk += THREADS / OUTS)
    state = Op::join(state, partial[i64(chunk) * results + result]);
  if constexpr (OUTS == 1) {
    state = Op::template gather<THREADS>(state);
  } else {
    static_assert(OUTS == 32);
    struct Held { State state; __device__ Held() {} };
    __shared__ Held states[THREADS / OUTS][OUTS];
    states[threadIdx.x / OUTS][threadIdx.x % OUTS].state = state;
    __syncthreads();
    if (threadIdx.x < OUTS)
      for (u32 other = 1; other < THREADS / OUTS; ++other) state = Op::join(state, states[other][threadIdx.x].state);
  }
  if (!live || threadIdx.x >= OUTS) return;
  i64 offset[1] = {0};
  if constexpr (R > 0) dims.locate(result, offset);
  *reinterpret_cast<typename Op::Result*>(reinterpret_cast<u8*>(out) + offset[0]) = Op::finish(state, extent, correction);
}
