// Matrix products on the FMA pipes, for operands of any element, stride and alignment: each sum runs over K in order, in
// IEEE FMAs of Acc, whatever the tile.
//
// A CTA has a tile of BM x BN, a thread TM x TN of it in W x W blocks (W elements of Acc are 16 bytes) that lie evenly over the
// tile, so that a fragment is read in whole words. K goes by slabs of BK through two buffers in shared memory, k outermost:
// 2 BK (BM + BN + 2 PAD) elements of Acc, 33 KB at most. A slab's successor is fetched into registers before its products
// are formed and staged after them. Bound: FMA issue.
#include "epilogue.cuh"

constexpr int PAD = 4;          // elements a row of shared memory: a transposed store then meets every bank once
constexpr u32 GROUP = 8;        // rows of tiles that run side by side, for the sake of L2
constexpr int LANES_M = 4, LANES_N = 8;

// One operand's way from global to shared memory: MN x BK elements a slab, V at a time along k or along mn.
template <class T, class Acc, int MN, int BK, int THREADS, bool ALONG_K, int V> struct Loader {
  static constexpr int COUNT = MN * BK / (V * THREADS);
  static constexpr int PITCH = MN + PAD;
  // Along k, as many lanes as fill a 32-byte sector share a row, and the warp takes neighbouring rows.
  static constexpr int SECTOR = 32 / (V * int(sizeof(T)));
  static constexpr int LANES = SECTOR < BK / V ? SECTOR : BK / V;
  static constexpr int ROWS = THREADS / LANES;
  static constexpr int PASSES = ROWS < MN ? MN / ROWS : 1;
  static constexpr int STEP_K = ALONG_K ? (ROWS < MN ? 1 : ROWS / MN) * LANES * V : THREADS * V / MN;
  static_assert(COUNT * V * THREADS == MN * BK && COUNT > 0, "a slab is a whole number of vectors a thread");
  static_assert(ALONG_K || THREADS * V % MN == 0, "a thread keeps its place along mn");

  const T* from;
  i64 stride_mn, stride_k;
  i32 left_mn;  // what there is from the thread's first element on
  Acc* to;
  Vec<T, V> held[COUNT];

  // `tile` is the operand's first element of the tile, `mn` what there is from there on.
  __device__ __forceinline__ Loader(const T* tile, i64 stride_mn, i64 stride_k, u32 mn, Acc (*staged)[PITCH])
      : stride_mn(ALONG_K || V == 1 ? stride_mn : 1), stride_k(!ALONG_K || V == 1 ? stride_k : 1) {
    from = tile + i64(own_mn()) * this->stride_mn + i64(own_k()) * this->stride_k;
    left_mn = i32(mn - own_mn());
    to = &staged[own_k()][own_mn()];
  }

  static __device__ __forceinline__ u32 own_mn() { return ALONG_K ? threadIdx.x / LANES % MN : threadIdx.x % (MN / V) * V; }
  static __device__ __forceinline__ u32 own_k() {
    return ALONG_K ? (threadIdx.x / (LANES * MN) * LANES + threadIdx.x % LANES) * V : threadIdx.x / (MN / V);
  }
  static __device__ __forceinline__ constexpr int mn_of(int i) { return ALONG_K ? i % PASSES * ROWS : 0; }
  static __device__ __forceinline__ constexpr int k_of(int i) { return ALONG_K ? i / PASSES * STEP_K : i * STEP_K; }

  // Reads the first `ks` k's of the next slab, zeros for what lies outside. Vectors never straddle an end.
  __device__ __forceinline__ void fetch(u32 ks = BK) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      held[i] = Vec<T, V>{};
      if (mn_of(i) < left_mn && (ks == BK || own_k() + k_of(i) < ks))
        held[i] = *reinterpret_cast<const Vec<T, V>*>(from + mn_of(i) * stride_mn + k_of(i) * stride_k);
    }
    from += ks * stride_k;
  }

  __device__ __forceinline__ void stage(u32 buffer) const {
    Acc* const slab = to + buffer * (BK * PITCH);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      Vec<Acc, V> x;
#pragma unroll
      for (int v = 0; v < V; ++v) x.at[v] = convert<Acc>(held[i].at[v]);
      Acc* const place = slab + k_of(i) * PITCH + mn_of(i);
      if constexpr (!ALONG_K) {
        *reinterpret_cast<Vec<Acc, V>*>(place) = x;
      } else {
#pragma unroll
        for (int v = 0; v < V; ++v) place[v * PITCH] = x.at[v];
      }
    }
  }
};

// Where a thread's elements lie along a tile side of SIZE, COUNT of them in blocks of W.
template <class Acc, int SIZE, int COUNT> struct Fragment {
  static constexpr int WIDE = 16 / int(sizeof(Acc));
  static constexpr int W = COUNT < WIDE ? COUNT : WIDE;
  static constexpr int APART = SIZE / (COUNT / W);

  static __device__ __forceinline__ constexpr u32 offset(int i) { return i / W * APART + i % W; }
  static __device__ __forceinline__ void read(Acc (&x)[COUNT], const Acc* row) {
#pragma unroll
    for (int i = 0; i < COUNT; i += W) {
      const Vec<Acc, W> block = *reinterpret_cast<const Vec<Acc, W>*>(row + offset(i));
#pragma unroll
      for (int j = 0; j < W; ++j) x[i + j] = block.at[j];
    }
  }
};

// What a CTA and a thread of it have to do. The special registers are read again at each use, so that nothing of this takes a
// register through the main loop.
template <int BM, int BN> struct Tile {
  u32 matrix, m, n;
  __device__ __forceinline__ Tile(u32 tiles_m, u32 tiles_n) {
    u32 id;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(id));
    matrix = id / (tiles_m * tiles_n);
    const u32 tile = id - matrix * (tiles_m * tiles_n);
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
    // Lanes 2i and 2i+1 read one word of B, lanes i and i+2 one word of A: only then do a warp's 16-byte reads merge.
    const u32 lane = t % 32, warp = t / 32;
    m = (warp / WARPS_N * LANES_M + (lane & 1 | lane >> 3 & 2)) * A::W;
    n = (warp % WARPS_N * LANES_N + (lane >> 1 & 7)) * B::W;
  }
};

template <class T, class Acc, int BM, int BN, int BK, int TM, int TN, int CTAS, bool A_ALONG_K, int A_V, bool B_ALONG_K, int B_V,
          class Epi>
__global__ void __launch_bounds__(BM / TM * (BN / TN), CTAS)
simt(const T* __restrict__ a, const T* __restrict__ b, Epi epilogue, Walk a_walk, Walk b_walk, Batch batch, u32 m, u32 n, u32 k,
     u32 tiles_m, u32 tiles_n) {
  constexpr int THREADS = BM / TM * (BN / TN);
  constexpr int WARPS_N = BN / TN / LANES_N;
  constexpr int UNROLL = TM * TN * int(sizeof(Acc)) < 256 ? BK : 2;  // from further on ptxas reads ahead into spills
  using LoaderA = Loader<T, Acc, BM, BK, THREADS, A_ALONG_K, A_V>;
  using LoaderB = Loader<T, Acc, BN, BK, THREADS, B_ALONG_K, B_V>;
  using FragmentA = Fragment<Acc, BM, TM>;
  using FragmentB = Fragment<Acc, BN, TN>;
  alignas(16) __shared__ Acc staged_a[2][BK][LoaderA::PITCH], staged_b[2][BK][LoaderB::PITCH];

  const Tile<BM, BN> tile(tiles_m, tiles_n);
  const BatchIndex at = batch.locate(tile.matrix);
  LoaderA from_a(a + a_walk.enter(at) + a_walk.at(tile.m, 0), a_walk.row, a_walk.col, m - tile.m, staged_a[0]);
  LoaderB from_b(b + b_walk.enter(at) + b_walk.at(0, tile.n), b_walk.col, b_walk.row, n - tile.n, staged_b[0]);
  const Own<FragmentA, FragmentB, WARPS_N> own;

  Acc acc[TM][TN] = {};
  // The slab that may be a part of one comes first: the others need no test.
  const u32 part = k ? (k - 1) % BK + 1 : 0;
  from_a.fetch(part);
  from_b.fetch(part);
  from_a.stage(0);
  from_b.stage(0);
  __syncthreads();
  u32 buffer = 0;
  for (u32 slabs = (k + BK - 1) / BK; slabs; --slabs) {
    if (slabs > 1) {
      from_a.fetch();
      from_b.fetch();
    }
    const Acc *row_a = &staged_a[buffer][0][own.m], *row_b = &staged_b[buffer][0][own.n];
#pragma unroll UNROLL
    for (int kk = 0; kk < BK; ++kk, row_a += LoaderA::PITCH, row_b += LoaderB::PITCH) {
      Acc x[TM], y[TN];
      FragmentA::read(x, row_a);
      FragmentB::read(y, row_b);
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] = fma(x[i], y[j], acc[i][j]);
    }
    buffer ^= 1;
    if (slabs > 1) {
      from_a.stage(buffer);
      from_b.stage(buffer);
    }
    __syncthreads();
  }

  // One row a turn, the others moved up, so that the epilogue's code is there once and not TM times.
  const Tile<BM, BN> done(tiles_m, tiles_n);
  const Own<FragmentA, FragmentB, WARPS_N> mine;
  const Epi out = epilogue.enter(batch.locate(done.matrix));
#pragma unroll 1
  for (int i = 0; i < TM; ++i) {
    const u32 row = done.m + mine.m + FragmentA::offset(i);
    if (row < m) {
#pragma unroll
      for (int j = 0; j < TN; j += 2) {
        const u32 col = done.n + mine.n + FragmentB::offset(j);
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
