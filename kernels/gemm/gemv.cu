// out = epilogue(a B) by FMAs of Acc, for at most M rows of a ("tokens") and a large B, which is read once.
//
// gemv_rows:   B is contiguous along k. WARPS_K warps split k of COLS columns; a thread issues UNROLL vector loads per
//              column before the first FMA. Many short CTAs, as SMs then finish together (H200, 134 MB: 31 us, not 33).
// gemv_strips: B is contiguous along n. LANES lanes cover LANES x V columns, the CTA's other threads split k in runs of
//              UNROLL. A thread has its own cp.async pipeline of STAGES stages (StageBuffers), without barriers; 16-bit
//              scalars go through a register. More than 64 KB in flight per SM costs 1 to 2 % (H200: DRAM pages).
// Order:       shuffles, then shared memory in warp order: fixed by the configuration. Split K: second pass reduce.cu.
// swap_ab:     the host transposes a problem with few columns, so that its large operand is B.
// Shared:      gemv_strips' stages (STAGES UNROLL V elements per thread), then M x columns partial sums per warp of k.
// Bound:       DRAM bandwidth.
#include "ptx/async_copy.cuh"
#include "products/epilogue.cuh"
#include "ptx/overlap.cuh"

constexpr int STAGES = 2;
extern __shared__ uint4 pool[];  // gemv_strips' stage buffers, later the partial sums

// The CTA's split of K and its matrix. Grid: x column groups; y splits, then matrices, so that CTAs that read the same
// tokens are neighbours. Without a batch the division is skipped: no load can be issued before it.
struct Share {
  u32 split, k_begin, k_end;
  BatchIndex matrix;
  __device__ __forceinline__ Share(const Batch& batch, u32 splits, u32 k_split, u32 k) : split(blockIdx.y), matrix{} {
    if (gridDim.y != splits) {
      const u32 i = blockIdx.y / splits;
      split -= i * splits;
      matrix = batch.locate(i);
    }
    k_begin = split * k_split;
    k_end = min(k, k_begin + k_split);
  }
};

// Loads a vector of B, which is read once: no L1 allocation. Not the read-only (nc) path: under PDL the previous kernel
// may still write B after this CTA has started.
template <class Vector> __device__ __forceinline__ Vector read_once(const void* from) {
  if constexpr (sizeof(Vector) == 16) {
    union { u32 words[4]; Vector vector; } x;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.words[0]), "=r"(x.words[1]), "=r"(x.words[2]), "=r"(x.words[3]) : "l"(from) : "memory");
    return x.vector;
  } else {
    return *static_cast<const Vector*>(from);
  }
}

// A thread-private cp.async pipeline for vectors of B: STAGES stages of K_BLOCK vectors. No other thread reads them, so
// no barrier is needed.
template <class T, int V, int K_BLOCK, int THREADS> struct StageBuffers {
  using Vector = Vec<T, V>;
  static constexpr int BYTES = sizeof(Vector);

  static __device__ __forceinline__ Vector* slot(u32 k_block, int i) {
    return reinterpret_cast<Vector*>(pool) + (k_block % STAGES * K_BLOCK + i) * THREADS + threadIdx.x;
  }
  // Predicated copy: zeros unless `there`.
  static __device__ __forceinline__ void fetch(u32 k_block, int i, const T* from, bool there) {
    copy_async<BYTES>(shared_address(slot(k_block, i)), from, there ? BYTES : 0);
  }
};

// Loads COUNT k's of one token, WIDE per access, with zeros from `end` on. Out-of-range accesses are redirected to k =
// 0 and the value is dropped: a branch around each load would serialise the loads.
template <class Acc, int COUNT, int WIDE, class T>
__device__ __forceinline__ void read_token(Acc (&x)[COUNT], const T* token, i64 stride, u32 at_k, u32 end) {
#pragma unroll
  for (int i = 0; i < COUNT; i += WIDE) {
    const bool there = at_k + i < end;
    const i64 k = there ? at_k + i : 0;
    const Vec<T, WIDE> part = *reinterpret_cast<const Vec<T, WIDE>*>(token + (WIDE == 1 ? k * stride : k));
#pragma unroll
    for (int j = 0; j < WIDE; ++j) x[i + j] = there ? convert<Acc>(part.at[j]) : Acc(0);
  }
}

// Reduces COUNT values over the lanes of a warp that agree in lane % FIRST, as a reduce-scatter: at each step a lane
// sends one half of its values and keeps the other, so it ends with KEPT sums, from index `first()`. If several lanes
// end with the same sum, `owner` selects one.
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

// Shared-memory reduction of PARTS partial sums of M tokens by WIDTH columns, added in order of the parts.
template <class Acc, int M, int WIDTH, int PARTS> struct CtaReduction {
  static __device__ __forceinline__ Acc* place(u32 part, u32 row, u32 col) {
    return reinterpret_cast<Acc*>(pool) + (part * M + row) * WIDTH + col;
  }
  // Stores one warp's partial sums of M tokens and PER columns from `col`, reduced over lanes that agree in lane %
  // FIRST.
  template <int FIRST, int PER> static __device__ __forceinline__ void put(Acc (&acc)[M * PER], u32 part, u32 col) {
    using Lanes = Fold<Acc, M * PER, FIRST>;
    const u32 lane = threadIdx.x % 32, first = Lanes::first(lane);
    Lanes::sum(acc, lane);
    if (!Lanes::owner(lane)) return;
#pragma unroll
    for (int i = 0; i < Lanes::KEPT; ++i) *place(part, (first + i) / PER, col + (first + i) % PER) = acc[i];
  }
  // Adds the parts in order and runs the epilogue.
  template <class Epi> static __device__ __forceinline__ void finish(const Epi& out, u32 first_col, u32 m, u32 n) {
    __syncthreads();
    for (u32 i = threadIdx.x; i < M * WIDTH; i += blockDim.x) {
      const u32 row = i / WIDTH, col = i % WIDTH;
      Acc sum = 0;
#pragma unroll
      for (int part = 0; part < PARTS; ++part) sum += *place(part, row, col);
      if (row < m && first_col + col < n) out.store(sum, row, first_col + col);
    }
  }
};

template <class T, class Acc, int M, int V, int WIDE, int COLS, int UNROLL, int WARPS, int WARPS_K, class Epi>
__global__ void __launch_bounds__(WARPS * 32, M* COLS == 1 ? 40 / WARPS : 1)  // one sum needs 48 registers
    gemv_rows(const T* a, const T* b, Epi epilogue, OperandStrides a_strides, OperandStrides b_strides, Batch batch,
        u32 m, u32 n, u32 k, u32 splits, u32 k_split, i64 split_stride) {
  constexpr int WIDTH = WARPS / WARPS_K * COLS, K_STEP = WARPS_K * 32 * V;
  using Vector = Vec<T, V>;
  using Reduction = CtaReduction<Acc, M, WIDTH, WARPS_K>;
  const Share share(batch, splits, k_split, k);
  const u32 warp = threadIdx.x / 32, own_n = warp / WARPS_K * COLS, first_col = blockIdx.x * WIDTH;
  const i64 step_k = V == 1 ? b_strides.row : 1;
  a += a_strides.batch_offset(share.matrix);
  b += b_strides.batch_offset(share.matrix);
  const T* column[COLS];  // out-of-range columns are clamped to the last one and not stored
#pragma unroll
  for (int c = 0; c < COLS; ++c) column[c] = b + b_strides.at(0, min(first_col + own_n + c, n - 1));

  const T* token[M];  // out-of-range tokens are clamped to the last one
#pragma unroll
  for (int i = 0; i < M; ++i) token[i] = a + a_strides.at(min(u32(i), m - 1), 0);

  overlap::wait();
  Acc acc[M * COLS] = {};
  u32 from_k = share.k_begin + (warp % WARPS_K * 32 + threadIdx.x % 32) * V;
  // One step of UNROLL vectors per column: all loads of B before the first FMA (8 16-bit tokens: half of them).
  // `whole`: no k is past the end.
  const auto step = [&](bool whole) {
    Vector w[UNROLL][COLS] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (const u32 at_k = from_k + u * K_STEP; whole || at_k < share.k_end)
#pragma unroll
        for (int c = 0; c < COLS; ++c) w[u][c] = read_once<Vector>(column[c] + at_k * step_k);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
#pragma unroll
      for (int i = 0; i < M; ++i) {
        const u32 at_k = from_k + u * K_STEP;
        Acc x[V];
        read_token<Acc, V, WIDE>(x, token[i], a_strides.col, at_k, whole ? ~0u : share.k_end);
#pragma unroll
        for (int c = 0; c < COLS; ++c)
#pragma unroll
          for (int v = 0; v < V; ++v) acc[i * COLS + c] = fma(x[v], convert<Acc>(w[u][c].at[v]), acc[i * COLS + c]);
      }
    from_k += UNROLL * K_STEP;
  };
  // 1. Main loop without predicates, then the predicated tail
  u32 left = share.k_end - share.k_begin;
#pragma unroll 1
  for (; left >= UNROLL * K_STEP; left -= UNROLL * K_STEP) step(true);
  if (left > 0) step(false);
  overlap::release();

  // 2. Reduce over lanes and warps, epilogue
  Reduction::template put<1, COLS>(acc, warp % WARPS_K, own_n);
  Epi own = epilogue.at_batch(share.matrix);
  own.out += share.split * split_stride;
  Reduction::finish(own, first_col, m, n);
}

template <class T, class Acc, int M, int V, int WIDE, int LANES, int UNROLL, int WARPS, class Epi>
__global__ void __launch_bounds__(WARPS * 32, 1)
    gemv_strips(const T* a, const T* b, Epi epilogue, OperandStrides a_strides, OperandStrides b_strides, Batch batch,
        u32 m, u32 n, u32 k, u32 splits, u32 k_split, i64 split_stride) {
  constexpr int WIDTH = LANES * V, STEP = WARPS * 32 / LANES * UNROLL;
  using Stages = StageBuffers<T, V, UNROLL, WARPS * 32>;
  using Reduction = CtaReduction<Acc, M, WIDTH, WARPS>;
  const Share share(batch, splits, k_split, k);
  a += a_strides.batch_offset(share.matrix);
  const u32 strip = blockIdx.x * WIDTH, own_n = threadIdx.x % LANES * V;
  const u32 from_k = share.k_begin + threadIdx.x / LANES * UNROLL;
  const bool inside = strip + own_n < n;
  b += b_strides.batch_offset(share.matrix) + b_strides.at(0, strip + own_n);
  const auto fetch = [&](u32 k_block) {
    const u32 at_k = from_k + k_block * STEP;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      Stages::fetch(k_block, u, b + (at_k + u) * b_strides.row, inside && at_k + u < share.k_end);
    commit_copies();
  };
  // 1. Pipeline prologue
  overlap::wait();
#pragma unroll
  for (int k_block = 0; k_block < STAGES - 1; ++k_block) fetch(k_block);

  // 2. Main loop: issue the next stage, load the tokens, wait for the stage, multiply
  Acc acc[M * V] = {};
  for (u32 k_block = 0, at_k = from_k; at_k < share.k_end; ++k_block, at_k += STEP) {
    fetch(k_block + STAGES - 1);
    Acc x[M][UNROLL];  // loaded while the stage is in flight
#pragma unroll
    for (int i = 0; i < M; ++i)
      read_token<Acc, UNROLL, WIDE>(x[i], a + a_strides.at(min(u32(i), m - 1), 0), a_strides.col, at_k, share.k_end);
    await_copies<STAGES - 1>();
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const Vec<T, V> w = *Stages::slot(k_block, u);
#pragma unroll
      for (int i = 0; i < M; ++i)
#pragma unroll
        for (int v = 0; v < V; ++v) acc[i * V + v] = fma(x[i][u], convert<Acc>(w.at[v]), acc[i * V + v]);
    }
  }
  overlap::release();

  // 3. Reduce over lanes and warps, epilogue
  await_copies<0>();
  __syncthreads();  // the partial sums reuse the stage buffers
  Reduction::template put<LANES, V>(acc, threadIdx.x / 32, own_n);
  Epi own = epilogue.at_batch(share.matrix);
  own.out += share.split * split_stride;
  Reduction::finish(own, strip, m, n);
}
