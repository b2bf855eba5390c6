// dV = P^T dO, dK = scale dS^T Q, dQ = scale dS K by wgmma (Hopper); f16, bf16. The formulas of backward.cu, with the
// roles of FlashAttention-3 (J. Shah et al., arXiv:2407.08608): each score is computed once.
//
// Tiling:    one CTA per BN = 128 keys (or several such blocks); query tiles of BM, for every head of the GQA group.
//            Head dims are filled up to D with zeros by TMA.
// Threads:   one producer warp, of which one lane issues TMA; two consumer warpgroups of 64 keys each. 64 queries at a
//            time: S^T = K Q^T, dP^T = V dO^T from shared memory, P^T and dS^T rounded to T in registers as the A
//            operands of dV += P^T dO, dK += dS^T Q.
// dQ:        dS through shared memory, two tiles in turn, so that one barrier per tile suffices; a consumer has 64
//            queries by 64 columns. red.add to f32 in L2, in arrival order, or to slices of one CTA each; in the layout
//            of backward.cu, whose second kernel sums and rounds.
// Pipeline:  STAGES slots of Q, dO and stats, full and empty mbarriers each; one slot of K and V.
// Changes:   softcap, ALiBi, bool mask (CHANGES, changes.cuh). Softcap's derivative is multiplied into P once P is
//            packed for dV. A mask is read as bits, a word per thread and 64 queries.
// Tails:     TMA zero-fills past the tensor; keys behind the last one that any query sees, and queries behind a ragged
//            sequence's last, are overwritten with zeros (weights of 0 would meet a NaN).
// Shared:    K, V, STAGES x (Q, dO) as panels of 64 columns in the 128-byte swizzle, two tiles of dS as panels of 64
//            queries, STAGES x stats, barriers.
// Grid:      as backward.cu.   Bound: tensor cores.
#include "attention/changes.cuh"
#include "attention/gradients.cuh"
#include "attention/head_boxes.cuh"
#include "attention/mask_bits.cuh"
#include "attention/opaque.cuh"
#include "attention/query_sums.cuh"
#include "attention/softmax.cuh"
#include "ptx/warpgroup.cuh"

using namespace attention;

constexpr int BN = 128;
constexpr u32 CONSUMER_THREADS = 256, BARRIER_CONSUMERS = 1;

template <int N> __device__ __forceinline__ void pin_tile(float (&x)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i) warpgroup::pin(x[i]);
}

// A round of a CTA: its block of keys, and the query tiles [begin, end) that see it.
template <int BM> struct Round {
  bool exists;
  int key, begin, end;
  int previous_block;  // that added to the same slice before; -1: none. Without slices: this block itself
  template <class P, class H>
  __device__ __forceinline__ Round(const P& p, const H& head, const QuerySums& sums, u32 of_head, u32 round) {
    const u32 rounds = sums.rounds<BN>(head.keys), block = sums.block(of_head, round, rounds);
    key = int(block) * BN;
    exists = round < rounds && key < head.keys;
    begin = rows_of(p, head, key).first / BM;
    end = (rows_of(p, head, min(key + BN, head.keys) - 1).end + BM - 1) / BM;
    previous_block = !sums.slices ? int(block) : round ? int(sums.block(of_head, round - 1, rounds)) : -1;
  }
};

// Overwrites rows from `first` on of PANELS panels with zeros. All consumers call it.
template <u32 PANEL, int PANELS> __device__ __forceinline__ void overwrite(u32 panels, int first) {
  const u32 from = first * PANEL_ROW, chunks = (PANEL - from) / 16;
#pragma unroll 1
  for (u32 i = threadIdx.x - 128; i < PANELS * chunks; i += CONSUMER_THREADS)
    store_shared(panels + i / chunks * PANEL + from + i % chunks * 16, Vec<float, 4>{});
  tma::fence_shared();
  barrier_sync(BARRIER_CONSUMERS, CONSUMER_THREADS);
}

// P of a warp's 16 keys, the thread's from `key` on, and 64 queries, its from `query` on: packed as A operands, and in
// the place of the scores; with softcap, there times its derivative. `shown`: the mask's bits (mask_bits.cuh). `by`,
// `cap`, `slope` and `shift` are in log2.
template <int CHANGES, class T, class P, class H>
__device__ __forceinline__ void weigh_changed(float (&s)[8][4], u32 (&packed)[4][4], const P& p, const H& head,
    const Band& band, float by, float cap, float slope, u32 stats, u32 shown, int query, int key, bool whole) {
  const float distance = CHANGES & SLOPE ? float(key - (query + head.offset)) : 0.0f;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float capped[2][4];  // tanh of softcap
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int n = 2 * k + i;
      Vec<float, 4> two;  // (-lse log2(e), delta) of two queries
      load_shared(two, stats + n * 64);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& weight = s[n][e];
        capped[i][e] = CHANGES & CAP ? math::tanh_from_log2(weight * by) : weight;
        weight = fmaf(capped[i][e], CHANGES & CAP ? cap : by, two.at[e % 2 * 2 + SHIFT]);
        if (CHANGES & SLOPE) weight = fmaf(slope, distance + float(e / 2 * 8 - 8 * n - e % 2), weight);
        weight = fminf(math::ex2_ftz(weight), 1.0f);
        if ((CHANGES & BITS) && !(shown >> (4 * n + e % 2 * 2 + e / 2) & 1)) weight = 0.0f;
        if (!whole) {
          const Keys seen = band.of(query + 8 * n + e % 2);
          if (key + e / 2 * 8 < seen.first || key + e / 2 * 8 >= seen.end) weight = 0.0f;
        }
      }
    }
    pack_weights<T>(packed[k], s, k);
    if (CHANGES & CAP) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[2 * k + i][e] *= fmaf(-capped[i][e], capped[i][e], 1.0f);
    }
  }
}

template <class T, int D, int BM, int STAGES, int CHANGES>
__global__ void __launch_bounds__(128 + CONSUMER_THREADS, 1)
    attention_backward_wgmma(const __grid_constant__ Problem<T, T, float> p,
        const __grid_constant__ Gradients<T, float> g, const __grid_constant__ QuerySums sums,
        const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap grad_map,
        const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map) {
  constexpr int PARTS = BM / 64;
  static_assert(D * BM == 64 * 128);  // a tile of dQ is two consumers' 64 x 64
  constexpr u32 KEY_PANEL = BN * PANEL_ROW, QUERY_PANEL = BM * PANEL_ROW;
  constexpr u32 KEY_BYTES = D / 64 * KEY_PANEL, QUERY_BYTES = D / 64 * QUERY_PANEL, PULL_BYTES = PARTS * KEY_PANEL;
  extern __shared__ __align__(1024) u8 memory[];
  const u32 keys = shared_address(memory), values = keys + KEY_BYTES, stages = values + KEY_BYTES,
            pulled = stages + STAGES * 2 * QUERY_BYTES, stats = pulled + 2 * PULL_BYTES,
            full = stats + STAGES * BM * 8, empty = full + 8 * STAGES, keys_full = empty + 8 * STAGES,
            keys_empty = keys_full + 8;
  // In registers these would displace sums. first, end, keys: the Band (mask.cuh); `behind`: keys up to the tensor's
  // end; by, cap: of units_of, times log2(e) where scores are multiplied; the others: the consumers' Round
  struct Kept {
    int rows, first, end, keys, behind, key, begin_block, end_block, previous_block;
    float by, cap;
  };
  volatile Kept& kept = *reinterpret_cast<Kept*>(memory + (keys_empty + 8 - keys));

  // 1. barriers; which CTA of which head
  if (threadIdx.x == 0) {
    tma::prefetch(q_map);
    tma::prefetch(grad_map);
    tma::prefetch(k_map);
    tma::prefetch(v_map);
    for (int i = 0; i < STAGES; ++i) {
      barrier::init(full + 8 * i, 1);
      barrier::init(empty + 8 * i, CONSUMER_THREADS / 32);
    }
    barrier::init(keys_full, 1);
    barrier::init(keys_empty, CONSUMER_THREADS / 32);
    barrier::fence_init();
  }
  const u32 flat = sums.head(blockIdx.x), of_head = sums.cta_of_head(blockIdx.x), kv_heads = p.heads / p.group;
  const u32 batch = flat / kv_heads, kv_head = flat % kv_heads;
  const Head<T, T, float> any(p, batch, kv_head * p.group);
  if (threadIdx.x == 0) {
    const Band band = Band::make(p, any);
    kept.rows = any.rows, kept.first = band.first, kept.end = band.end, kept.keys = band.keys;
    kept.behind = int(p.keys) - Extent(p.starts_k, batch, p.keys).first;
    const Units units = units_of<CHANGES>(p, float(p.scale));
    kept.by = CHANGES & CAP ? units.by : units.by * math::LOG2E, kept.cap = units.cap * math::LOG2E;
  }
  __syncthreads();
  const u32 group = __shfl_sync(~0u, threadIdx.x / 128, 0), lane = threadIdx.x % 32;
  Cursor<STAGES> at;
  Cursor<1> at_keys;

  // 2. producer warp
  if (group == 0) {
    warpgroup::give_registers<24>();
    if (__shfl_sync(~0u, threadIdx.x / 32, 0) != 0) return;
    const int first_query = Extent(p.starts_q, batch, p.rows).first,
              first_key = Extent(p.starts_k, batch, p.keys).first;
    const u32 sequence = p.starts_q ? 0 : batch;
#pragma unroll 1
    for (u32 index = 0;; ++index) {
      const Round<BM> round(p, any, sums, of_head, index);
      if (!round.exists) return;
      if (round.begin >= round.end) continue;
      barrier::wait(keys_empty, at_keys.parity ^ 1);
      at_keys.next();
      if (lane == 0) {
        barrier::expect(keys_full, 2 * KEY_BYTES);
        HeadBoxes(p.k_strides, first_key, sequence, kv_head).load<BN, D>(keys, k_map, round.key, keys_full);
        HeadBoxes(p.v_strides, first_key, sequence, kv_head).load<BN, D>(values, v_map, round.key, keys_full);
      }
#pragma unroll 1
      for (u32 head = kv_head * p.group; head < (kv_head + 1) * p.group; ++head) {
        const HeadBoxes of_queries(p.q_strides, first_query, sequence, head),
            of_pulls(g.grad_strides, first_query, sequence, head);
        const Stats<float>* const rows = QueryGradients<T, float>(p, g, batch, head).stats;
#pragma unroll 1
        for (int block = round.begin; block < round.end; ++block, at.next()) {
          Stats<float> of_rows[BM / 32];  // in flight while the slot is waited for; zeros past the last row
#pragma unroll
          for (int i = 0; i < BM / 32; ++i) {
            const int row = block * BM + i * 32 + int(lane);
            of_rows[i] = row < any.rows ? rows[row] : Stats<float>{};
          }
          const u32 queries = stages + at.stage * 2 * QUERY_BYTES, arrived = full + 8 * at.stage;
          barrier::wait(empty + 8 * at.stage, at.parity ^ 1);
#pragma unroll
          for (int i = 0; i < BM / 32; ++i)
            store_shared(stats + (at.stage * BM + i * 32 + lane) * 8,
                Vec<float, 2>{{-of_rows[i].at[SHIFT] * math::LOG2E, of_rows[i].at[DELTA]}});
          __syncwarp();
          if (lane == 0) {
            barrier::expect(arrived, 2 * QUERY_BYTES);
            of_queries.load<BM, D>(queries, q_map, block * BM, arrived);
            of_pulls.load<BM, D>(queries + QUERY_BYTES, grad_map, block * BM, arrived);
          }
        }
      }
    }
  }

  // 3. consumer warpgroups
  warpgroup::take_registers<240>();
  const u32 consumer = group - 1, warp = threadIdx.x / 32 % 4;
  const auto band = [&] { return Band{kept.first, kept.end, kept.keys}; };
  const float factor = float(p.scale) * math::LOG2E;
  const auto release = [&](u32 of) {
    if (lane == 0) barrier::arrive(of);
  };
  // A consumer's part of a tile of dQ: 64 queries, or 64 columns
  const u32 query_part = D == 64 ? consumer : 0, column_part = D == 64 ? 0 : consumer;
  const u64 own_keys = warpgroup::descriptor<false>(keys) + consumer * warpgroup::NEXT_64,
            own_values = warpgroup::descriptor<false>(values) + consumer * warpgroup::NEXT_64,
            key_columns = warpgroup::descriptor<true>(keys + column_part * KEY_PANEL);
  // Offset of the thread's sums in a tile of dQ, as the second kernel of backward.cu has them with eight warps: a warp
  // has 32 queries by 32 columns.
  const u32 rows16 = query_part * 4 + warp, of_sums = rows16 % 2 * (16 * CONSUMER_THREADS) +
      ((rows16 / 2 * (D / 32) + column_part * 2) * 32 + lane) * THREAD_STEP;
  u32 slot = 0;  // of dS

#pragma unroll 1
  for (u32 index = 0;; ++index) {
    {
      const Round<BM> round(p, any, sums, of_head, index);
      if (!round.exists) return;
      barrier_sync(BARRIER_CONSUMERS, CONSUMER_THREADS);
      if (threadIdx.x == 128) {
        kept.key = round.key, kept.begin_block = round.begin, kept.end_block = round.end;
        kept.previous_block = round.previous_block;
      }
      barrier_sync(BARRIER_CONSUMERS, CONSUMER_THREADS);
    }
    float sum_k[D / 8][4] = {}, sum_v[D / 8][4] = {};
    if (kept.begin_block < kept.end_block) {
      barrier::wait(keys_full, at_keys.parity);
      at_keys.next();
      // Keys behind the last one that any query sees
      const int seen = band().of(kept.rows - 1).end;
      if (seen < min(kept.key + BN, kept.behind)) overwrite<KEY_PANEL, 2 * D / 64>(keys, max(seen - kept.key, 0));
#pragma unroll 1
      for (u32 head = kv_head * p.group; head < (kv_head + 1) * p.group; ++head)
#pragma unroll 1
        for (int block = kept.begin_block; block < kept.end_block; ++block, at.next(), slot ^= 1) {
          const u32 queries = stages + at.stage * 2 * QUERY_BYTES, pulls = queries + QUERY_BYTES,
                    pulled_here = pulled + slot * PULL_BYTES;
          u32 ds_words[4][4];
          const auto issue_sums = [&](float(&to)[D / 8][4], const u32(&a)[4][4], u32 rows, int part) {
            const u64 b = warpgroup::descriptor<true>(rows + part * 64 * PANEL_ROW);
            pin_tile(to);
            warpgroup::arrive();
#pragma unroll
            for (int k = 0; k < 4; ++k) wgmma_sums(to, a[k], b + k * warpgroup::NEXT_K<true>, 1);
            warpgroup::commit();
          };
          barrier::wait(full + 8 * at.stage, at.parity);
          if (p.starts_q && (block + 1) * BM > kept.rows)
            overwrite<QUERY_PANEL, 2 * D / 64>(queries, kept.rows - block * BM);
#pragma unroll
          for (int part = 0; part < PARTS; ++part) {
            // 3a. S^T = K Q^T (s) and dP^T = V dO^T (ds)
            float s[8][4], ds[8][4];
            u32 p_words[4][4];
            const u64 of_queries = warpgroup::descriptor<false>(queries) + part * warpgroup::NEXT_64,
                      of_pulls = warpgroup::descriptor<false>(pulls) + part * warpgroup::NEXT_64;
            const auto issue_scores = [&](float(&to)[8][4], u64 a, u64 b) {
#pragma unroll
              for (int k = 0; k < D / 16; ++k)
                wgmma_scores(to, a + (k / 4 * (KEY_PANEL >> 4) + k % 4 * warpgroup::NEXT_K<false>),
                    b + (k / 4 * (QUERY_PANEL >> 4) + k % 4 * warpgroup::NEXT_K<false>), k != 0);
              warpgroup::commit();
            };
            u32 shown = 0;
            if constexpr ((CHANGES & BITS) != 0)
              shown = tile_bits(p, Head<T, T, float>(p, opaque(batch), opaque(head)), block * BM + part * 64,
                  kept.key + int(consumer * 64 + warp * 16), lane);
            pin_tile(s);
            pin_tile(ds);
            warpgroup::arrive();
            issue_scores(s, own_keys, of_queries);
            issue_scores(ds, own_values, of_pulls);
            warpgroup::wait<1>();
            pin_tile(s);

            // 3b. P = min(exp(S - lse), 1). Queries past the last row are zeros, and so are their lse and delta
            const u32 thread = opaque(threadIdx.x), lane = thread % 32, warp = thread / 32 % 4;
            const int own_key = kept.key + int(thread / 128 - 1) * 64;
            const int first = block * BM + part * 64, past = min(first + 64, kept.rows);
            const bool whole = band().of(past - 1).first <= own_key && band().of(first).end >= own_key + 64;
            const u32 of_rows = stats + (at.stage * BM + part * 64 + lane % 4 * 2) * 8;
            const int query = first + int(lane % 4) * 2, key = own_key + int(warp * 16 + lane / 4);
            if constexpr (CHANGES != 0) {
              const Head<T, T, float> of_head(p, opaque(batch), opaque(head));
              const float slope = CHANGES & SLOPE ? slope_of(p, of_head) * math::LOG2E : 0.0f;
              weigh_changed<CHANGES, T>(
                  s, p_words, p, of_head, band(), kept.by, kept.cap, slope, of_rows, shown, query, key, whole);
            } else {
#pragma unroll
              for (int n = 0; n < 8; ++n) {
                Vec<float, 4> two;  // (-lse log2(e), delta) of two queries
                load_shared(two, of_rows + n * 64);
#pragma unroll
                for (int e = 0; e < 4; ++e)
                  s[n][e] = fminf(math::ex2_ftz(fmaf(s[n][e], factor, two.at[e % 2 * 2 + SHIFT])), 1.0f);
              }
              if (!whole) {
                const Band edge = band();
#pragma unroll
                for (int n = 0; n < 8; ++n)
#pragma unroll
                  for (int e = 0; e < 4; ++e) {
                    const Keys seen = edge.of(query + 8 * n + e % 2);
                    if (key + e / 2 * 8 < seen.first || key + e / 2 * 8 >= seen.end) s[n][e] = 0.0f;
                  }
              }
#pragma unroll
              for (int k = 0; k < 4; ++k) pack_weights<T>(p_words[k], s, k);
            }

            // 3c. dV += P^T dO, while dS = P (dP - delta) is computed, and goes to shared memory, one row per key
            warpgroup::wait<0>();
            pin_tile(ds);
            issue_sums(sum_v, p_words, pulls, part);
#pragma unroll
            for (int n = 0; n < 8; ++n) {
              Vec<float, 4> two;
              load_shared(two, of_rows + n * 64);
#pragma unroll
              for (int e = 0; e < 4; ++e) ds[n][e] = s[n][e] * (ds[n][e] - two.at[e % 2 * 2 + DELTA]);
            }
            const u32 to = pulled_here + part * KEY_PANEL +
                ((thread / 128 - 1) * 64 + warp * 16 + lane % 16) * PANEL_ROW;
#pragma unroll
            for (int k = 0; k < 4; ++k) {
              pack_weights<T>(ds_words[k], ds, k);
              warpgroup::store_matrices<false>(to + ((2 * k + lane / 16) ^ lane % 8) * 16, ds_words[k]);
            }
            if (part + 1 < PARTS) issue_sums(sum_k, ds_words, queries, part);
          }
          tma::fence_shared();
          barrier_sync(BARRIER_CONSUMERS, CONSUMER_THREADS);

          // 3d. dQ = dS K of this consumer's queries and columns; then dK += dS^T Q, which runs while dQ is added
          float sum_q[8][4];
          const u64 of_scores = warpgroup::descriptor<true>(pulled_here + query_part * KEY_PANEL);
          pin_tile(sum_q);
          warpgroup::arrive();
#pragma unroll
          for (int k = 0; k < BN / 16; ++k)
            wgmma_queries(sum_q, of_scores + k * warpgroup::NEXT_K<true>, key_columns + k * warpgroup::NEXT_K<true>,
                k != 0);
          warpgroup::commit();
          issue_sums(sum_k, ds_words, queries, PARTS - 1);
          warpgroup::wait<1>();
          pin_tile(sum_q);
          pin_tile(sum_v);
          // 3e. a tile's first visitor stores instead of adding
          float* const to = sums.at + (sums.slices ? of_head % sums.slices : 0) * sums.slice_stride +
              sums.tile<BM>(p, batch, head, block) * (BM * D) + of_sums;
          const bool none_earlier = kept.previous_block < Visitors::of<BM, BN>(band(), kept.rows, block).first;
#pragma unroll
          for (int n = 0; n < 8; ++n)
            sums_to<CONSUMER_THREADS>(to + n % 4 * (4 * CONSUMER_THREADS) + n / 4 * 32 * THREAD_STEP, sum_q[n],
                !none_earlier);
          warpgroup::wait<0>();
          pin_tile(sum_k);
          release(empty + 8 * at.stage);
        }
      release(keys_empty);
    }

    // 4. epilogue: store dK and dV
    const KeyGradients<T, float> to(p, g, batch, kv_head);
    const int own_key = kept.key + int(consumer * 64);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = own_key + int(warp * 16 + lane / 4) + 8 * r;
      if (row >= kept.keys) continue;
      const auto put = [&](T* line, u32 columns, const float(&sum)[D / 8][4], float by) {
#pragma unroll
        for (int c = 0; c < D / 8; ++c) {
          const u32 column = 8 * c + lane % 4 * 2;
          if (column < columns)
            *reinterpret_cast<u32*>(line + column) = round_pair(sum[c][2 * r] * by, sum[c][2 * r + 1] * by, T{});
        }
      };
      put(to.grad_k + row * g.grad_k_strides.row, p.d, sum_k, float(p.scale));
      put(to.grad_v + row * g.grad_v_strides.row, p.d_v, sum_v, 1.0f);
    }
  }
}
