// out[key, :] = reduction of lines[position, :] over a run of pairs (key, position) of equal keys; pairs are sorted.
// ACCUMULATE: with out[key, :] first.
//
// reduce_chunks: LANES threads per chunk of CHUNK pairs and tile of LANES * V columns reduce lines in order. A run
//                within the chunk is finished there. Parts of runs that cross chunks go to scratch: `heads` holds a
//                chunk's first run if it began earlier, `tails` its last run if it began here and goes on.
// join_runs:     one CTA per chunk whose tail goes on: SLICES warps reduce adjacent shares of the run's heads, then
//                these are joined in order.
// Order:         fixed by positions, CHUNK and SLICES alone (deterministic); computed in C, rounded once.
// Bound:         DRAM, the lines, at random rows.
#include "math/extrema.cuh"
#include "rows/pack.cuh"
#include "core/index.cuh"

constexpr u32 CHUNK = 32, SLICES = 8, REDUCE_THREADS = 128, JOIN_THREADS = 32 * SLICES;

// The reductions: join(a, b) of an earlier and a later part.
template <bool DIVIDED> struct Sum {
  static constexpr bool DIVIDES = DIVIDED;  // by the number of terms
  template <class C> static __device__ __forceinline__ C join(C a, C b) { return a + b; }
};
using Add = Sum<false>;
using Mean = Sum<true>;
struct Product : Add { template <class C> static __device__ __forceinline__ C join(C a, C b) { return a * b; } };
struct Last : Add { template <class C> static __device__ __forceinline__ C join(C, C b) { return b; } };
struct Max : Add {
  template <class C> static __device__ __forceinline__ C join(C a, C b) { return math::maximum(a, b); }
};
struct Min : Add {
  template <class C> static __device__ __forceinline__ C join(C a, C b) { return math::minimum(a, b); }
};

// Where the lines are: rows of the result by key, lines by position, and the columns of both, in bytes.
template <int RK, int RP, int RC> struct Places {
  Dims<u32, RK, 1> keys;
  Dims<u32, RP, 1> positions;
  Dims<u32, RC, 2> columns;

  // Byte offsets of a column in the result and in the lines.
  template <class T> __device__ __forceinline__ void column(u32 column, i64 (&at)[2]) const {
    at[0] = at[1] = 0;
    if constexpr (RC > 0) columns.locate(column, at);
    else at[0] = at[1] = i64(column) * i64(sizeof(T));
  }
  template <class T> __device__ __forceinline__ const T* line(const u8* lines, u32 position, i64 column) const {
    i64 at[1] = {column};
    positions.locate(position, at);
    return reinterpret_cast<const T*>(lines + at[0]);
  }
  template <class T> __device__ __forceinline__ T* row(u8* out, u32 key, i64 column) const {
    i64 at[1] = {column};
    keys.locate(key, at);
    return reinterpret_cast<T*>(out + at[0]);
  }
};

// The reduction of no, one or several vectors of V columns, in order.
template <class Op, class C, int V> struct Reduced {
  C value[V];
  bool empty = true;

  __device__ __forceinline__ void take(const C (&x)[V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) value[v] = empty ? x[v] : Op::join(value[v], x[v]);
    empty = false;
  }
  // Writes that of `terms` vectors to a row; ACCUMULATE: joined to what the row holds.
  template <bool ACCUMULATE, class T> __device__ __forceinline__ void put(T* row, u32 terms) {
    if constexpr (ACCUMULATE) {
      C x[V];
      rows::fetch<T>(x, row);
#pragma unroll
      for (int v = 0; v < V; ++v) value[v] = Op::join(x[v], value[v]);
    }
    if constexpr (Op::DIVIDES)
#pragma unroll
      for (int v = 0; v < V; ++v) value[v] /= C(terms + ACCUMULATE);
    rows::put(row, value);
  }
};

// Adjacent keys: whether a run goes on from the pair before `at` to it.
__device__ __forceinline__ bool goes_on(const u32* keys, u32 at, u32 count) {
  return at > 0 && at < count && keys[at - 1] == keys[at];
}

template <class T, class C, class Op, int V, int LANES, int RK, int RP, int RC, bool ACCUMULATE, int UNROLL>
__global__ void __launch_bounds__(REDUCE_THREADS)
reduce_chunks(u8* out, const u8* lines, C* heads, C* tails, const u32* keys, const u32* positions, u32 none, u32 count,
              u32 length, Places<RK, RP, RC> places) {
  const u32 chunk = blockIdx.x * (REDUCE_THREADS / LANES) + threadIdx.x / LANES;
  const u32 first = chunk * CHUNK, last = first + CHUNK < count ? first + CHUNK : count;
  if (first >= count) return;
  const bool begun = goes_on(keys, first, count), open = goes_on(keys, last, count);
  for (u32 column = (blockIdx.y * LANES + threadIdx.x % LANES) * V; column < length; column += gridDim.y * LANES * V) {
    i64 at[2];
    places.template column<T>(column, at);
    u32 key = keys[first], start = first;
    bool head = begun;
    Reduced<Op, C, V> run;
    const auto finish = [&](u32 end, bool tail) {
      if (key == none) return;
      C* const part = head ? heads : tails;
      if (head || tail) rows::put(part + u64(chunk) * length + column, run.value);
      else run.template put<ACCUMULATE>(places.template row<T>(out, key, at[0]), end - start);
    };
    for (u32 i = first; i < last; i += UNROLL) {
      // 1. load lines
      u32 keyed[UNROLL];
      rows::Pack<T, V> line[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        keyed[u] = i + u < last ? keys[i + u] : none;
        if (keyed[u] != none) line[u].load(places.template line<T>(lines, positions[i + u], at[1]));
      }
      // 2. reduce them in order
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        if (i + u >= last) break;
        if (keyed[u] != key) {
          finish(i + u, false);
          key = keyed[u];
          start = i + u;
          head = false;
          run.empty = true;
        }
        if (key == none) break;
        C x[V];
        line[u].widen(x);
        run.take(x);
      }
    }
    finish(last, open);
  }
}

template <class T, class C, class Op, int V, int RK, int RP, int RC, bool ACCUMULATE>
__global__ void __launch_bounds__(JOIN_THREADS)
join_runs(u8* out, const C* heads, const C* tails, const u32* keys, u32 none, u32 count, u32 length,
          Places<RK, RP, RC> places) {
  __shared__ Vec<C, V> part[SLICES][32];
  const u32 chunk = blockIdx.x, lane = threadIdx.x % 32, slice = threadIdx.x / 32;
  const u32 first = chunk * CHUNK, last = first + CHUNK;
  // 1. whether a run begins in this chunk and goes on
  if (!goes_on(keys, last, count)) return;
  const u32 key = keys[last];
  if (key == none || (keys[first] == key && goes_on(keys, first, count))) return;
  // 2. the run's last chunk, by bisection: keys[low] is the run's, and keys[high] is not
  u32 low = last, high = count;
  while (high - low > 1) {
    const u32 middle = low + (high - low) / 2;
    if (keys[middle] == key) low = middle;
    else high = middle;
  }
  const u32 end = low / CHUNK, share = (end - chunk + SLICES - 1) / SLICES;
  const u32 from = chunk + 1 + slice * share, to = from + share - 1 < end ? from + share - 1 : end;
  u32 start = last;
  if constexpr (Op::DIVIDES)
    while (start > first && keys[start - 1] == key) --start;
  // 3. join tail and heads
  for (u32 begin = blockIdx.y * 32 * V; begin < length; begin += gridDim.y * 32 * V) {
    const u32 column = begin + lane * V;
    Reduced<Op, C, V> run;
    C x[V];
    if (column < length) {
      if (slice == 0) {
        rows::fetch<C>(x, tails + u64(chunk) * length + column);
        run.take(x);
      }
      for (u32 c = from; c <= to; ++c) {
        rows::fetch<C>(x, heads + u64(c) * length + column);
        run.take(x);
      }
      if (!run.empty)
#pragma unroll
        for (int v = 0; v < V; ++v) part[slice][lane].at[v] = run.value[v];
    }
    __syncthreads();
    if (slice == 0 && column < length) {
      for (u32 s = 1; s < SLICES && chunk + 1 + s * share <= end; ++s) run.take(part[s][lane].at);
      i64 at[2];
      places.template column<T>(column, at);
      run.template put<ACCUMULATE>(places.template row<T>(out, key, at[0]), low + 1 - start);
    }
    __syncthreads();
  }
}
