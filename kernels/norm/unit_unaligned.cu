// The results of unit.cu of contiguous rows at any alignment: out = c x, or GRADIENT: grad_x and grad_g.
// Computed in C, rounded once. Vectors count from the row's start: the alignment does not change bits.
//
// unit_unaligned_resident: LANES threads per row, ITEMS vectors each in registers; aligned words are loaded and funnel
//                          shifted, and stored of two adjacent lanes' vectors.
// unit_unaligned:   one CTA per long row, streamed (rows/unaligned.cuh). *_cluster: the CTAs of a cluster share a row.
// unit_kept_cluster: as unit_unaligned_cluster; KEPT inputs are read once and stay in shared memory.
// SCALED:           g is there, one per row; else 1.
// Shared:           two values per warp; what is kept.   Bound: DRAM.
#include "norm/unit.cuh"
#include "rows/cluster_reduce.cuh"
#include "rows/place.cuh"
#include "rows/unaligned.cuh"

using namespace norms;
enum Operand { OUT, GRAD_G, GRAD, X, G, OPERANDS };

// Loads the vectors of a thread, columns past the end as 0. All words are in flight before one is shifted.
template <int LANES, int ITEMS, class T, int V, class I>
__device__ __forceinline__ void load_shifted(rows::Pack<T, V> (&packs)[ITEMS], const T* from, I length) {
  using Own = rows::UnalignedVec<T, V, true>;
  const uint4* const words = Own::word(from);
  const u32 lane = threadIdx.x % LANES, late = Own::behind(from);
  const I whole = length - length % V;
  Own vec[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i)
    if (const I vector = I(i) * LANES + lane; vector * V < whole)
      vec[i].template load<false>(words + vector, late, vector * V, length);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const I column = (I(i) * LANES + lane) * V;
    if (column < whole) {
      packs[i] = vec[i].template whole<false>(from, late, column, length);
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v)
        packs[i].part[0].at[v] = column + v < length ? from[column + v] : convert<T>(0.0f);
    }
  }
}

template <class T, int V> union Words {
  uint4 word;
  rows::Pack<T, V> pack;
  __device__ Words() {}
};
// The vector of the next of WIDTH lanes.
template <int WIDTH, class T, int V>
__device__ __forceinline__ rows::Pack<T, V> next_lane(const rows::Pack<T, V>& pack) {
  Words<T, V> own;
  own.pack = pack;
  own.word.x = __shfl_down_sync(~0u, own.word.x, 1, WIDTH);
  own.word.y = __shfl_down_sync(~0u, own.word.y, 1, WIDTH);
  own.word.z = __shfl_down_sync(~0u, own.word.z, 1, WIDTH);
  own.word.w = __shfl_down_sync(~0u, own.word.w, 1, WIDTH);
  return own.pack;
}
// Stores the vectors of a row: aligned words of a lane's vector and the next lane's; by elements at the ends of the row
// and of a warp's lanes. All threads of the CTA take part.
template <int LANES, int ITEMS, class T, int V, class I>
__device__ __forceinline__ void store_shifted(const rows::Pack<T, V> (&packs)[ITEMS], T* to, I length) {
  constexpr int WIDTH = LANES < 32 ? LANES : 32;
  const u32 ahead = (16 - u32(reinterpret_cast<u64>(to)) % 16) % 16 / u32(sizeof(T));  // elements to the next word
  const u32 lane = threadIdx.x % LANES;
  const bool first = lane % WIDTH == 0, last = lane % WIDTH == WIDTH - 1;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const I column = (I(i) * LANES + lane) * V, begin = column + ahead;
    Words<T, V> own, next, both;
    own.pack = packs[i];
    next.pack = next_lane<WIDTH>(own.pack);
    both.word = ahead ? shifted(own.word, next.word, ahead * u32(sizeof(T))) : own.word;
    if ((!last || ahead == 0) && begin + V <= length) {
      *reinterpret_cast<uint4*>(to + begin) = both.word;
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (begin + v < length && (!last || ahead + v < V)) to[begin + v] = both.pack.part[0].at[v];
    }
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (first && v < ahead && column + v < length) to[column + v] = own.pack.part[0].at[v];
  }
}

template <class T, class C, bool SCALED, bool GRADIENT, int V, int ITEMS, int LANES, int THREADS, int R, class I>
__global__ void __launch_bounds__(THREADS, 1) unit_unaligned_resident(I count, I length, C eps,
    rows::Places<I, R, 0, OPERANDS> places, T* out, T* grad_g, const T* grad, const T* x, const T* g) {
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  const I columns = live ? length : 0;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  rows::Pack<T, V> xs[ITEMS], grads[ITEMS];
  load_shifted<LANES>(xs, places.template at<X>(x, at, I(0)), columns);
  if constexpr (GRADIENT) load_shifted<LANES>(grads, places.template at<GRAD>(grad, at, I(0)), columns);

  // 1. sums along the row
  using State = UnitSums<C, GRADIENT>;
  State sums = State::none();
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    C a[V], d[V] = {};
    xs[i].widen(a);
    if constexpr (GRADIENT) grads[i].widen(d);
#pragma unroll
    for (int v = 0; v < V; ++v) sums.add(a[v], d[v]);
  }
  sums = rows::group_reduce<LANES>(sums, [](const State& a, const State& b) { return a + b; });

  // 2. factors of the row
  const UnitFactors<C, GRADIENT> of(sums, SCALED ? convert<C>(*places.template of_row<G>(g, at)) : C(1), eps);
  if constexpr (GRADIENT && SCALED)
    if (live && threadIdx.x % LANES == 0)
      *places.template of_row<GRAD_G>(grad_g, at) = convert<T>(of.of_scale(sums));

  // 3. the row
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    C a[V], d[V] = {};
    xs[i].widen(a);
    if constexpr (GRADIENT) grads[i].widen(d);
#pragma unroll
    for (int v = 0; v < V; ++v) a[v] = of(a[v], d[v]);
    xs[i].round(a);
  }
  store_shifted<LANES>(xs, places.template at<OUT>(out, at, I(0)), columns);
}

template <class T, class C, bool SCALED, bool GRADIENT, int V, int ITEMS, int LANES, int R, class I, int CTAS, int KEPT>
__device__ __forceinline__ void unit_part(I length, C eps, const rows::Places<I, R, 0, OPERANDS>& places, T* out,
    T* grad_g, const T* grad, const T* x, const T* g) {
  constexpr int INPUTS = 1 + GRADIENT;
  using State = UnitSums<C, GRADIENT>;
  const rows::Part<CTAS, I> part(length, V, 1, 0);
  i64 at[OPERANDS];
  places.enter(part.row, at);
  rows::UnalignedRow<T, C, V, ITEMS, LANES, I, INPUTS> line{{places.template at<X>(x, at, part.first)}, part.length};
  if constexpr (GRADIENT) line.from[INPUTS - 1] = places.template at<GRAD>(grad, at, part.first);
  line.template keep<KEPT>(part.columns(length, V));

  // 1. sums along the row
  const auto plus = [](const State& a, const State& b) { return a + b; };
  State sums = State::none();
  line.template pass<KEPT, true>(C(0), [&](C (&a)[INPUTS][V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) sums.add(a[0][v], a[INPUTS - 1][v]);
  });
  sums = rows::cluster_reduce<CTAS, 0>(rows::group_reduce<LANES>(sums, plus), plus);

  // 2. factors of the row
  const UnitFactors<C, GRADIENT> of(sums, SCALED ? convert<C>(*places.template of_row<G>(g, at)) : C(1), eps);
  if constexpr (GRADIENT && SCALED)
    if (part.first == 0 && threadIdx.x == 0)
      *places.template of_row<GRAD_G>(grad_g, at) = convert<T>(of.of_scale(sums));

  // 3. the row
  line.template write<KEPT>(places.template at<OUT>(out, at, part.first),
      [&](const C (&a)[INPUTS], I) { return of(a[0], a[INPUTS - 1]); });
  rows::cluster_barrier<CTAS>();
}

template <class T, class C, bool SCALED, bool GRADIENT, int V, int ITEMS, int LANES, int R, class I>
__global__ void __launch_bounds__(LANES, 1) unit_unaligned(I length, C eps, rows::Places<I, R, 0, OPERANDS> places,
    T* out, T* grad_g, const T* grad, const T* x, const T* g) {
  unit_part<T, C, SCALED, GRADIENT, V, ITEMS, LANES, R, I, 1, 0>(length, eps, places, out, grad_g, grad, x, g);
}

#if __CUDA_ARCH__ >= 900
template <class T, class C, bool SCALED, bool GRADIENT, int V, int ITEMS, int LANES, int R, class I, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(LANES, 1) unit_unaligned_cluster(I length, C eps,
    rows::Places<I, R, 0, OPERANDS> places, T* out, T* grad_g, const T* grad, const T* x, const T* g) {
  unit_part<T, C, SCALED, GRADIENT, V, ITEMS, LANES, R, I, CTAS, 0>(length, eps, places, out, grad_g, grad, x, g);
}

template <class T, class C, bool SCALED, bool GRADIENT, int V, int ITEMS, int LANES, int R, class I, int KEPT, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1)
__launch_bounds__(LANES, (rows::KEPT_CTAS<C, LANES> > 1 ? 2 : 1))  // of more CTAs an SM, ptxas spills
unit_kept_cluster(I length, C eps, rows::Places<I, R, 0, OPERANDS> places, T* out, T* grad_g, const T* grad,
    const T* x, const T* g) {
  unit_part<T, C, SCALED, GRADIENT, V, ITEMS, LANES, R, I, CTAS, KEPT>(length, eps, places, out, grad_g, grad, x, g);
}
#endif
