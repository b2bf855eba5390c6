// dV = P^T dO, dK = scale dS^T Q, dQ = scale dS K; P = min(exp(S - lse), 1), dS = P (dO V^T - delta) [1 - tanh^2].
// FlashAttention-2 backward (T. Dao, 2023, algorithm 2) on mma.sync; f16, bf16; each score is computed once.
// lse and delta = rowsum(dO * O) are read as `stats` (backward_rows.cu); 1 - tanh^2 is the derivative of softcap.
// Tiling:    one CTA per BN keys (or several such blocks); query tiles of BM, for every head of the GQA group. Head
//            dims are padded with zeros.
// Threads:   S^T = K Q^T, dP^T = V dO^T: 16 BLOCKS keys by SUB queries per warp.
//   SPLIT=1  P^T and dS^T stay in registers as A operands; each warp accumulates dK and dV of its keys.
//   SPLIT=2  two warps share keys: half of the queries each, then half of dK's and dV's columns; P^T, dS^T in shared.
//   SPECIALIZED=1  as SPLIT=2, but half of the warps accumulate dV, the others dK, of up to 64 keys each.
//   SPECIALIZED=2  also: of two warps one computes S^T, one dP^T, for the keys of both; they swap halves.
// dQ:        dS through shared memory; 32 queries per warp; red.add to f32 in L2: in arrival order, or to slices of it.
//            ORDERED: the CTAs that share a slice add in order (query_sums.cuh); visitors of a tile are the key blocks
//            that add to it, and the first one of a slice stores. The second kernel sums and rounds.
// Shared:    K, V, STAGES x (Q, dO, lse, delta) by cp.async, dS^T; SPLIT=2: P^T; SPECIALIZED=2: swapped scores (f32).
// Grid:      k_blocks from the first (longest under causal), section of heads after section.   Bound: mma.sync rate,
//            closely followed by shared-memory bandwidth (which is the bound for BLOCKS = 1).
#include "attention/opaque.cuh"
#include "attention/changes.cuh"
#include "attention/gradients.cuh"
#include "attention/mask_bits.cuh"
#include "attention/panel_products.cuh"
#include "attention/query_sums.cuh"
#include "attention/softmax.cuh"
#include "ptx/barrier.cuh"

using namespace attention;

__device__ __forceinline__ void store_pair(u32 to, u32 pair) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(pair) : "memory");
}

template <class T, int D, int DV, int BM, int SUB, int WARPS, int BLOCKS, int SPLIT, int SPECIALIZED, int STAGES,
    int RESIDENT, int CHANGES, bool ORDERED>
__global__ void __launch_bounds__(WARPS * 32, RESIDENT)
    attention_backward(Problem<T, T, float> p, Gradients<T, float> g, QuerySums sums) {
  constexpr int THREADS = WARPS * 32, BN = WARPS / SPLIT * 16 * BLOCKS, PARTS = BM / SUB, STEP = ORDERED ? -1 : 1;
  static_assert(SPLIT == 1 || SPLIT == PARTS);
  static_assert(!SPECIALIZED || SPLIT == 2 && D == DV);
  // OWNED: m16 blocks of keys that a warp accumulates; SHARING: warps that share them, by columns.
  constexpr int OWNED = !SPECIALIZED ? BLOCKS
      : BN < 64                      ? BN / 16
                                     : 4,
                SHARING = !SPECIALIZED ? SPLIT : WARPS / 2 / (BN / 16 / OWNED);
  using Keys_ = Panels<BN, D>;
  using Values = Panels<BN, DV>;
  using Queries = Panels<BM, D>;
  using Pulls = Panels<BM, DV>;  // rows of dO; `pull` is dP, then dS
  using Scores = Panels<BN, BM>;
  constexpr int STAGE = Queries::BYTES + Pulls::BYTES, STATS = BM * 8;
  extern __shared__ __align__(128) u8 memory[];
  // CTA-wide constants: in registers they would displace the operands of mma. start to last: the query tiles, in the
  // order of the loop; first, end, keys: the Band (mask.cuh); others: the last known progress of the preceding CTA.
  __shared__ struct {
    volatile u32 batch, kv_head, of_head, slice, round, others;
    volatile float by, cap;
    volatile int tile, previous_block, rows, start, last, first, end, keys;
  } kept;
  const u32 keys = shared_address(memory), values = keys + Keys_::BYTES, stages = values + Values::BYTES;
  const u32 pulled = stages + STAGES * STAGE, weighted = pulled + Scores::BYTES, stats = pulled + SPLIT * Scores::BYTES;
  const u32 swapped = stats + STAGES * STATS;

  // Loader of one stage: Q, dO, (shift, delta) of a query tile of head `number`; shift is lse, which is subtracted from
  // S.
  const auto issue_loads = [&](int block, u32 number, u32 stage) {
    const int row = block * BM, rows = kept.rows - row, thread = int(opaque(threadIdx.x));
    const u32 batch = kept.batch, at = stages + stage * STAGE;
    const Head<T, T, float> head(p, batch, number);
    const QueryGradients<T, float> pulls(p, g, batch, number);
    const T *const q = head.q + i64(row) * p.q_strides.row, *const grad = pulls.grad + i64(row) * g.grad_strides.row;
    Queries::template GlobalLoader<THREADS>::issue(thread, at, q, int(p.q_strides.row), rows, int(p.d));
    Pulls::template GlobalLoader<THREADS>::issue(
        thread, at + Queries::BYTES, grad, int(g.grad_strides.row), rows, int(p.d_v));
    if (thread < BM)
      copy_async<8>(stats + stage * STATS + thread * 8, pulls.stats + row + thread, thread < rows ? 8 : 0);
  };
  const auto visitors_of = [&](int block) {
    return Visitors::of<BM, BN>(Band{kept.first, kept.end, kept.keys}, kept.rows, block);
  };

  // ORDERED: called before a tile of dQ is added to; waits for the previous CTA of the slice and publishes this CTA's
  // progress. One thread does so.
  const auto polls = [] { return ORDERED && threadIdx.x == 0; };
  const auto wait_for_predecessor = [&](u32 shared, int block) {
    if (!polls()) return;
    const u32 tiles = (kept.rows + BM - 1) / BM, place = shared * tiles + tiles - 1 - block, round = p.group * tiles;
    sums.wait_for_predecessor(
        kept.round * round + place, (sums.rounds<BN>(kept.keys) - 1) * round + place, kept.others);
  };

  // 1. tile scheduler: which CTA of which head
  if (threadIdx.x == 0) {
    const u32 kv_heads = p.heads / p.group, flat = sums.head(blockIdx.x);
    kept.of_head = sums.cta_of_head(blockIdx.x);
    kept.slice = sums.slices ? kept.of_head % sums.slices : 0;
    kept.batch = flat / kv_heads, kept.kv_head = flat % kv_heads, kept.round = 0;
    const Units units = units_of<CHANGES>(p, float(p.scale));
    kept.by = units.by, kept.cap = units.cap;
  }
  // 2. loop over blocks of keys of this CTA
  while (true) {
    __syncthreads();
    const Head<T, T, float> any(p, kept.batch, kept.kv_head * p.group);
    const u32 rounds = sums.rounds<BN>(any.keys), of_head = kept.of_head,
              block_of_keys = sums.block(of_head, kept.round, rounds);
    if (kept.round == rounds || int(block_of_keys) * BN >= any.keys) break;
    if (threadIdx.x == 0) {
      const Band band = Band::make(p, any);
      const int tile = int(block_of_keys) * BN, last = min(tile + BN, any.keys) - 1;
      const int begin = rows_of(p, any, tile).first / BM, end = (rows_of(p, any, last).end + BM - 1) / BM;
      kept.tile = tile, kept.rows = any.rows;
      kept.start = ORDERED ? end - 1 : begin, kept.last = ORDERED ? begin : end - 1;
      kept.first = band.first, kept.end = band.end, kept.keys = band.keys;
      // The block of keys that added to the same slice before this one; -1: none, so its tiles are stored, not added.
      // Without slices: this block itself, so that every tile is added to zeros.
      const bool others = ORDERED && !kept.round && of_head >= sums.slices;
      kept.previous_block = !sums.slices ? int(block_of_keys)
                    : others     ? int(sums.block(of_head - sums.slices, rounds - 1, rounds))
                    : kept.round ? int(sums.block(of_head, kept.round - 1, rounds)) : -1;
    }
    __syncthreads();
    const bool seen = (kept.last - kept.start) * STEP >= 0;  // by some query; otherwise dK and dV are 0
    if (seen) {
      const int tile = kept.tile;
      // Trailing keys that no query sees may be uninitialized: they are not read.
      const int rows = Band::make(p, any).of(any.rows - 1).end - tile;
      const T *const k = any.k + i64(tile) * p.k_strides.row, *const v = any.v + i64(tile) * p.v_strides.row;
      Keys_::template GlobalLoader<THREADS>::issue(threadIdx.x, keys, k, int(p.k_strides.row), rows, int(p.d));
      Values::template GlobalLoader<THREADS>::issue(threadIdx.x, values, v, int(p.v_strides.row), rows, int(p.d_v));
      issue_loads(kept.start, kept.kv_head * p.group, 0);
    }
    commit_copies();
    // SPECIALIZED: one accumulator per warp, sum_k, holds dK or dV.
    float sum_k[OWNED][D / SHARING / 8][4] = {}, sum_v[OWNED][DV / SHARING / 8][4] = {};

    int block = kept.start;
    u32 shared = seen ? 0 : p.group, stage = 0;  // index within the GQA group
    // 3. main loop: query tiles of every head of the group
    while (shared < p.group) {
      const bool last_block = block == kept.last;
      const int following = last_block ? kept.start : block + STEP;
      const u32 number = kept.kv_head * p.group + shared, following_shared = shared + last_block;
      const u32 queries = stages + stage * STAGE, pulls = queries + Queries::BYTES;
      await_copies<0>();
      __syncthreads();
      if (polls()) kept.others = sums.predecessor();  // early, so that wait_for_predecessor rarely has to poll
      if (STAGES == 2) {
        if (following_shared < p.group) issue_loads(following, number + last_block, stage ^ 1);
        commit_copies();
      }
      const int first = block * BM, tile = kept.tile, past = min(first + BM, kept.rows);
      const Head<T, T, float> head(p, kept.batch, number);  // its masks and slope
      // Skip a query tile that the block mask drops; but not as its first visitor, which must store the tile of dQ
      if ((CHANGES & BLOCK_MASK) && kept.previous_block >= visitors_of(block).first &&
          !any_counts(p, head, first, past, tile, min(tile + BN, head.keys))) {
        if (STAGES == 1 && following_shared < p.group) issue_loads(following, number + last_block, 0);
        if (STAGES == 1) commit_copies();
        wait_for_predecessor(shared, block);
        block = following, shared = following_shared, stage = STAGES == 2 ? stage ^ 1 : 0;
        continue;
      }
      const float slope = CHANGES & SLOPE ? slope_of(p, head) : 0.0f;
      const u32 thread = opaque(threadIdx.x);
      const int warp = thread / 32, lane = thread % 32, role = warp % 2;
      // The warp's first key, and its part of the queries (SPLIT > 1: also of the columns)
      const int own = SPECIALIZED == 2 ? warp / (2 * PARTS) * 32 * BLOCKS + role * 16 * BLOCKS
                                       : warp / SPLIT * 16 * BLOCKS;
      const int half = SPECIALIZED == 2 ? warp / 2 % PARTS : warp % SPLIT;

#pragma unroll 1
      for (int part = 0; part < (SPLIT == 1 ? PARTS : 1); ++part) {
        const int sub = (SPLIT == 1 ? part : half) * SUB;

        // 3a. S^T = K Q^T (s) and dP^T = V dO^T (ds)
        float s[BLOCKS][SUB / 8][4] = {}, ds[BLOCKS][SUB / 8][4] = {};
        if constexpr (SPECIALIZED == 2) {
          float both[2 * BLOCKS][SUB / 8][4] = {};  // first half: own keys; second half: the partner's keys
          const u32 kept_rows = (role ? values : keys) + Keys_::template lane_address<true>(lane) + own * Keys_::PITCH;
          const u32 given_rows = kept_rows + (role ? -1 : 1) * (16 * BLOCKS * Keys_::PITCH);
          const u32 columns = (role ? pulls : queries) + Queries::template lane_address<false>(lane) +
              sub * Queries::PITCH;
          multiply<T, D / 16, false>(
              both,
              [&](u32* a, int b, int step) {
                load_matrices<false>(a, Keys_::at(b < BLOCKS ? kept_rows : given_rows, b % BLOCKS, step));
              },
              [&](int n, int step) { return Queries::at(columns, n, step); });
          constexpr u32 SWAPPED = BLOCKS * SUB * 64;  // bytes per warp
          const u32 to = swapped + warp * SWAPPED + lane * 16, from = swapped + (warp ^ 1) * SWAPPED + lane * 16;
#pragma unroll
          for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
            for (int n = 0; n < SUB / 8; ++n) {
              const float(&x)[4] = both[BLOCKS + b][n];
              store_shared(to + (b * (SUB / 8) + n) * 512, Vec<float, 4>{{x[0], x[1], x[2], x[3]}});
            }
          barrier_sync(1 + warp / 2, 64);
#pragma unroll
          for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
            for (int n = 0; n < SUB / 8; ++n) {
              Vec<float, 4> got;
              load_shared(got, from + (b * (SUB / 8) + n) * 512);
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                s[b][n][e] = role ? got.at[e] : both[b][n][e];
                ds[b][n][e] = role ? both[b][n][e] : got.at[e];
              }
            }
        } else {
          const u32 at_keys = keys + Keys_::template lane_address<true>(lane) + own * Keys_::PITCH;
          const u32 at_queries = queries + Queries::template lane_address<false>(lane) + sub * Queries::PITCH;
          multiply<T, D / 16, false>(
              s, [&](u32* a, int b, int step) { load_matrices<false>(a, Keys_::at(at_keys, b, step)); },
              [&](int n, int step) { return Queries::at(at_queries, n, step); });
          const u32 at_values = values + Values::template lane_address<true>(lane) + own * Values::PITCH;
          const u32 at_pulls = pulls + Pulls::template lane_address<false>(lane) + sub * Pulls::PITCH;
          multiply<T, DV / 16, false>(
              ds, [&](u32* a, int b, int step) { load_matrices<false>(a, Values::at(at_values, b, step)); },
              [&](int n, int step) { return Pulls::at(at_pulls, n, step); });
        }

        // 3b. P (weight), dS (pull): exp(S - lse), P (dP - delta). Queries past the last row are zeros, and so are
        // their lse and delta: dS is 0, and P is multiplied by a dO of 0
        const Band band{kept.first, kept.end, kept.keys};
        const bool whole = band.of(past - 1).first <= tile && band.of(first).end >= tile + BN;
        const float by = CHANGES ? kept.by : float(p.scale), cap = CHANGES & CAP ? kept.cap : 1.0f;
        const bool mixed = CHANGES & BLOCK_MASK && !all_count(p, head, first, past, tile, min(tile + BN, head.keys));
        u32 shown[BLOCKS];  // by a bool mask
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b)
          if constexpr ((CHANGES & BITS) != 0)
            shown[b] = tile_bits(p, head, first + sub, tile + own + 16 * b, lane) >> (first + sub) % 64 / 2;
#pragma unroll
        for (int n = 0; n < SUB / 8; ++n) {
          Vec<float, 4> of_rows;  // (shift, delta) of two queries
          load_shared(of_rows, stats + stage * STATS + (sub + 8 * n + lane % 4 * 2) * 8);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int i = first + sub + 8 * n + lane % 4 * 2 + e;
            const float shift = of_rows.at[2 * e + SHIFT], delta = of_rows.at[2 * e + DELTA];
            const float distance = CHANGES & SLOPE ? float(tile + own + lane / 4 - (i + head.offset)) : 0.0f;
            const Keys seen = (CHANGES & MASK) || !whole ? band.of(i) : Keys{};
#pragma unroll
            for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
              for (int r = 0; r < 2; ++r) {
                const int j = tile + own + 16 * b + lane / 4 + 8 * r;
                float &weight = s[b][n][2 * r + e], &pull = ds[b][n][2 * r + e];
                const bool seen_here = j >= seen.first && j < seen.end;
                float part = weight;  // tanh of softcap
                if constexpr (CHANGES == 0) {
                  weight = fmaf(weight, by * math::LOG2E, -shift * math::LOG2E);
                } else {
                  if (CHANGES & CAP) part = math::tanh_from_log2(weight * by);
                  weight = fmaf(part, CHANGES & CAP ? cap : by, -shift);
                  if (CHANGES & SLOPE) weight = fmaf(slope, distance + float(16 * b + 8 * r), weight);
                  if (CHANGES & BITS && !(shown[b] >> (4 * n + 2 * e + r) & 1)) weight = rows::minus_infinity<float>();
                  if ((CHANGES & MASK) && seen_here && i < kept.rows) weight = masked<T>(p, head, weight, i, j);
                  if ((CHANGES & BLOCK_MASK) && mixed && !in_a_block(p, head, i, j))
                    weight = rows::minus_infinity<float>();
                  weight *= math::LOG2E;
                }
                weight = fminf(math::ex2_ftz(weight), 1.0f);  // lse is rounded: P could exceed 1 by any factor
                if (!whole && !seen_here) weight = 0.0f;
                pull = weight * (pull - delta);
                if (CHANGES & CAP) pull *= fmaf(-part, part, 1.0f);
              }
          }
        }

        // 3c. dS^T (SPLIT > 1: and P^T) to shared memory, one row per key
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
        if (SPLIT > 1 && !SPECIALIZED) barrier_sync(1 + warp / SPLIT, 32 * SPLIT);

        // 3d. dV += P^T dO, dK += dS^T Q
        if constexpr (!SPECIALIZED) {
          constexpr int STEPS = (SPLIT == 1 ? SUB : BM) / 16;
          const u32 scores = Scores::template lane_address<true>(lane) + own * Scores::PITCH,
                    skipped = SPLIT == 1 ? sub : 0;
          const u32 query_rows = queries + Queries::template lane_address<true>(lane) + skipped * Queries::PITCH;
          const u32 pull_rows = pulls + Pulls::template lane_address<true>(lane) + skipped * Pulls::PITCH;
          multiply<T, STEPS, true>(
              sum_v,
              [&](u32(&a)[4], int b, int k) {
                if constexpr (SPLIT == 1) pack_weights<T>(a, s[b], k);
                else load_matrices<false>(a, weighted + Scores::at(scores, b, k));
              },
              [&](int c, int k) { return Pulls::at(pull_rows, k, half * (DV / SPLIT / 16) + c); });
          multiply<T, STEPS, true>(
              sum_k,
              [&](u32(&a)[4], int b, int k) {
                if constexpr (SPLIT == 1) pack_weights<T>(a, ds[b], k);
                else load_matrices<false>(a, pulled + Scores::at(scores, b, k));
              },
              [&](int c, int k) { return Queries::at(query_rows, k, half * (D / SPLIT / 16) + c); });
        }
      }
      wait_for_predecessor(shared, block);
      __syncthreads();
      if constexpr (SPECIALIZED) {
        // SPECIALIZED: dV += P^T dO in half of the warps, dK += dS^T Q in the others
        const u32 own_thread = opaque(threadIdx.x), lane = own_thread % 32, place = own_thread / 32 % (WARPS / 2);
        const bool of_keys = own_thread / 32 >= WARPS / 2;
        const int column = place % SHARING * (D / SHARING / 16);
        const u32 owned = place / SHARING * 16 * OWNED;
        const u32 scores = (of_keys ? pulled : weighted) + Scores::template lane_address<true>(lane) +
            owned * Scores::PITCH;
        const u32 rows = (of_keys ? queries : pulls) + Queries::template lane_address<true>(lane);
        multiply<T, BM / 16, true>(
            sum_k, [&](u32* a, int b, int k) { load_matrices<false>(a, Scores::at(scores, b, k)); },
            [&](int c, int k) { return Queries::at(rows, k, column + c); });
        if (STAGES == 1) __syncthreads();
      }
      if (STAGES == 1 && following_shared < p.group) issue_loads(following, number + last_block, 0);
      if (STAGES == 1) commit_copies();

      // 3e. dQ += dS K, by f32 red.add
      // A warp has 32 queries by D / ACROSS columns; a tile's first visitor stores instead of adding.
      constexpr int ACROSS = WARPS / (BM / 32), COLUMNS = D / ACROSS;
      static_assert(COLUMNS % 16 == 0);
      const int down = warp / ACROSS * 2, across = warp % ACROSS * (COLUMNS / 16);
      const u32 at_scores = pulled + Scores::template lane_address<false>(lane),
                key_rows = keys + Keys_::template lane_address<true>(lane);
      float sum_q[2][COLUMNS / 8][4] = {};
      multiply<T, BN / 16, true>(
          sum_q, [&](u32* a, int b, int k) { load_matrices<true>(a, Scores::at(at_scores, k, down + b)); },
          [&](int c, int k) { return Keys_::at(key_rows, k, across + c); });
      const u64 tile_of_sums = sums.tile<BM>(p, kept.batch, number, block);
      float* const at = sums.at + kept.slice * sums.slice_stride + tile_of_sums * (BM * D) + thread * THREAD_STEP;
      const bool none_earlier = kept.previous_block < visitors_of(block).first;
#pragma unroll
      for (int b = 0; b < 2; ++b)
#pragma unroll
        for (int c = 0; c < COLUMNS / 8; ++c)
          sums_to<THREADS>(at + (b * (COLUMNS / 8) + c) * (4 * THREADS), sum_q[b][c], !none_earlier);
      block = following, shared = following_shared, stage = STAGES == 2 ? stage ^ 1 : 0;
    }
    await_copies<0>();

    // 4. epilogue: store dK and dV
    const KeyGradients<T, float> to(p, g, kept.batch, kept.kv_head);
    const u32 thread = opaque(threadIdx.x);
    const int warp = thread / 32, lane = thread % 32, place = SPECIALIZED ? warp % (WARPS / 2) : warp,
              total = kept.keys;
    const int first_row = kept.tile + place / SHARING * 16 * OWNED + lane / 4, part = place % SHARING;
#pragma unroll
    for (int b = 0; b < OWNED; ++b)
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
        T *const line_k = to.grad_k + row * g.grad_k_strides.row,
                 *const line_v = to.grad_v + row * g.grad_v_strides.row;
        if (!SPECIALIZED || warp >= WARPS / 2)
          put(line_k, p.d, part * (D / SHARING), sum_k[b], D / SHARING / 8, float(p.scale));
        if (!SPECIALIZED) put(line_v, p.d_v, part * (DV / SHARING), sum_v[b], DV / SHARING / 8, 1.0f);
        else if (warp < WARPS / 2) put(line_v, p.d_v, part * (DV / SHARING), sum_k[b], DV / SHARING / 8, 1.0f);
      }
    __syncthreads();
    if (threadIdx.x == 0) kept.round += 1;
  }
  if (polls()) sums.wait_for_predecessor(~0u, 0, ~0u);
}

// dQ = scale * (slices added in order). One CTA per query tile; the accumulators keep the register layout of step 3e.
template <class T, int D, int BM, int BN, int WARPS>
__global__ void __launch_bounds__(WARPS * 32)
attention_backward_queries(Problem<T, T, float> p, Gradients<T, float> g, QuerySums sums, u32 tiles) {
  constexpr int THREADS = WARPS * 32, ACROSS = WARPS / (BM / 32), COLUMNS = D / ACROSS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Place<Problem<T, T, float>> place(p, blockIdx.x / tiles);
  const Head<T, T, float> head(p, place.batch, place.head);
  const QueryGradients<T, float> to(p, g, place.batch, place.head);
  const float scale = float(p.scale);
  const Band band = Band::make(p, head);
  // one iteration, unless a sequence exceeds max_seqlen_q
  for (int block = blockIdx.x % tiles; block * BM < head.rows; block += tiles) {
    const float* from = sums.at + sums.tile<BM>(p, place.batch, place.head, block) * (BM * D) +
        threadIdx.x * THREAD_STEP;
    const Visitors visitors = Visitors::of<BM, BN>(band, head.rows, block);
#pragma unroll
    for (int b = 0; b < 2; ++b)
#pragma unroll
      for (int c = 0; c < COLUMNS / 8; ++c) {
        float sum[4] = {};
        for (u32 slice = 0; slice < max(sums.slices, 1u); ++slice) {
          if (!sums.holds(slice, visitors, sums.rounds<BN>(band.keys))) continue;
          const auto four = sums_at<THREADS>(
              from + slice * sums.slice_stride + (b * (COLUMNS / 8) + c) * (4 * THREADS));
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[e] += four.at[e];
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = block * BM + warp / ACROSS * 32 + b * 16 + lane / 4 + 8 * r;
          const u32 column = warp % ACROSS * COLUMNS + c * 8 + lane % 4 * 2;
          const u32 pair = round_pair(sum[2 * r] * scale, sum[2 * r + 1] * scale, T{});
          if (row < head.rows && column < p.d)
            *reinterpret_cast<u32*>(to.grad_q + row * g.grad_q_strides.row + column) = pair;
        }
      }
  }
}
