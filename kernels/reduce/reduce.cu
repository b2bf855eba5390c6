// out = reduce(x) over any axes, with the reducers of rows/reducers.cuh. The reduced extent fixes each kernel's order.
//
// reduce_rows:    the reduced axes are innermost, or arbitrary. LANES threads per row (rows/row.cuh). CHUNKED: long
//                 rows are split, one CTA per chunk, states to partial[chunks][results]. The tail goes by elements.
// reduce_columns: results are contiguous along the innermost axis. A CTA has DOWN x ACROSS warps; V columns per thread,
//                 every DOWN-th batch of DEPTH terms, DEPTH loads in flight; CHUNKED as above.
// join_chunks:    joins the states of a result's chunks; OUTS results per CTA, the other threads along the chunks.
// UNALIGNED:       rows of x at any alignment: contiguous ones by shifted words (rows/pack.cuh), others by elements.
// Shared:         one state per warp, or one per column and warp.   Bound: DRAM.
#include "ptx/overlap.cuh"
#include "rows/fold.cuh"
#include "rows/group.cuh"
#include "rows/place.cuh"
#include "rows/reducers.cuh"
#include "rows/row.cuh"

enum Operand { OUT, X, OPERANDS };

template <class Op, class T, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    bool CHUNKED, bool UNALIGNED>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
    reduce_rows(I count, I length, I chunk, I chunks, int correction, rows::Places<I, R, RC, OPERANDS> places,
        typename Op::Result* out, typename Op::State* partial, const T* x) {
  constexpr bool SHIFTED = UNALIGNED && RC == 0;  // otherwise by elements
  using UnalignedVec = rows::UnalignedVec<T, V, SHIFTED>;
  const I part = CHUNKED ? I(blockIdx.x) % chunks : 0, block = CHUNKED ? I(blockIdx.x) / chunks : I(blockIdx.x);
  const I row = block * (THREADS / LANES) + threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  const I first = part * chunk, n = live ? (CHUNKED ? min(chunk, length - first) : length) : 0, whole = n - n % V;

  // 1. per-thread state
  auto state = Op::none();
  rows::Row<RESIDENT, UnalignedVec, V, ITEMS, LANES, I> line(whole, lane);
  const auto from = [&](I column) { return places.template at<X>(x, at, first + column); };
  const auto load = [&](I column) {
    UnalignedVec vec;
    if constexpr (UNALIGNED && !SHIFTED)
#pragma unroll
      for (int v = 0; v < V; ++v) vec.pack.part[v / vec.pack.WIDTH].at[v % vec.pack.WIDTH] = from(column)[v];
    else vec.load(from(column), column, n);
    return vec;
  };
  line.load(load);
  line.pass(load, [&](UnalignedVec& vec, I column, int) {
    C a[V];
    rows::widen_words(vec.whole(SHIFTED ? from(column) : nullptr, column, n), a);
    Op::add(state, a, first + column);
  });
  if constexpr (V > 1)
    for (I column = whole + lane; column < n; column += LANES) {
      const C a[1] = {convert<C>(*from(column))};
      Op::add(state, a, first + column);
    }

  // 2. reduce over the row's threads, store
  state = Op::template gather<LANES>(state);
  if (!live || lane != 0) return;
  if constexpr (CHUNKED) partial[i64(part) * count + row] = state;
  else *places.template of_row<OUT>(out, at) = Op::finish(state, length, correction);
}

// `places` has the innermost kept axis as columns and the others as rows; `along`: the reduced axes, `extent` terms.
template <class Op, class T, class C, int V, int DOWN, int ACROSS, int R, int RT, class I, bool CHUNKED, bool UNALIGNED>
__global__ void __launch_bounds__(DOWN * ACROSS * 32, (rows::LEAST_CTAS<true, C, DOWN * ACROSS * 32>))
reduce_columns(I count, I length, I extent, I chunk, I chunks, int correction, rows::Places<I, R, 0, OPERANDS> places,
               Dims<I, RT, 1> along, typename Op::Result* out, typename Op::State* partial, const T* x) {
  using State = typename Op::State;
  using UnalignedVec = rows::UnalignedVec<T, V, UNALIGNED>;
  constexpr int DEPTH = 4, COLUMNS = ACROSS * 32 * V;
  struct Held { State state; __device__ Held() {} };
  __shared__ Held states[DOWN][V][ACROSS * 32];
  const u32 across = threadIdx.x % (ACROSS * 32), down = threadIdx.x / (ACROSS * 32);
  const I blocks = (length + COLUMNS - 1) / COLUMNS, part = CHUNKED ? I(blockIdx.x) % chunks : 0;
  const I block = CHUNKED ? I(blockIdx.x) / chunks : I(blockIdx.x), row = block / blocks;
  const I column = (block - row * blocks) * COLUMNS + across * V, first = part * chunk;
  const bool live = row < count && column < length, whole = !UNALIGNED || column + V <= length;
  i64 at[OPERANDS];
  places.enter(row < count ? row : 0, at);
  const u8* const from = reinterpret_cast<const u8*>(places.template at<X>(x, at, 0));
  const I end = live ? (CHUNKED ? min(extent, first + chunk) : extent) : 0;

  // 1. per-thread states of V columns
  State state[V];
#pragma unroll
  for (int v = 0; v < V; ++v) state[v] = Op::none();
  const auto begin = [&](I i) {
    i64 offset[1] = {0};
    if constexpr (RT > 0) along.locate(i, offset);
    return reinterpret_cast<const T*>(from + offset[0]);
  };
  const auto load = [&](UnalignedVec& vec, I i) {
    if (whole) vec.load(begin(i) + column, column, length);
  };
  const auto widen = [&](const UnalignedVec& vec, I i, C(&terms)[V]) {
    rows::Pack<T, V> pack;
    if (whole) pack = vec.whole(begin(i) + column, column, length);
    else
#pragma unroll
      for (int v = 0; v < V; ++v) pack.part[0].at[v] = begin(i)[min(column + v, length - 1)];
    rows::widen_words(pack, terms);
  };
  I i = first + down * DEPTH;
#pragma unroll UNALIGNED ? 1 : 2
  for (; i + DEPTH <= end; i += DOWN * DEPTH) {
    UnalignedVec vec[DEPTH];
    C a[DEPTH][V];
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) load(vec[k], i + k);
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) widen(vec[k], i + k, a[k]);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      C terms[DEPTH];
#pragma unroll
      for (int k = 0; k < DEPTH; ++k) terms[k] = a[k][v];
      Op::add(state[v], terms, i);
    }
  }
  // Tail: terms past whole batches.
  UnalignedVec vec[DEPTH - 1];
#pragma unroll
  for (int k = 0; k < DEPTH - 1; ++k)
    if (i + k < end) load(vec[k], i + k);
#pragma unroll
  for (int k = 0; k < DEPTH - 1; ++k) {
    if (i + k >= end) break;
    C a[V];
    widen(vec[k], i + k, a);
#pragma unroll
    for (int v = 0; v < V; ++v) Op::add(state[v], reinterpret_cast<const C(&)[1]>(a[v]), i + k);
  }
  if constexpr (CHUNKED) overlap::release();
#pragma unroll
  for (int v = 0; v < V; ++v) states[down][v][across].state = state[v];
  __syncthreads();

  // 2. join warps in order, store columns
  for (u32 i = threadIdx.x; i < COLUMNS; i += DOWN * ACROSS * 32) {
    State total = states[0][i % V][i / V].state;
#pragma unroll 1
    for (int w = 1; w < DOWN; ++w) total = Op::join(total, states[w][i % V][i / V].state);
    const I own = (block - row * blocks) * COLUMNS + i;
    if (row >= count || own >= length) continue;
    if constexpr (CHUNKED) partial[(i64(part) * count + row) * length + own] = total;
    else *places.template at<OUT>(out, at, own) = Op::finish(total, extent, correction);
  }
}

// out = finish(join of the states of all chunks), OUTS results per CTA, in a fixed order.
template <class Op, int THREADS, int OUTS, int R, class I>
__global__ void __launch_bounds__(THREADS, 1) join_chunks(I results, u32 chunks, i64 extent, int correction,
    Dims<I, R, 1> dims, typename Op::Result* out, const typename Op::State* partial) {
  using State = typename Op::State;
  const I result = I(blockIdx.x) * OUTS + threadIdx.x % OUTS;
  const bool live = result < results;
  overlap::wait();
  State state = rows::fold<8>(threadIdx.x / OUTS, live ? chunks : 0, THREADS / OUTS, Op::none(),
      [&](u32 chunk) { return partial[i64(chunk) * results + result]; },
      [](State a, State b) { return Op::join(a, b); });
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
  *reinterpret_cast<typename Op::Result*>(reinterpret_cast<u8*>(out) + offset[0]) = Op::finish(
      state, extent, correction);
}
