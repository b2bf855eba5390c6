// out = softmax(change(scale q k^T)) v on mma.sync for few keys, with a two-pass softmax: all scores of the CTA's
// queries stay in shared memory; f16, bf16; lse on request.
//
// Tiling:    one CTA per 16 BLOCKS queries of one head; k_blocks of 64 keys; those that no query sees are skipped. Head
//            dims below D and DV are filled with zeros.
// Threads:   4 warps split the keys of a k_block (S), then the rows (softmax), then the columns (O).
// Pipeline:  cp.async, two stages, first all K, then all V; one barrier per k_block.
// Shared:    Q, two stages, and `pitch` f32 per query for S, overwritten by P. pitch = 8 (mod 32) keeps the accumulator
//            pairs of mma free of bank conflicts.
// Grid:      as flash.cu.   Bound: shared memory; few CTAs: latency of one k_block after the other.
#include "attention/forward_products.cuh"
#include "attention/mask.cuh"

using namespace attention;

template <class T, class Out, int D, int DV, int BLOCKS, bool CHANGED>
__global__ void __launch_bounds__(128, 2)
    attention_tc(Problem<T, Out, float> p, u32 tiles, u32 section, u32 heads, u32 pitch) {
  constexpr int BN = 64, WARPS = 4, ROWS = 16 * BLOCKS, KEYS = BN / WARPS, COLUMNS = DV / WARPS;
  using QueryPanels = Panels<ROWS, D>;
  using KeyPanels = Panels<BN, D>;
  using ValuePanels = Panels<BN, DV>;
  constexpr int STAGE = KeyPanels::BYTES > ValuePanels::BYTES ? KeyPanels::BYTES : ValuePanels::BYTES;
  extern __shared__ __align__(128) u8 memory[];
  __shared__ float factors[ROWS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 queries = shared_address(memory), stages = queries + QueryPanels::BYTES, scores = stages + 2 * STAGE;

  // 1. tile scheduler: queries, head, visible k_blocks
  const TilePlace<ROWS, Problem<T, Out, float>> at(p, blockIdx.x, tiles, section, heads);
  const Head<T, Out, float> head(p, at.batch, at.head);
  const int tile = at.tile * ROWS, last_row = min(tile + ROWS, head.rows) - 1;
  if (tile < 0 || tile >= head.rows) return;
  const Band band = Band::make(p, head);
  const int past = band.of(last_row).end, end = (past + BN - 1) / BN;  // later keys may be uninitialized
  const auto up_from = [&](int block) {
    if constexpr (CHANGED)
      while (block < end && !any_counts(p, head, tile, last_row + 1, block * BN, min(block * BN + BN, head.keys)))
        ++block;
    return block;
  };
  const int first = up_from(band.of(tile).first / BN);

  const int q_step = int(p.q_strides.row), k_step = int(p.k_strides.row), v_step = int(p.v_strides.row);
  // 2. loaders: global -> shared memory (cp.async)
  const auto issue_keys = [&](int stage, int block) {
    const u32 to = stages + stage % 2 * STAGE;
    KeyPanels::template GlobalLoader<128>::issue(
        threadIdx.x, to, head.k + i64(block * BN) * k_step, k_step, past - block * BN, p.d);
  };
  const auto issue_values = [&](int stage, int block) {
    const u32 to = stages + stage % 2 * STAGE;
    ValuePanels::template GlobalLoader<128>::issue(
        threadIdx.x, to, head.v + i64(block * BN) * v_step, v_step, past - block * BN, p.d_v);
  };

  // 3. S = Q K^T, masked, to shared memory
  if (first < end) {
    QueryPanels::template GlobalLoader<128>::issue(
        threadIdx.x, queries, head.q + i64(tile) * q_step, q_step, head.rows - tile, p.d);
    issue_keys(0, first);
    commit_copies();
  }
  const float scale = float(p.scale), slope = CHANGED ? slope_of(p, head) : 0.0f;
  const u32 own_pair = scores + (lane / 4 * pitch + lane % 4 * 2) * 4;  // the lane's place in mma's C and A fragments
  int count = 0;                                                        // k_blocks that were not skipped
  for (int block = first, following; block < end; block = following, ++count) {
    following = up_from(block + 1);
    await_copies<0>();
    __syncthreads();
    if (following < end) issue_keys(count + 1, following);
    else issue_values(count + 1, first);
    commit_copies();

    float s[BLOCKS][KEYS / 8][4] = {};
    const u32 at_keys = stages + count % 2 * STAGE + warp * KEYS * KeyPanels::PITCH +
        KeyPanels::template lane_address<false>(lane);
    add_scores<T, D, QueryPanels, KeyPanels>(
        s, HeldQueries<0, BLOCKS>{}, queries + QueryPanels::template lane_address<true>(lane), at_keys);
#pragma unroll
    for (int r = 0; r < 2 * BLOCKS; ++r) {
      const int i = tile + lane / 4 + 8 * r;
      const Keys seen = band.of(i);
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
        Vec<float, 2> pair;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int j = block * BN + warp * KEYS + 8 * n + lane % 4 * 2 + e;
          const bool counts = j >= seen.first && j < seen.end && i < head.rows;
          float score = s[r / 2][n][r % 2 * 2 + e] * scale;
          if constexpr (CHANGED)
            if (counts) score = changed<T>(p, head, score, i, j, slope);
          pair.at[e] = counts ? score : rows::minus_infinity<float>();
        }
        store_shared(own_pair + (8 * r * pitch + count * BN + warp * KEYS + 8 * n) * 4, pair);
      }
    }
  }
  __syncthreads();

  // 4. softmax: S becomes P in place
  // A warp handles one row at a time.
  const float sink = sink_of<T, float>(p, head);
  for (int row = warp; row < ROWS; row += WARPS) {
    const u32 line = scores + (row * pitch + lane * 2) * 4;
    Vec<float, 2> pair;
    OnlineSoftmax<1> softmax;
    float& top = softmax.base[0];
    for (int i = 0; i < count; ++i) {
      load_shared(pair, line + i * BN * 4);
      top = fmaxf(top, fmaxf(pair.at[0], pair.at[1]));
    }
    top = rows::group_reduce<32>(top, [](float a, float b) { return fmaxf(a, b); });
    const float base = softmax.shift(top);
    for (int i = 0; i < count; ++i) {
      load_shared(pair, line + i * BN * 4);
#pragma unroll
      for (int e = 0; e < 2; ++e) pair.at[e] = math::ex2_ftz((pair.at[e] - base) * math::LOG2E);
      softmax.sum[0] += pair.at[0] + pair.at[1];
      store_shared(line + i * BN * 4, pair);
    }
    softmax.sum[0] = rows::sum<32>(softmax.sum[0]);
    float factor, lse;
    softmax.finish(0, math::LOG2E, sink, factor, lse);
    if (lane) continue;
    factors[row] = factor;
    if (head.lse && tile + row < head.rows) head.lse[(tile + row) * p.lse_strides.row] = lse;
  }

  // 5. O = P V: the warp's columns of all rows
  float acc[BLOCKS][COLUMNS / 8][4] = {};
  const u32 own_columns = ValuePanels::at(values_lane_address<T, ValuePanels>(lane), 0, warp * (COLUMNS / 16));
  int stage = 0;
  for (int block = first, following; block < end; block = following, ++stage) {
    following = up_from(block + 1);
    await_copies<0>();
    __syncthreads();
    if (following < end) issue_values(count + stage + 1, following);
    commit_copies();
    const auto weight = [&](u32 (&a)[4], int b, int k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        Vec<float, 2> pair;
        load_shared(pair, own_pair + ((16 * b + i % 2 * 8) * pitch + stage * BN + 16 * k + i / 2 * 8) * 4);
        a[i] = round_pair(pair.at[0], pair.at[1], T{});
      }
    };
    add_values<T, BN, ValuePanels>(acc, weight, stages + (count + stage) % 2 * STAGE + own_columns);
  }
  if (first >= end) __syncthreads();  // otherwise a barrier of step 5 orders `factors` before its use

  // 6. epilogue: scale rows, store O
#pragma unroll
  for (int r = 0; r < 2 * BLOCKS; ++r) {
    const int row = lane / 4 + 8 * r;
#pragma unroll
    for (int c = 0; c < COLUMNS / 8; ++c) {
      const u32 column = warp * COLUMNS + 8 * c + lane % 4 * 2;
      const float x = acc[r / 2][c][r % 2 * 2] * factors[row], y = acc[r / 2][c][r % 2 * 2 + 1] * factors[row];
      if (tile + row < head.rows && column < p.d_v)
        *reinterpret_cast<Vec<Out, 2>*>(head.out + (tile + row) * p.out_strides.row + column) = {
            convert<Out>(x), convert<Out>(y)};
    }
  }
}
