// Products of M or fewer rows ("tokens") with a large B: every element of B is read once, in 16-byte accesses where it lies so
// that it can be, and M tokens are multiplied with it. Sums are FMAs of Acc in a fixed order. The host turns a problem with few
// columns round, so that its large operand is B.
//
// gemv_rows: B lies along k. A warp takes COLS columns, its lanes side by side along k; WARPS_K warps of a CTA share the k's of
// one column group and meet in shared memory.
// gemv_strips: B lies along n. LANES lanes make up a strip of LANES x V columns, the CTA's other threads go along k, UNROLL
// neighbouring k's each; they meet by shuffles and in shared memory.
// Both: a thread's vectors of B come by cp.async through STAGES slabs of its own in shared memory, so that the bytes in flight
// hang on neither registers nor the order in which ptxas puts loads: STAGES x COLS (or UNROLL) x 16 bytes a thread, 32 KB a CTA of
// 128 threads, 64 KB one of 512. K may be split over CTAs, whose partial products reduce.cu adds up. Bound: bandwidth.
#include "epilogue.cuh"

constexpr int STAGES = 4;
extern __shared__ uint4 pool[];  // the slabs, later the partial sums

// The CTA's share of the work: CTAs of one matrix and one split are neighbours, so that they share the tokens in L2.
struct Share {
  u32 group, split, matrix, k_begin, k_end;
  __device__ __forceinline__ Share(u32 groups, u32 splits, u32 k_split, u32 k) {
    const u32 rest = blockIdx.x / groups;
    group = blockIdx.x - rest * groups;
    matrix = rest / splits;
    split = rest - matrix * splits;
    k_begin = split * k_split;
    k_end = min(k, k_begin + k_split);
  }
};

// A thread's own way for vectors of B: SLAB of them at a time, STAGES slabs deep. No other thread reads them, so that no barrier
// is needed.
template <class T, int V, int SLAB, int THREADS> struct Ring {
  using Vector = Vec<T, V>;
  static constexpr int BYTES = sizeof(Vector);

  static __device__ __forceinline__ Vector* slot(u32 slab, int i) {
    return reinterpret_cast<Vector*>(pool) + (slab % STAGES * SLAB + i) * THREADS + threadIdx.x;
  }
  // Starts a copy; zeros where there is nothing.
  static __device__ __forceinline__ void fetch(u32 slab, int i, const T* from, bool there) {
    Vector* const to = slot(slab, i);
    if constexpr (BYTES >= 4) {
      const u32 at = u32(__cvta_generic_to_shared(to)), bytes = there ? BYTES : 0;
      if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
      else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
    } else {
      Vector x{};
      if (there) x = *reinterpret_cast<const Vector*>(from);
      *to = x;
    }
  }
  static __device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  // Waits until at most LATER committed slabs are under way.
  template <int LATER> static __device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory"); }
};

// COUNT neighbours along k of one token, of which the first `left` exist; WIDE at a time, all or nothing.
template <class Acc, int COUNT, int WIDE, class T>
__device__ __forceinline__ void read_token(Acc (&x)[COUNT], const T* from, i64 stride, i32 left) {
#pragma unroll
  for (int i = 0; i < COUNT; i += WIDE) {
    Vec<T, WIDE> part{};
    if (i < left) part = *reinterpret_cast<const Vec<T, WIDE>*>(from + (WIDE == 1 ? i * stride : i64(i)));
#pragma unroll
    for (int j = 0; j < WIDE; ++j) x[i + j] = convert<Acc>(part.at[j]);
  }
}

// COUNT sums over the lanes of a warp that share lane % FIRST. Lanes hand over halves of their sums as long as they have more
// than one, so that each ends with KEPT of them, those from `first()` on; where lanes end with the same one, one owns it.
template <class Acc, int COUNT, int FIRST> struct Fold {
  static constexpr int ROWS = 32 / FIRST;
  static constexpr int KEPT = COUNT > ROWS ? COUNT / ROWS : 1;
  static constexpr int COPIES = COUNT > ROWS ? 1 : ROWS / COUNT;

  static __device__ __forceinline__ u32 first(u32 lane) { return lane / FIRST * COUNT / ROWS; }
  static __device__ __forceinline__ bool owner(u32 lane) { return lane / FIRST % COPIES == 0; }
  static __device__ __forceinline__ void sum(Acc (&x)[COUNT], u32 lane) {
    int left = COUNT;
#pragma unroll
    for (int offset = 16; offset >= FIRST; offset /= 2) {
      if (left > 1) {
        left /= 2;
        const bool upper = lane & offset;
#pragma unroll
        for (int i = 0; i < COUNT / 2; ++i)
          if (i < left) {
            const Acc give = upper ? x[i] : x[i + left], keep = upper ? x[i + left] : x[i];
            x[i] = keep + __shfl_xor_sync(0xffffffffu, give, offset);
          }
      } else {
        x[0] += __shfl_xor_sync(0xffffffffu, x[0], offset);
      }
    }
  }
};

template <class T, class Acc, int M, int V, int WIDE, int COLS, int WARPS, int WARPS_K, class Epi>
__global__ void __launch_bounds__(WARPS * 32, 1)
gemv_rows(const T* __restrict__ a, const T* __restrict__ b, Epi epilogue, Walk a_walk, Walk b_walk, Batch batch, u32 m, u32 n, u32 k,
          u32 groups, u32 splits, u32 k_split, i64 slab) {
  constexpr int COUNT = M * COLS, WARPS_N = WARPS / WARPS_K, STEP = WARPS_K * 32 * V;
  using Lanes = Fold<Acc, COUNT, 1>;
  using Slabs = Ring<T, V, COLS, WARPS * 32>;
  const Share share(groups, splits, k_split, k);
  const BatchIndex at = batch.locate(share.matrix);
  a += a_walk.enter(at);
  b += b_walk.enter(at);
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 from_k = share.k_begin + (warp % WARPS_K * 32 + lane) * V;
  const i64 step_k = V == 1 ? b_walk.row : 1;

  const T* column[COLS];  // those past the end read the last one and are not stored
#pragma unroll
  for (int c = 0; c < COLS; ++c) column[c] = b + b_walk.at(0, min((share.group * WARPS_N + warp / WARPS_K) * COLS + c, n - 1));
  const auto fetch = [&](u32 slab) {
    const u32 at_k = from_k + slab * STEP;
#pragma unroll
    for (int c = 0; c < COLS; ++c) Slabs::fetch(slab, c, column[c] + at_k * step_k, at_k < share.k_end);
    Slabs::commit();
  };
#pragma unroll
  for (int slab = 0; slab < STAGES - 1; ++slab) fetch(slab);

  Acc acc[COUNT] = {};
  for (u32 slab = 0, at_k = from_k; at_k < share.k_end; ++slab, at_k += STEP) {
    fetch(slab + STAGES - 1);
    Slabs::template wait<STAGES - 1>();
    Vec<T, V> w[COLS];
#pragma unroll
    for (int c = 0; c < COLS; ++c) w[c] = *Slabs::slot(slab, c);
#pragma unroll
    for (int i = 0; i < M; ++i) {
      Acc x[V];
      read_token<Acc, V, WIDE>(x, a + a_walk.at(min(u32(i), m - 1), at_k), a_walk.col, i32(share.k_end - at_k));
#pragma unroll
      for (int c = 0; c < COLS; ++c)
#pragma unroll
        for (int v = 0; v < V; ++v) acc[i * COLS + c] = fma(x[v], convert<Acc>(w[c].at[v]), acc[i * COLS + c]);
    }
  }

  Lanes::sum(acc, lane);
  Slabs::template wait<0>();
  __syncthreads();
  Acc* const sums = reinterpret_cast<Acc*>(pool);
  if (Lanes::owner(lane)) {
#pragma unroll
    for (int i = 0; i < Lanes::KEPT; ++i) sums[warp * COUNT + Lanes::first(lane) + i] = acc[i];
  }
  __syncthreads();
  epilogue.out += share.split * slab;
  const Epi out = epilogue.enter(at);
  for (u32 i = threadIdx.x; i < WARPS_N * COUNT; i += WARPS * 32) {
    const u32 mine = i / COUNT, value = i % COUNT;
    const u32 row = value / COLS, col = (share.group * WARPS_N + mine) * COLS + value % COLS;
    Acc sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS_K; ++w) sum += sums[(mine * WARPS_K + w) * COUNT + value];
    if (row < m && col < n) out.store(sum, row, col);
  }
}

template <class T, class Acc, int M, int V, int WIDE, int LANES, int UNROLL, int WARPS, class Epi>
__global__ void __launch_bounds__(WARPS * 32, 1)
gemv_strips(const T* __restrict__ a, const T* __restrict__ b, Epi epilogue, Walk a_walk, Walk b_walk, Batch batch, u32 m, u32 n,
            u32 k, u32 groups, u32 splits, u32 k_split, i64 slab) {
  constexpr int COUNT = M * V, WIDTH = LANES * V, STEP = WARPS * 32 / LANES * UNROLL;
  using Rows = Fold<Acc, COUNT, LANES>;
  using Slabs = Ring<T, V, UNROLL, WARPS * 32>;
  const Share share(groups, splits, k_split, k);
  const BatchIndex at = batch.locate(share.matrix);
  a += a_walk.enter(at);
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 strip = share.group * WIDTH, own_n = lane % LANES * V;
  const u32 from_k = share.k_begin + threadIdx.x / LANES * UNROLL;
  const bool inside = strip + own_n < n;
  b += b_walk.enter(at) + b_walk.at(0, strip + own_n);
  const auto fetch = [&](u32 slab) {
    const u32 at_k = from_k + slab * STEP;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) Slabs::fetch(slab, u, b + (at_k + u) * b_walk.row, inside && at_k + u < share.k_end);
    Slabs::commit();
  };
#pragma unroll
  for (int slab = 0; slab < STAGES - 1; ++slab) fetch(slab);

  Acc acc[COUNT] = {};
  for (u32 slab = 0, at_k = from_k; at_k < share.k_end; ++slab, at_k += STEP) {
    fetch(slab + STAGES - 1);
    Slabs::template wait<STAGES - 1>();
    Vec<T, V> w[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) w[u] = *Slabs::slot(slab, u);
#pragma unroll
    for (int i = 0; i < M; ++i) {
      Acc x[UNROLL];
      read_token<Acc, UNROLL, WIDE>(x, a + a_walk.at(min(u32(i), m - 1), at_k), a_walk.col, i32(share.k_end - at_k));
#pragma unroll
      for (int u = 0; u < UNROLL; ++u)
#pragma unroll
        for (int v = 0; v < V; ++v) acc[i * V + v] = fma(x[u], convert<Acc>(w[u].at[v]), acc[i * V + v]);
    }
  }

  Rows::sum(acc, lane);
  Slabs::template wait<0>();
  __syncthreads();
  Acc* const sums = reinterpret_cast<Acc*>(pool);
  if (Rows::owner(lane)) {
#pragma unroll
    for (int i = 0; i < Rows::KEPT; ++i) {
      const u32 value = Rows::first(lane) + i;
      sums[(warp * M + value / V) * WIDTH + own_n + value % V] = acc[i];
    }
  }
  __syncthreads();
  epilogue.out += share.split * slab;
  const Epi out = epilogue.enter(at);
  for (u32 i = threadIdx.x; i < M * WIDTH; i += WARPS * 32) {
    const u32 row = i / WIDTH, col = strip + i % WIDTH;
    Acc sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum += sums[w * M * WIDTH + i];
    if (row < m && col < n) out.store(sum, row, col);
  }
}
