// out = epilogue(A B) by FMA (SIMT), for any element type, strides and alignment.
//
// Tiling:   BM x BN per CTA, TM x TN per thread in W x W blocks spread evenly over the tile (W: 16 bytes of Acc).
// Grid:     tile swizzle with group_m = GROUP, times `splits` of K with outputs spaced by `split_stride` elements,
//           times matrices.
// Pipeline: STAGES stages of BK in shared memory, k outermost, one barrier per k_block; cp.async STAGES - 1
//           k_blocks ahead, or through registers if elements are converted or vectors along k are transposed.
// Order:    each output is one chain of IEEE FMAs of Acc in the order of K, for every tile shape.
// Shared:   STAGES BK (BM + BN + 2 PAD) Acc elements, at most 38 KB.
// Bound:    FMA issue: 128 of 134 instructions of the inner loop are FMAs at 8 x 16 per thread.
#include "ptx/async_copy.cuh"
#include "products/epilogue.cuh"
#include "core/shared.cuh"

constexpr int PAD = 4;          // padding elements per shared row: transposed stores have no bank conflicts
constexpr u32 GROUP = 8;        // group_m: tile rows that run concurrently, for L2 reuse
constexpr int LANES_M = 4, LANES_N = 8;

// Global loader of one operand: MN x BK elements per k_block, in vectors of V along k or along mn. Out-of-range rows
// are clamped to the last row; they only reach outputs that are not stored.
template <class T, class Acc, int MN, int BK, int THREADS, bool ALONG_K, int V> struct Loader {
  static constexpr bool ASYNC = Same<T, Acc>::value && (!ALONG_K || V == 1);  // cp.async transposes scalars only
  static constexpr int PITCH = MN + PAD, SIZE = sizeof(Acc);
  static constexpr int COUNT = MN * BK / (V * THREADS);
  // ALONG_K: LANES lanes read eight k's (8-byte types: a 32-byte sector) of a row, and a warp reads neighbouring rows.
  static constexpr int LANES = (sizeof(T) == 8 ? 4 : 8) / V;
  static constexpr int ROWS = ALONG_K ? THREADS / LANES : THREADS * V;  // rows of mn per pass
  static constexpr int PASSES = ROWS < MN ? MN / ROWS : 1;
  static constexpr int STEP_K = (ROWS < MN ? 1 : ROWS / MN) * (ALONG_K ? LANES * V : 1);
  static_assert(COUNT * V * THREADS == MN * BK && COUNT > 0, "a k_block is a whole number of vectors per thread");

  const T* from[PASSES];
  i64 stride_k;
  u32 to;
  Vec<T, V> held[ASYNC ? 1 : COUNT];

  // `operand` points to the first k; the tile starts at `first` of `extent` along mn.
  __device__ __forceinline__ Loader(const T* operand, i64 stride_mn, i64 stride_k, u32 first, u32 extent, u32 stages)
      : stride_k(!ALONG_K || V == 1 ? stride_k : 1), to(stages + (own_k() * PITCH + own_mn()) * SIZE) {
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
      const u32 mn = min(first + own_mn() + p * ROWS, extent - (ALONG_K ? 1 : V));
      from[p] = operand + i64(mn) * (ALONG_K || V == 1 ? stride_mn : 1) + i64(own_k()) * this->stride_k;
    }
  }

  static __device__ __forceinline__ u32 own_mn() { return ALONG_K ? threadIdx.x / LANES % MN : threadIdx.x * V % MN; }
  static __device__ __forceinline__ u32 own_k() {
    return ALONG_K ? (threadIdx.x / (LANES * MN) * LANES + threadIdx.x % LANES) * V : threadIdx.x * V / MN;
  }
  static __device__ __forceinline__ constexpr int k_of(int i) { return i / PASSES * STEP_K; }
  static __device__ __forceinline__ constexpr int offset_of(int i) {
    return (k_of(i) * PITCH + i % PASSES * ROWS) * SIZE;
  }

  // Issues the loads of the next k_block for the stage at byte offset `stage_offset`: `ks` valid k's, zeros after. A
  // vector is never partly valid.
  __device__ __forceinline__ void fetch(u32 stage_offset, u32 ks = BK) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const T* const at = from[i % PASSES] + k_of(i) * stride_k;
      const bool there = ks == BK || own_k() + k_of(i) < ks;
      if constexpr (ASYNC) copy_async<V * SIZE>(to + stage_offset + offset_of(i), at, there ? V * SIZE : 0);
      else held[i] = there ? *reinterpret_cast<const Vec<T, V>*>(at) : Vec<T, V>{};
    }
  }

  __device__ __forceinline__ void advance(u32 ks = BK) {
#pragma unroll
    for (int p = 0; p < PASSES; ++p) from[p] += ks * stride_k;
  }

  // Converts and stores what was loaded through registers.
  __device__ __forceinline__ void stage(u32 stage_offset) const {
    if constexpr (!ASYNC) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        Vec<Acc, V> x;
#pragma unroll
        for (int v = 0; v < V; ++v) x.at[v] = convert<Acc>(held[i].at[v]);
        if constexpr (!ALONG_K && V > 1) {
          store_shared(to + stage_offset + offset_of(i), x);
        } else {
#pragma unroll
          for (int v = 0; v < V; ++v) store_shared(to + stage_offset + offset_of(i) + v * PITCH * SIZE, x.at[v]);
        }
      }
    }
  }
};

// A thread's COUNT elements along a tile side of SIZE, in blocks of W spread evenly.
template <class Acc, int SIZE, int COUNT> struct Fragment {
  static constexpr int WIDE = 16 / int(sizeof(Acc));
  static constexpr int W = COUNT < WIDE ? COUNT : WIDE;
  static constexpr int VECTOR_STEP = SIZE / (COUNT / W);

  static __device__ __forceinline__ constexpr u32 offset(int i) { return i / W * VECTOR_STEP + i % W; }
  static __device__ __forceinline__ void read(Acc (&x)[COUNT], u32 row) {
#pragma unroll
    for (int i = 0; i < COUNT; i += W) {
      Vec<Acc, W> block;
      load_shared(block, row + offset(i) * sizeof(Acc));
#pragma unroll
      for (int j = 0; j < W; ++j) x[i + j] = block.at[j];
    }
  }
};

// Outer product in serpentine order along the shorter side: each FMA shares an operand with the previous one (register
// reuse cache), without which two register banks cannot feed one FMA per clock.
template <class Acc, int TM, int TN>
__device__ __forceinline__ void multiply(Acc (&acc)[TM][TN], const Acc (&x)[TM], const Acc (&y)[TN]) {
  constexpr int SHORT = TM < TN ? TM : TN;
#pragma unroll
  for (int t = 0; t < TM * TN; ++t) {
    const int slow = t / SHORT, fast = slow % 2 ? SHORT - 1 - t % SHORT : t % SHORT;
    const int i = TM < TN ? fast : slow, j = TM < TN ? slow : fast;
    acc[i][j] = fma(x[i], y[j], acc[i][j]);
  }
}

// The CTA's tile and the thread's position in it. Special registers are reread at each construction (volatile), so that
// none of this occupies a register in the main loop.
template <int BM, int BN> struct Tile {
  u32 matrix, split, m, n;
  __device__ __forceinline__ Tile(u32 tiles_m, u32 tiles_n, u32 splits) {
    u32 id;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(id));
    const u32 rest_of_grid = id / (tiles_m * tiles_n);
    const u32 tile = id - rest_of_grid * (tiles_m * tiles_n);
    matrix = rest_of_grid / splits;
    split = rest_of_grid - matrix * splits;
    const u32 first = tile / (GROUP * tiles_n) * GROUP, rest = tile - first * tiles_n;
    const u32 height = min(GROUP, tiles_m - first), column = rest / height;
    m = (first + rest - column * height) * BM;
    n = column * BN;
  }
};
template <class A, class B, int WARPS_N> struct Own {
  u32 m, n;
  __device__ __forceinline__ Own() {
    u32 t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    // Lanes 2i and 2i+1 read the same word of B, lanes i and i+2 the same word of A: then a warp's 16-byte reads
    // broadcast.
    const u32 lane = t % 32, warp = t / 32;
    m = (warp / WARPS_N * LANES_M + (lane & 1 | lane >> 3 & 2)) * A::W;
    n = (warp % WARPS_N * LANES_N + (lane >> 1 & 7)) * B::W;
  }
};

template <class T, class Acc, int BM, int BN, int BK, int TM, int TN, int STAGES, int CTAS, bool A_ALONG_K, int A_V,
    bool B_ALONG_K, int B_V, class Epi>
__global__ void __launch_bounds__(BM / TM * (BN / TN), CTAS) simt(const T* __restrict__ a, const T* __restrict__ b,
    Epi epilogue, OperandStrides a_strides, OperandStrides b_strides, Batch batch, u32 m, u32 n, u32 k, u32 tiles_m,
    u32 tiles_n, u32 splits, u32 k_split, i64 split_stride) {
  constexpr int THREADS = BM / TM * (BN / TN);
  constexpr int WARPS_N = BN / TN / LANES_N;
  using LoaderA = Loader<T, Acc, BM, BK, THREADS, A_ALONG_K, A_V>;
  using LoaderB = Loader<T, Acc, BN, BK, THREADS, B_ALONG_K, B_V>;
  using FragmentA = Fragment<Acc, BM, TM>;
  using FragmentB = Fragment<Acc, BN, TN>;
  constexpr u32 PITCH_A = LoaderA::PITCH * sizeof(Acc), PITCH_B = LoaderB::PITCH * sizeof(Acc);
  constexpr u32 STAGE = BK * (PITCH_A + PITCH_B), STAGES_BYTES = STAGES * STAGE;
  alignas(16) __shared__ u8 memory[STAGES_BYTES];
  const u32 stages = shared_address(memory);

  const Tile<BM, BN> tile(tiles_m, tiles_n, splits);
  const BatchIndex at = batch.locate(tile.matrix);
  const u32 k_begin = tile.split * k_split, ks = k_begin < k ? min(k - k_begin, k_split) : 0;
  LoaderA from_a(
      a + a_strides.batch_offset(at) + a_strides.at(0, k_begin), a_strides.row, a_strides.col, tile.m, m, stages);
  LoaderB from_b(b + b_strides.batch_offset(at) + b_strides.at(k_begin, 0), b_strides.col, b_strides.row, tile.n, n,
      stages + BK * PITCH_A);
  const Own<FragmentA, FragmentB, WARPS_N> own;
  const auto next = [](u32 stage_offset) { return stage_offset + STAGE == STAGES_BYTES ? 0 : stage_offset + STAGE; };

  // 1. Pipeline prologue
  const u32 k_blocks = (ks + BK - 1) / BK;
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    if (s < k_blocks) {
      // A partial k_block is loaded first, so that the others need no predicate
      const u32 part = s ? BK : (ks - 1) % BK + 1;
      from_a.fetch(s * STAGE, part);
      from_b.fetch(s * STAGE, part);
      from_a.stage(s * STAGE);
      from_b.stage(s * STAGE);
      from_a.advance(part);
      from_b.advance(part);
    }
    commit_copies();
  }

  // 2. Main loop. A k_block's last FMAs run after the next k_block's barrier (the first time on zeros), so that there
  // is work during the first fragment loads
  Acc acc[TM][TN] = {}, x[2][TM] = {}, y[2][TN] = {};
  u32 read = 0, write = (STAGES - 1) * STAGE;
#pragma unroll 1
  for (u32 left = k_blocks; left; --left) {
    await_copies<STAGES - 2>();
    __syncthreads();
    const bool more = left >= STAGES;
    if (more) {
      from_a.fetch(write);
      from_b.fetch(write);
    }
    commit_copies();
    const u32 row_a = stages + read + own.m * sizeof(Acc), row_b = stages + read + BK * PITCH_A + own.n * sizeof(Acc);
#pragma unroll
    for (int kk = 0; kk < BK; ++kk) {
      FragmentA::read(x[kk % 2], row_a + kk * PITCH_A);
      FragmentB::read(y[kk % 2], row_b + kk * PITCH_B);
      multiply(acc, x[(kk + 1) % 2], y[(kk + 1) % 2]);
    }
    if (more) {
      from_a.stage(write);
      from_b.stage(write);
    }
    from_a.advance();
    from_b.advance();
    read = next(read);
    write = next(write);
  }
  multiply(acc, x[1], y[1]);

  // 3. Epilogue, one row per iteration: the other rows move up in registers, so that the code exists once, not TM times
  const Tile<BM, BN> done(tiles_m, tiles_n, splits);
  const Own<FragmentA, FragmentB, WARPS_N> own_fragments;
  Epi out = epilogue.at_batch(batch.locate(done.matrix));
  out.out += done.split * split_stride;
#pragma unroll 1
  for (int i = 0; i < TM; ++i) {
    const u32 row = done.m + own_fragments.m + FragmentA::offset(i);
    if (row < m) {
#pragma unroll
      for (int j = 0; j < TN; j += 2) {
        const u32 col = done.n + own_fragments.n + FragmentB::offset(j);
        Acc pair[2] = {acc[0][j], acc[0][j + 1]};
        if (col < n) out.store(pair, row, col, col + 1 < n);
      }
    }
#pragma unroll
    for (int r = 1; r < TM; ++r)
#pragma unroll
      for (int j = 0; j < TN; ++j) acc[r - 1][j] = acc[r][j];
  }
}
