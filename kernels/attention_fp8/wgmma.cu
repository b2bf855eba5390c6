// out = softmax(change(scale q k^T)) v of e4m3 operands, by 8-bit wgmma (Hopper); lse on request. FlashAttention-3 (J.
// Shah et al., arXiv:2407.08608, section 3.3): V is transposed in shared memory, P is e4m3 in registers.
//
// Tiling:    one CTA per 128 queries of one head, persistent; k_blocks of BN keys from the last visible one down. Head
//            dims are filled up to D and DV with zeros by TMA.
// Threads:   a producer warpgroup, of which one thread issues TMA and all transpose values (transpose.cuh), and two
//            consumer warpgroups of 64 queries: S = Q K^T, online softmax, O += P V. S of the next k_block is issued
//            before P V of this one.
// Pipeline:  STAGES slots each of K, V and V^T with full and empty mbarriers. A consumer frees K after S, V^T after O.
// Scales:    q's and k's enter the scores' scale, v's the result's; each is a number times an f32 per head.
// Grid:      a CTA takes the next tile that no CTA has taken (`counter`), or every gridDim.x-th.
// Shared:    Q, STAGES x (K, V, V^T) in the 128-byte swizzle, barriers, two tile numbers.
// Bound:     exponentials and tensor cores.
#include "attention/changes.cuh"
#include "attention/head_boxes.cuh"
#include "attention_fp8/scales.cuh"
#include "attention_fp8/transpose.cuh"
#include "attention_fp8/weights.cuh"

using namespace attention;

constexpr int BM = 128, CONSUMERS = 2;
constexpr u32 BARRIER_CONSUMER = 1;  // named barriers: that and the consumer's index, of its threads

// HeadBoxes of panels of 128 columns of one byte.
struct Operand : HeadBoxes {
  using HeadBoxes::HeadBoxes;
  template <int ROWS, int PANELS> __device__ __forceinline__ void load(
      u32 to, const TensorMap& map, int first, u32 full) const {
    barrier::expect(full, ROWS * PANELS * PANEL_ROW);
#pragma unroll
    for (int x = 0; x < PANELS; ++x)
      tma::load<true, false>(to + x * (ROWS * PANEL_ROW), map, x * 128, row + first, place, full, 0);
  }
};

template <int N> __device__ __forceinline__ void pin_tile(float (&x)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i) warpgroup::pin(x[i]);
}

// One tile: its head, and the k_blocks [begin, end) that hold the keys that some query of the tile sees.
template <class Out, int BN> struct Tile {
  Head<u8, Out, float> head;
  Band band;
  int row, begin, end;  // row: the first of the tile
  __device__ __forceinline__ Tile(const Problem<u8, Out, float>& p, const TilePlace<BM, Problem<u8, Out, float>>& at)
      : head(p, at.batch, at.head), row(at.tile * BM) {
    band = Band::make(p, head);
    const bool exists = row >= 0 && row < head.rows;
    begin = band.of(row).first / BN;
    end = exists ? (band.of(min(row + BM, head.rows) - 1).end + BN - 1) / BN : begin;
    if (!exists) row = head.rows;
  }
};

// Shared memory, as addresses, and the barriers of each slot.
template <int D, int DV, int BN, int STAGES> struct Memory {
  static constexpr int PANELS = (D + 127) / 128, PANELS_V = (DV + 127) / 128;
  static constexpr u32 Q_BYTES = PANELS * BM * PANEL_ROW, K_BYTES = PANELS * BN * PANEL_ROW,
                       V_BYTES = PANELS_V * BN * PANEL_ROW, VT_BYTES = (BN + 127) / 128 * DV * PANEL_ROW;
  u32 queries, keys, raw, values;
  u32 keys_full, keys_empty, raw_full, raw_empty, values_full, values_empty, queries_full, queries_empty;
  u32 tiles_full, tiles_empty, numbers;  // two tile numbers
  __device__ __forceinline__ explicit Memory(u32 first)
      : queries(first), keys(queries + Q_BYTES), raw(keys + STAGES * K_BYTES), values(raw + STAGES * V_BYTES),
        keys_full(values + STAGES * VT_BYTES), keys_empty(keys_full + 8 * STAGES), raw_full(keys_empty + 8 * STAGES),
        raw_empty(raw_full + 8 * STAGES), values_full(raw_empty + 8 * STAGES), values_empty(values_full + 8 * STAGES),
        queries_full(values_empty + 8 * STAGES), queries_empty(queries_full + 8), tiles_full(queries_empty + 8),
        tiles_empty(tiles_full + 16), numbers(tiles_empty + 16) {}
  __device__ __forceinline__ void init() const {
    for (int i = 0; i < STAGES; ++i) {
      barrier::init(keys_full + 8 * i, 1);
      barrier::init(keys_empty + 8 * i, 4 * CONSUMERS);
      barrier::init(raw_full + 8 * i, 1);
      barrier::init(raw_empty + 8 * i, 4);
      barrier::init(values_full + 8 * i, 4);
      barrier::init(values_empty + 8 * i, 4 * CONSUMERS);
    }
    for (int i = 0; i < 2; ++i) {
      barrier::init(tiles_full + 8 * i, 1);
      barrier::init(tiles_empty + 8 * i, 3 + 4 * CONSUMERS);  // all warps but the one that takes numbers
    }
    barrier::init(queries_full, 1);
    barrier::init(queries_empty, 4 * CONSUMERS);
    barrier::fence_init();
  }
};

template <class Out, int D, int DV, int BN, int STAGES, int CHANGES>
__global__ void __launch_bounds__(384, 1)
    attention_fp8_wgmma(const __grid_constant__ Problem<u8, Out, float> p, const __grid_constant__ TensorMap q_map,
        const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
        const __grid_constant__ attention_fp8::Scales scales, u32 tiles, u32 section, u32 heads, u32 count,
        u32* counter) {
  using Place = TilePlace<BM, Problem<u8, Out, float>>;
  using Work = Tile<Out, BN>;
  using Shared = Memory<D, DV, BN, STAGES>;
  extern __shared__ __align__(1024) u8 memory[];
  const Shared m(shared_address(memory));

  // 1. barriers
  if (threadIdx.x == 0) {
    tma::prefetch(q_map);
    tma::prefetch(k_map);
    tma::prefetch(v_map);
    m.init();
  }
  __syncthreads();
  const u32 group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const u32 thread = threadIdx.x % 128, warp = __shfl_sync(~0u, thread / 32, 0), lane = thread % 32;
  Cursor<STAGES> at_keys, at_values;
  Cursor<1> at_queries;
  Cursor<2> at_numbers;
  const auto release = [&](u32 empty) {
    if (lane == 0) barrier::arrive(empty);
  };
  const auto take_number = [&] {
    barrier::wait(m.tiles_full + 8 * at_numbers.stage, at_numbers.parity);
    const u32 taken = load_shared<u32>(m.numbers + 4 * at_numbers.stage);
    __syncwarp();
    release(m.tiles_empty + 8 * at_numbers.stage);
    at_numbers.next();
    return taken;
  };

  // 2. producer warpgroup: the first thread loads keys and values one k_block ahead of the transposition
  if (group == 0) {
    warpgroup::give_registers<56>();  // 56 + 2 x 224 = 3 x 168, what the CTA has
    const bool lead = threadIdx.x == 0;
    u32 own = blockIdx.x;  // the first warp's next tile
    Cursor<STAGES> at_raw;
#pragma unroll 1
    while (true) {
      u32 number = own;
      if (warp == 0) {
        if (lead) {
          barrier::wait(m.tiles_empty + 8 * at_numbers.stage, at_numbers.parity ^ 1);
          store_shared(m.numbers + 4 * at_numbers.stage, i32(number));
          barrier::arrive(m.tiles_full + 8 * at_numbers.stage);
        }
        __syncwarp();
        at_numbers.next();
      } else {
        number = take_number();
      }
      if (number >= count) return;
      const Place at(p, number, tiles, section, heads);
      const Work work(p, at);
      if (work.begin < work.end) {
        const u32 kv_head = at.head / p.group;
        const int first_query = Extent(p.starts_q, at.batch, p.rows).first,
                  first_key = Extent(p.starts_k, at.batch, p.keys).first;
        const Operand of_queries(p.q_strides, first_query, p.starts_q ? 0 : at.batch, at.head);
        const Operand of_keys(p.k_strides, first_key, p.starts_k ? 0 : at.batch, kv_head);
        const Operand of_values(p.v_strides, first_key, p.starts_k ? 0 : at.batch, kv_head);
        const auto load = [&](int block) {
          if (lead) {
            barrier::wait(m.keys_empty + 8 * at_keys.stage, at_keys.parity ^ 1);
            of_keys.template load<BN, Shared::PANELS>(
                m.keys + at_keys.stage * Shared::K_BYTES, k_map, block * BN, m.keys_full + 8 * at_keys.stage);
            barrier::wait(m.raw_empty + 8 * at_keys.stage, at_keys.parity ^ 1);
            of_values.template load<BN, Shared::PANELS_V>(
                m.raw + at_keys.stage * Shared::V_BYTES, v_map, block * BN, m.raw_full + 8 * at_keys.stage);
          }
          __syncwarp();
          at_keys.next();
        };
        if (lead) {
          barrier::wait(m.queries_empty, at_queries.parity ^ 1);
          of_queries.template load<BM, Shared::PANELS>(m.queries, q_map, work.row, m.queries_full);
        }
        at_queries.next();
        if (warp == 0) load(work.end - 1);
        const int seen = work.band.of(work.head.rows - 1).end;
#pragma unroll 1
        for (int block = work.end - 1; block >= work.begin; --block) {
          if (warp == 0 && block > work.begin) load(block - 1);
          barrier::wait(m.raw_full + 8 * at_raw.stage, at_raw.parity);
          barrier::wait(m.values_empty + 8 * at_values.stage, at_values.parity ^ 1);
          attention_fp8::transpose_values<BN, DV>(m.values + at_values.stage * Shared::VT_BYTES,
              m.raw + at_raw.stage * Shared::V_BYTES, seen - block * BN, thread);
          tma::fence_shared();
          __syncwarp();
          release(m.raw_empty + 8 * at_raw.stage);
          release(m.values_full + 8 * at_values.stage);
          at_raw.next();
          at_values.next();
        }
      }
      if (warp == 0) {
        if (lead) own = counter ? gridDim.x + atomicAdd(counter, 1u) : own + gridDim.x;
        own = __shfl_sync(~0u, own, 0);
      }
    }
  }

  // 3. consumer warpgroups
  warpgroup::take_registers<224>();
  const u32 consumer = group - 1;
  const u64 of_queries = warpgroup::descriptor<false>(m.queries) + consumer * warpgroup::NEXT_64;
  float acc[DV / 8][4], s[1][BN / 8][4];
  u32 weights[BN / 32][4];
  attention_fp8::Weights softmax;

  // S = Q K^T of the next k_block, not waited for
  const auto issue_scores = [&] {
    barrier::wait(m.keys_full + 8 * at_keys.stage, at_keys.parity);
    const u64 of_keys = warpgroup::descriptor<false>(m.keys + at_keys.stage * Shared::K_BYTES);
    pin_tile(s[0]);
    warpgroup::arrive();
#pragma unroll
    for (int k = 0; k < D / 32; ++k)
      wgmma_scores(s[0], of_queries + (k / 4 * (BM * PANEL_ROW >> 4) + k % 4 * warpgroup::NEXT_K<false>),
          of_keys + (k / 4 * (BN * PANEL_ROW >> 4) + k % 4 * warpgroup::NEXT_K<false>), k != 0);
    warpgroup::commit();
  };
  // O += P V, not waited for
  const auto issue_values = [&] {
    barrier::wait(m.values_full + 8 * at_values.stage, at_values.parity);
    const u64 of_values = warpgroup::descriptor<false>(m.values + at_values.stage * Shared::VT_BYTES);
    pin_tile(acc);
    warpgroup::arrive();
#pragma unroll
    for (int k = 0; k < BN / 32; ++k)
      wgmma_values(
          acc, weights[k], of_values + (k / 4 * (DV * PANEL_ROW >> 4) + k % 4 * warpgroup::NEXT_K<false>), 1);
    warpgroup::commit();
  };
  const auto scores_done = [&](const Work& work, int block) {
    pin_tile(s[0]);
    release(m.keys_empty + 8 * at_keys.stage);
    at_keys.next();
    if (block == work.begin) release(m.queries_empty);
  };
  const auto values_done = [&] {
    pin_tile(acc);
    release(m.values_empty + 8 * at_values.stage);
    at_values.next();
  };

  u32 number = take_number();
#pragma unroll 1
  while (number < count) {
    const Work work(p, Place(p, number, tiles, section, heads));
    const float signed_scale = scales.of_scores(p.scale, work.head.batch, work.head.head, p.group);
    // The scale is not 0, so that factor * -inf stays -inf; NaN stays NaN.
    const float scale = signed_scale != signed_scale ? signed_scale : fmaxf(fabsf(signed_scale), 0x1p-149f);
    const Units units = units_of<CHANGES>(p, scale);
    const float factor = units.unit * math::LOG2E;
    const int row = work.row + int(consumer * 64 + warp * 16 + lane / 4);
#pragma unroll
    for (int c = 0; c < DV / 8; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[c][e] = 0.0f;
    softmax = attention_fp8::Weights();
    // Scores become weights; `shrink` are the rows' factors for O, if they are not 1.
    const auto weigh = [&](int block, float (&shrink)[2]) {
      const int own_row = work.row + int(consumer) * 64, own_last = min(own_row + 63, work.head.rows - 1);
      const int whole_begin = (work.band.of(own_last).first + BN - 1) / BN, whole_end = work.band.of(own_row).end / BN;
      const bool edge = block < whole_begin || block >= whole_end;
      change_scores<CHANGES, u8>(
          s, p, work.head, work.band, units, 0.0f, row, block * BN + int(lane % 4 * 2), edge, false);
      const bool moved = softmax.follow(s[0], factor, shrink);
      softmax.weigh(s[0], factor);
      return moved;
    };
    const auto pack = [&] {
      softmax.add(s[0]);
#pragma unroll
      for (int k = 0; k < BN / 32; ++k) attention_fp8::pack_weights(weights[k], s[0], k);
    };

    if (work.begin < work.end) {
      // 3a. queries, negated if the scale is negative, so that the largest product stays the largest score
      barrier::wait(m.queries_full, at_queries.parity);
      at_queries.next();
      if (signed_scale < 0) {
        constexpr u32 OWN = 64 * PANEL_ROW / 4;
#pragma unroll 1
        for (u32 i = thread; i < Shared::PANELS * OWN; i += 128) {
          const u32 word = m.queries + i / OWN * (BM * PANEL_ROW) + (consumer * OWN + i % OWN) * 4;
          store_shared(word, i32(load_shared<u32>(word) ^ 0x80808080u));
        }
        tma::fence_shared();
        barrier_sync(BARRIER_CONSUMER + consumer, 128);
      }
      // 3b. scores of the last k_block
      float shrink[2];
      issue_scores();
      warpgroup::wait<0>();
      scores_done(work, work.end - 1);
      weigh(work.end - 1, shrink);
      pack();
      // 3c. main loop: scores of `block`, values of block + 1
#pragma unroll 1
      for (int block = work.end - 2; block >= work.begin; --block) {
        issue_scores();
        issue_values();
        warpgroup::wait<1>();
        scores_done(work, block);
        const bool moved = weigh(block, shrink);
        warpgroup::wait<0>();
        values_done();
        if (moved) {
#pragma unroll
          for (int c = 0; c < DV / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[c][e] *= shrink[e / 2];
        }
        pack();
      }
      // 3d. values of the first k_block
      issue_values();
      warpgroup::wait<0>();
      values_done();
    }

    // 4. epilogue: row sums, v's scale / l, lse; a thread has four adjacent columns of every 16
    const float of_values = scales.of_values(work.head.batch, work.head.head, p.group);
    softmax.add_up();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float scale, lse;
      softmax.finish(r, factor, scale, lse);
      if (row + 8 * r >= work.head.rows) continue;
      if (work.head.lse && lane % 4 == 0) work.head.lse[(row + 8 * r) * p.lse_strides.row] = lse;
      Out* const to = work.head.out + (row + 8 * r) * p.out_strides.row;
#pragma unroll
      for (int c = 0; c < DV / 16; ++c) {
        const u32 column = 16 * c + lane % 4 * 4;
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = acc[2 * c + i % 2][r * 2 + i / 2] * scale * of_values;
        if (column < p.d_v) *reinterpret_cast<Vec<Out, 4>*>(to + column) = round_to<Out>(x);
      }
    }
    number = take_number();
  }
}
