// out = softmax(change(scale q k^T)) v without tensor cores: any type, head dim and feature; lse on request.
//
// Tiling:    one CTA per 32 queries of one head and 32 COLUMNS columns; k_blocks of 32 keys, invisible ones skipped.
// Threads:   8 warps of 4 queries; one key's scores per lane, then COLUMNS columns of O per lane. Row maximum and sum
//            (online softmax) are the same in all lanes.
// Shared:    32 x 32 of K or V, 32 columns of Q, P: 12 to 25 KB.
// Bound:     instruction issue: two shared loads per four FMAs.
#include "attention/mask.cuh"
#include "attention/plain_scores.cuh"
#include "math/exp.cuh"
#include "math/log.cuh"
#include "rows/group.cuh"

using namespace attention;

template <class T, class Out, class C, int COLUMNS>
__global__ void __launch_bounds__(256, (COLUMNS > 4 ? 1 : 2))
    attention_simt(Problem<T, Out, C> p, u32 tiles, u32 chunks) {
  constexpr int ROWS = PlainScores<C>::ROWS, WARPS = PlainScores<C>::WARPS, TILE = PlainScores<C>::TILE, KEYS = TILE,
                CHUNK = 32 * COLUMNS;
  __shared__ PlainScores<C> scores;
  __shared__ Vec<C, ROWS> weights[WARPS][KEYS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 flat = blockIdx.x / chunks, first_column = (blockIdx.x - flat * chunks) * CHUNK;
  const Place<Problem<T, Out, C>> place(p, flat / tiles);
  const Head<T, Out, C> head(p, place.batch, place.head);
  const C slope = slope_of(p, head), sink = sink_of<T, C>(p, head), scale = C(p.scale);

  const Lines<T> q = {head.q, p.q_strides.row, head.rows, int(p.d)};

  // one iteration, unless a sequence exceeds max_seqlen_q
  for (int tile = flat % tiles * TILE; u32(tile) < u32(head.rows); tile += tiles * TILE) {
    const int row = tile + warp * ROWS, last = min(tile + TILE, head.rows);
    const int begin = keys_of(p, head, tile).first / KEYS * KEYS, end = keys_of(p, head, last - 1).end;
    // Keys past the last one that the tile sees may be uninitialized: they are not read.
    const Lines<T> k = {head.k, p.k_strides.row, end, int(p.d)}, v = {head.v, p.v_strides.row, end, int(p.d_v)};
    C top[ROWS], sum[ROWS] = {}, acc[ROWS][COLUMNS] = {};
    for (int r = 0; r < ROWS; ++r) top[r] = rows::minus_infinity<C>();

    for (int first = begin; first < end; first += KEYS) {
      if (!any_counts(p, head, tile, last, first, min(first + KEYS, head.keys))) continue;

      // 1. S: the lane's key with the warp's queries
      C score[ROWS] = {};
      scores.multiply(score, q, tile, k, first);

      // 2. online softmax
      const int key = first + lane;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const Keys seen = keys_of(p, head, row + r);
        const bool counts = row + r < head.rows && key >= seen.first && key < seen.end;
        score[r] = counts ? changed<T, C>(p, head, score[r] * scale, row + r, key, slope) : rows::minus_infinity<C>();
        const C highest = rows::group_reduce<32>(score[r], [](C a, C b) { return a > b || a != a ? a : b; });
        const C next = top[r] > highest || top[r] != top[r] ? top[r] : highest,
                base = rows::ShiftedSum<C, 24>::shift(next);
        const C weight = math::exp<24>(score[r] - base), shrink = math::exp<24>(top[r] - base);
        sum[r] = sum[r] * shrink + rows::sum<32>(weight);
        top[r] = next;
        weights[warp][lane].at[r] = weight;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) acc[r][c] *= shrink;
      }
      __syncwarp();

      // 3. O += P V: the lane's columns
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        const int column = first_column + c * 32 + lane;
        __syncthreads();
        for (int i = warp; i < 32; i += WARPS) scores.staged[i][lane] = v.template at<C>(first + i, column);
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < KEYS; ++i) {
          const C x = scores.staged[i][lane];
          const Vec<C, ROWS> w = weights[warp][i];
#pragma unroll
          for (int r = 0; r < ROWS; ++r) acc[r][c] += w.at[r] * x;
        }
      }
    }

    // 4. epilogue: sink, 1 / l, store O and lse
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (row + r >= head.rows) break;
      const C next = top[r] > sink || top[r] != top[r] ? top[r] : sink, base = rows::ShiftedSum<C, 24>::shift(next);
      const C shrink = math::exp<24>(top[r] - base), whole = sum[r] * shrink + math::exp<24>(sink - base);
      const C factor = whole == C(0) ? C(0) : shrink / whole;
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        const u32 column = first_column + c * 32 + lane;
        if (column < p.d_v) head.out[(row + r) * p.out_strides.row + column] = convert<Out>(acc[r][c] * factor);
      }
      if (head.lse && lane == 0 && first_column == 0)
        head.lse[(row + r) * p.lse_strides.row] = whole == C(0) ? rows::minus_infinity<C>()
                                                                : next + math::log<24>(whole);
    }
  }
}
