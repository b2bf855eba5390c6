// The gradients of attention by mma.sync for f16 and bf16 (T. Dao, "FlashAttention-2", 2023, algorithm 2): p = exp(s - lse), ds = p
// (grad v^T - delta) derivative; grad_v = p^T grad, grad_k = scale ds^T q, grad_q = scale ds k. Every score is computed once.
//
// Tiling: a CTA has BN keys and goes through the queries, BM at a time, of every head that shares them. Scores are transposed: a
// warp has 16 BLOCKS keys by SUB queries, so that p^T and ds^T, rounded to T, are a's of the second products where they lie, and the
// sums of grad_k and grad_v stay in registers. SPLIT = 2: two warps share keys, each with half of the queries' scores and then half
// of the columns, and p^T and ds^T go through shared memory, which with 32 keys a warp is less of its traffic all the same. Head dims
// below D and DV are filled up with zeros.
// grad_q: ds^T goes through shared memory; a warp has 32 queries by D / (WARPS / (BM / 32)) columns, which are added to f32 `sums`
// with reductions in L2: sums lie as threads hold them, so that a warp's 32 are neighbours. Where every CTA of a head has a slice of
// its own (slice > 0), and takes every `stripes`th block of keys, each element has one thread that adds, so that the order is fixed;
// else whoever comes first adds. attention_backward_queries adds up slices in order and rounds.
// Shared memory: keys, values, STAGES of BM queries and gradients by cp.async with their stats, ds^T (SPLIT = 2: p^T too).
// Grid: blocks of keys from the first, which under causal has most queries, of one head after the other.
// Bound: the tensor cores' mma.sync rate, and shared memory's as close (BLOCKS = 1: shared memory's).
#include "attention/gradients.cuh"
#include "attention/panels.cuh"
#include "attention/softmax.cuh"
#include "barrier.cuh"

using namespace attention;

// Sums of grad_q in tiles of BM queries, `tiles` a head, those of a sequence behind the other's; slices lie `slice` floats apart.
struct Sums {
  float* at;
  u64 slice;
  u32 tiles;
  // The tile of a head's queries from BM block on.
  template <int BM, class P> __device__ __forceinline__ u64 tile(const P& p, u32 batch, u32 head, int block) const {
    if (!p.starts_q) return u64(batch * p.heads + head) * tiles + block;
    return u64(head) * tiles + Extent(p.starts_q, batch, p.rows).first / BM + batch + block;
  }
};

__device__ __forceinline__ void add_to(float* to, float x) { asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory"); }
__device__ __forceinline__ void store_pair(u32 to, u32 pair) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(pair) : "memory"); }

// What is made of it is made where it is used, and kept in no register around a loop.
__device__ __forceinline__ u32 anew(u32 x) {
  asm volatile("" : "+r"(x));
  return x;
}

template <class T, int D, int DV, int BM, int SUB, int WARPS, int BLOCKS, int SPLIT, int STAGES, int RESIDENT, bool CHANGED>
__global__ void __launch_bounds__(WARPS * 32, RESIDENT)
attention_backward(Problem<T, T, float> p, Gradients<T, float> g, Sums sums, u32 stripes) {
  constexpr int THREADS = WARPS * 32, BN = WARPS / SPLIT * 16 * BLOCKS, PARTS = BM / SUB;
  static_assert(SPLIT == 1 || SPLIT == PARTS);
  using Keys_ = Panels<BN, D>;
  using Values = Panels<BN, DV>;
  using Queries = Panels<BM, D>;
  using Pulls = Panels<BM, DV>;  // grad's rows
  using Scores = Panels<BN, BM>;
  constexpr int STAGE = Queries::BYTES + Pulls::BYTES, STATS = BM * 8;
  extern __shared__ __align__(128) u8 memory[];
  // What a block needs once: in registers it would displace what its products need
  __shared__ struct { volatile u32 batch, kv_head, stripe; volatile int tile, rows, begin, past, first, end, keys; } kept;
  const u32 keys = shared_address(memory), values = keys + Keys_::BYTES, ring = values + Values::BYTES;
  const u32 pulled = ring + STAGES * STAGE, weighted = pulled + Scores::BYTES, stats = pulled + SPLIT * Scores::BYTES;

  // Queries of a block, with what pulls at them
  const auto bring = [&](int block, u32 number, u32 stage) {
    const int row = block * BM, rows = kept.rows - row, thread = int(anew(threadIdx.x));
    const u32 batch = kept.batch, at = ring + stage * STAGE;
    const Head<T, T, float> head(p, batch, number);
    const QueryGradients<T, float> pulls(p, g, batch, number);
    Queries::template Feed<THREADS>::bring(thread, at, head.q + i64(row) * p.q_walk.row, int(p.q_walk.row), rows, int(p.d));
    Pulls::template Feed<THREADS>::bring(thread, at + Queries::BYTES, pulls.grad + i64(row) * g.grad_walk.row, int(g.grad_walk.row), rows, int(p.d_v));
    if (thread < BM) copy_async<8>(stats + stage * STATS + thread * 8, pulls.stats + row + thread, thread < rows ? 8 : 0);
  };

  // Which keys of which head
  if (threadIdx.x == 0) {
    const u32 kv_heads = p.heads / p.group, flat = blockIdx.x / stripes;
    kept.stripe = blockIdx.x % stripes, kept.batch = flat / kv_heads, kept.kv_head = flat % kv_heads;
    kept.tile = int(kept.stripe) * BN;
  }
  while (true) {
    __syncthreads();
    const Head<T, T, float> any(p, kept.batch, kept.kv_head * p.group);
    if (kept.tile >= any.keys) break;
    if (threadIdx.x == 0) {
      const Band band = Band::make(p, any);
      const int tile = kept.tile, last = min(tile + BN, any.keys) - 1;
      const int begin = rows_of(p, any, tile).first / BM, end = (rows_of(p, any, last).end + BM - 1) / BM;
      kept.rows = any.rows, kept.begin = begin, kept.past = end;
      kept.first = band.first, kept.end = band.end, kept.keys = band.keys;
    }
    __syncthreads();
    const bool seen = kept.begin < kept.past;
    if (seen) {
      const int tile = kept.tile, rows = any.keys - tile;
      Keys_::template Feed<THREADS>::bring(threadIdx.x, keys, any.k + i64(tile) * p.k_walk.row, int(p.k_walk.row), rows, int(p.d));
      Values::template Feed<THREADS>::bring(threadIdx.x, values, any.v + i64(tile) * p.v_walk.row, int(p.v_walk.row), rows, int(p.d_v));
      bring(kept.begin, kept.kv_head * p.group, 0);
    }
    commit_copies();
    float sum_k[BLOCKS][D / SPLIT / 8][4] = {}, sum_v[BLOCKS][DV / SPLIT / 8][4] = {};

    int block = kept.begin;
    u32 shared = seen ? 0 : p.group, stage = 0;  // which of the heads that share keys
    while (shared < p.group) {
      const bool last_block = block + 1 == kept.past;
      const int following = last_block ? kept.begin : block + 1;
      const u32 number = kept.kv_head * p.group + shared, following_shared = shared + last_block;
      const u32 queries = ring + stage * STAGE, pulls = queries + Queries::BYTES;
      await_copies<0>();
      __syncthreads();
      if (STAGES == 2) {
        if (following_shared < p.group) bring(following, number + last_block, stage ^ 1);
        commit_copies();
      }
      const int first = block * BM, tile = kept.tile, past = min(first + BM, kept.rows);
      const Head<T, T, float> head(p, kept.batch, number);  // where scores are changed
      if (CHANGED && !any_counts(p, head, first, past, tile, min(tile + BN, head.keys))) {
        if (STAGES == 1 && following_shared < p.group) bring(following, number + last_block, 0);
        if (STAGES == 1) commit_copies();
        block = following, shared = following_shared, stage = STAGES == 2 ? stage ^ 1 : 0;
        continue;
      }
      const float slope = CHANGED ? slope_of(p, head) : 0.0f;
      const u32 thread = anew(threadIdx.x);
      const int warp = thread / 32, lane = thread % 32, own = warp / SPLIT * 16 * BLOCKS, half = warp % SPLIT;

#pragma unroll 1
      for (int part = 0; part < (SPLIT == 1 ? PARTS : 1); ++part) {
        const int sub = (SPLIT == 1 ? part : half) * SUB;

        // s^T = k q^T, and what pulls at each weight: v grad^T
        float s[BLOCKS][SUB / 8][4] = {}, ds[BLOCKS][SUB / 8][4] = {};
        const u32 at_keys = keys + Keys_::template enter<true>(lane) + own * Keys_::PITCH;
        const u32 at_queries = queries + Queries::template enter<false>(lane) + sub * Queries::PITCH;
#pragma unroll
        for (int step = 0; step < D / 16; ++step) {
          u32 a[BLOCKS][4];
#pragma unroll
          for (int b = 0; b < BLOCKS; ++b) load_matrices<false>(a[b], Keys_::at(at_keys, b, step));
#pragma unroll
          for (int n = 0; n < SUB / 16; ++n) {
            u32 columns[4];
            load_matrices<false>(columns, Queries::at(at_queries, n, step));
#pragma unroll
            for (int b = 0; b < BLOCKS; ++b) {
              Mma<T>::run(s[b][2 * n], a[b], columns);
              Mma<T>::run(s[b][2 * n + 1], a[b], columns + 2);
            }
          }
        }
        const u32 at_values = values + Values::template enter<true>(lane) + own * Values::PITCH;
        const u32 at_pulls = pulls + Pulls::template enter<false>(lane) + sub * Pulls::PITCH;
#pragma unroll
        for (int step = 0; step < DV / 16; ++step) {
          u32 a[BLOCKS][4];
#pragma unroll
          for (int b = 0; b < BLOCKS; ++b) load_matrices<false>(a[b], Values::at(at_values, b, step));
#pragma unroll
          for (int n = 0; n < SUB / 16; ++n) {
            u32 columns[4];
            load_matrices<false>(columns, Pulls::at(at_pulls, n, step));
#pragma unroll
            for (int b = 0; b < BLOCKS; ++b) {
              Mma<T>::run(ds[b][2 * n], a[b], columns);
              Mma<T>::run(ds[b][2 * n + 1], a[b], columns + 2);
            }
          }
        }

        // p and ds
        const Band band{kept.first, kept.end, kept.keys};
        const bool whole = band.of(past - 1).first <= tile && band.of(first).end >= tile + BN;
        const float scale = float(p.scale);
#pragma unroll
        for (int n = 0; n < SUB / 8; ++n) {
          Vec<float, 4> of_rows;  // shift and delta of two queries
          load_shared(of_rows, stats + stage * STATS + (sub + 8 * n + lane % 4 * 2) * 8);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int i = first + sub + 8 * n + lane % 4 * 2 + e;
            const float shift = of_rows.at[2 * e + SHIFT], delta = of_rows.at[2 * e + DELTA];
            const Keys seen = CHANGED || !whole ? band.of(i) : Keys{};
#pragma unroll
            for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
              for (int r = 0; r < 2; ++r) {
                const int j = tile + own + 16 * b + lane / 4 + 8 * r;
                float &weight = s[b][n][2 * r + e], &pull = ds[b][n][2 * r + e];
                if constexpr (CHANGED) {
                  const float scaled = weight * scale;
                  const bool counts = j >= seen.first && j < seen.end && i < kept.rows;
                  weight = counts ? math::ex2_ftz((changed<T>(p, head, scaled, i, j, slope) - shift) * math::LOG2E) : 0.0f;
                  pull = counts ? weight * (pull - delta) * derivative(p, scaled) : 0.0f;
                } else {
                  weight = math::ex2_ftz(fmaf(weight, scale * math::LOG2E, -shift * math::LOG2E));
                  if (!whole && !(j >= seen.first && j < seen.end)) weight = 0.0f;
                  pull = weight * (pull - delta);
                }
              }
          }
        }

        // Both to shared memory, as rows of keys
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
          for (int n = 0; n < SUB / 8; ++n)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              const u32 at = Scores::offset(own + 16 * b + lane / 4 + 8 * r, sub / 8 + n) + lane % 4 * 4;
              store_pair(pulled + at, round_pair(ds[b][n][2 * r], ds[b][n][2 * r + 1], T{}));
              if (SPLIT > 1) store_pair(weighted + at, round_pair(s[b][n][2 * r], s[b][n][2 * r + 1], T{}));
            }
        if (SPLIT > 1) meet(1 + warp / SPLIT, 32 * SPLIT);

        // Sums over queries: grad_v and grad_k
        const u32 scores = Scores::template enter<true>(lane) + own * Scores::PITCH, skipped = SPLIT == 1 ? sub : 0;
        const u32 query_rows = queries + Queries::template enter<true>(lane) + skipped * Queries::PITCH;
        const u32 pull_rows = pulls + Pulls::template enter<true>(lane) + skipped * Pulls::PITCH;
#pragma unroll
        for (int k = 0; k < (SPLIT == 1 ? SUB : BM) / 16; ++k) {
          u32 a[BLOCKS][4];
#pragma unroll
          for (int b = 0; b < BLOCKS; ++b) {
            if constexpr (SPLIT == 1) pack_weights<T>(a[b], s[b], k);
            else load_matrices<false>(a[b], weighted + Scores::at(scores, b, k));
          }
#pragma unroll
          for (int c = 0; c < DV / SPLIT / 16; ++c) {
            u32 rows_[4];
            const int column = half * (DV / SPLIT / 16) + c;
            load_matrices<true>(rows_, Pulls::at(pull_rows, k, column));
#pragma unroll
            for (int b = 0; b < BLOCKS; ++b) {
              Mma<T>::run(sum_v[b][2 * c], a[b], rows_);
              Mma<T>::run(sum_v[b][2 * c + 1], a[b], rows_ + 2);
            }
          }
#pragma unroll
          for (int b = 0; b < BLOCKS; ++b) {
            if constexpr (SPLIT == 1) pack_weights<T>(a[b], ds[b], k);
            else load_matrices<false>(a[b], pulled + Scores::at(scores, b, k));
          }
#pragma unroll
          for (int c = 0; c < D / SPLIT / 16; ++c) {
            u32 rows_[4];
            const int column = half * (D / SPLIT / 16) + c;
            load_matrices<true>(rows_, Queries::at(query_rows, k, column));
#pragma unroll
            for (int b = 0; b < BLOCKS; ++b) {
              Mma<T>::run(sum_k[b][2 * c], a[b], rows_);
              Mma<T>::run(sum_k[b][2 * c + 1], a[b], rows_ + 2);
            }
          }
        }
      }
      __syncthreads();
      if (STAGES == 1 && following_shared < p.group) bring(following, number + last_block, 0);
      if (STAGES == 1) commit_copies();

      // grad_q's part: 32 queries a warp
      constexpr int ACROSS = WARPS / (BM / 32), COLUMNS = D / ACROSS;
      static_assert(COLUMNS % 16 == 0);
      const int down = warp / ACROSS * 2, across = warp % ACROSS * (COLUMNS / 16);
      const u32 at_scores = pulled + Scores::template enter<false>(lane), key_rows = keys + Keys_::template enter<true>(lane);
      float sum_q[2][COLUMNS / 8][4] = {};
#pragma unroll
      for (int k = 0; k < BN / 16; ++k) {
        u32 a[2][4];
#pragma unroll
        for (int b = 0; b < 2; ++b) load_matrices<true>(a[b], Scores::at(at_scores, k, down + b));
#pragma unroll
        for (int c = 0; c < COLUMNS / 16; ++c) {
          u32 rows_[4];
          load_matrices<true>(rows_, Keys_::at(key_rows, k, across + c));
#pragma unroll
          for (int b = 0; b < 2; ++b) {
            Mma<T>::run(sum_q[b][2 * c], a[b], rows_);
            Mma<T>::run(sum_q[b][2 * c + 1], a[b], rows_ + 2);
          }
        }
      }
      const u64 tile_of_sums = sums.tile<BM>(p, kept.batch, number, block);
      float* const at = sums.at + kept.stripe * sums.slice + tile_of_sums * (BM * D) + thread;
#pragma unroll
      for (int b = 0; b < 2; ++b)
#pragma unroll
        for (int c = 0; c < COLUMNS / 8; ++c)
#pragma unroll
          for (int e = 0; e < 4; ++e) add_to(at + ((b * (COLUMNS / 8) + c) * 4 + e) * THREADS, sum_q[b][c][e]);
      block = following, shared = following_shared, stage = STAGES == 2 ? stage ^ 1 : 0;
    }
    await_copies<0>();

    // Rows of grad_k and grad_v
    const KeyGradients<T, float> to(p, g, kept.batch, kept.kv_head);
    const u32 thread = anew(threadIdx.x);
    const int lane = thread % 32, half = thread / 32 % SPLIT, total = kept.keys;
    const int first_row = kept.tile + int(thread / 32 / SPLIT * 16 * BLOCKS) + lane / 4;
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = first_row + 16 * b + 8 * r;
        if (row >= total) continue;
        const auto put = [&](T* line, u32 columns, int first_column, const float (*sum)[4], int count, float by) {
#pragma unroll
          for (int c = 0; c < count; ++c) {
            const u32 column = first_column + 8 * c + lane % 4 * 2;
            const u32 pair = round_pair(sum[c][2 * r] * by, sum[c][2 * r + 1] * by, T{});
            if (column < columns) *reinterpret_cast<u32*>(line + column) = pair;
          }
        };
        put(to.grad_k + row * g.grad_k_walk.row, p.d, half * (D / SPLIT), sum_k[b], D / SPLIT / 8, float(p.scale));
        put(to.grad_v + row * g.grad_v_walk.row, p.d_v, half * (DV / SPLIT), sum_v[b], DV / SPLIT / 8, 1.0f);
      }
    __syncthreads();
    if (threadIdx.x == 0) kept.tile += int(stripes) * BN;
  }
}

// grad_q = scale * (slices of sums, added in order). A CTA has a tile, its threads what those that added hold of it.
template <class T, int D, int BM, int WARPS>
__global__ void __launch_bounds__(WARPS * 32)
attention_backward_queries(Problem<T, T, float> p, Gradients<T, float> g, Sums sums, u32 tiles, u32 slices) {
  constexpr int THREADS = WARPS * 32, ACROSS = WARPS / (BM / 32), COLUMNS = D / ACROSS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Place<Problem<T, T, float>> place(p, blockIdx.x / tiles);
  const Head<T, T, float> head(p, place.batch, place.head);
  const QueryGradients<T, float> to(p, g, place.batch, place.head);
  const float scale = float(p.scale);
  for (int block = blockIdx.x % tiles; block * BM < head.rows; block += tiles) {  // once, but of sequences longer than was said
    const float* from = sums.at + sums.tile<BM>(p, place.batch, place.head, block) * (BM * D) + threadIdx.x;
#pragma unroll
    for (int b = 0; b < 2; ++b)
#pragma unroll
      for (int c = 0; c < COLUMNS / 8; ++c) {
        float sum[4] = {};
        for (u32 slice = 0; slice < slices; ++slice)
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[e] += from[slice * sums.slice + ((b * (COLUMNS / 8) + c) * 4 + e) * THREADS];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = block * BM + warp / ACROSS * 32 + b * 16 + lane / 4 + 8 * r;
          const u32 column = warp % ACROSS * COLUMNS + c * 8 + lane % 4 * 2;
          const u32 pair = round_pair(sum[2 * r] * scale, sum[2 * r + 1] * scale, T{});
          if (row < head.rows && column < p.d) *reinterpret_cast<u32*>(to.grad_q + row * g.grad_q_walk.row + column) = pair;
        }
      }
  }
}
