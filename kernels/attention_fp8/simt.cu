// out = softmax(change(scale q k^T)) v of e4m3 operands without tensor cores, in f32, on every arch; lse on request.
//
// Tiling:    one CTA per 32 queries of one head and 32 COLUMNS columns; k_blocks of 32 keys, invisible ones skipped.
// Threads:   8 warps of 4 queries; one key's scores per lane, then COLUMNS columns of O per lane. Row maximum and sum
//            (online softmax) are the same in all lanes.
// Scales:    q's and k's enter the scores' scale, v's the result's; each is a number times an f32 per head.
// Shared:    32 x 32 of K or V, 32 columns of Q, P: 12 KB.
// Bound:     instruction issue.
#include "attention/mask.cuh"
#include "attention/plain_scores.cuh"
#include "attention_fp8/scales.cuh"
#include "math/cast.cuh"
#include "math/exp.cuh"
#include "math/log.cuh"
#include "rows/group.cuh"

using namespace attention;

template <> struct Convert<float, e4m3> {
  static __device__ __forceinline__ float from(e4m3 x) { return math::plain(x); }
};

template <class Out, int COLUMNS>
__global__ void __launch_bounds__(256, 1)
    attention_fp8_simt(Problem<e4m3, Out, float> p, attention_fp8::Scales scales, u32 tiles, u32 chunks) {
  constexpr int ROWS = PlainScores<float>::ROWS, WARPS = PlainScores<float>::WARPS, TILE = PlainScores<float>::TILE;
  constexpr int KEYS = TILE, CHUNK = 32 * COLUMNS;
  __shared__ PlainScores<float> scores;
  __shared__ Vec<float, ROWS> weights[WARPS][KEYS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 flat = blockIdx.x / chunks, first_column = (blockIdx.x - flat * chunks) * CHUNK;
  const Place<Problem<e4m3, Out, float>> place(p, flat / tiles);
  const Head<e4m3, Out, float> head(p, place.batch, place.head);
  const float scale = scales.of_scores(p.scale, head.batch, head.head, p.group);
  const Lines<e4m3> q = {head.q, p.q_strides.row, head.rows, int(p.d)};

  // one iteration, unless a sequence exceeds max_seqlen_q
  for (int tile = flat % tiles * TILE; u32(tile) < u32(head.rows); tile += tiles * TILE) {
    const int row = tile + warp * ROWS, last = min(tile + TILE, head.rows);
    const int begin = keys_of(p, head, tile).first / KEYS * KEYS, end = keys_of(p, head, last - 1).end;
    // Keys past the last one that the tile sees may be uninitialized: they are not read.
    const Lines<e4m3> k = {head.k, p.k_strides.row, end, int(p.d)}, v = {head.v, p.v_strides.row, end, int(p.d_v)};
    float top[ROWS], sum[ROWS] = {}, acc[ROWS][COLUMNS] = {};
    for (int r = 0; r < ROWS; ++r) top[r] = rows::minus_infinity<float>();

    for (int first = begin; first < end; first += KEYS) {
      // 1. S: the lane's key with the warp's queries
      float score[ROWS] = {};
      scores.multiply(score, q, tile, k, first);

      // 2. online softmax
      const int key = first + lane;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const Keys seen = keys_of(p, head, row + r);
        const bool counts = row + r < head.rows && key >= seen.first && key < seen.end;
        float changed = score[r] * scale;
        if (p.capped) changed = float(p.softcap) * math::tanh<24>(changed / float(p.softcap));
        score[r] = counts ? changed : rows::minus_infinity<float>();
        const float highest =
            rows::group_reduce<32>(score[r], [](float a, float b) { return a > b || a != a ? a : b; });
        const float next = top[r] > highest || top[r] != top[r] ? top[r] : highest,
                    base = rows::ShiftedSum<float, 24>::shift(next);
        const float weight = math::exp<24>(score[r] - base), shrink = math::exp<24>(top[r] - base);
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
        for (int i = warp; i < 32; i += WARPS) scores.staged[i][lane] = v.template at<float>(first + i, column);
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < KEYS; ++i) {
          const float x = scores.staged[i][lane];
          const Vec<float, ROWS> w = weights[warp][i];
#pragma unroll
          for (int r = 0; r < ROWS; ++r) acc[r][c] += w.at[r] * x;
        }
      }
    }

    // 4. epilogue: v's scale / l, store O and lse
    const float of_values = scales.of_values(head.batch, head.head, p.group);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (row + r >= head.rows) break;
      const float factor = sum[r] == 0.0f ? 0.0f : 1.0f / sum[r];
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        const u32 column = first_column + c * 32 + lane;
        if (column < p.d_v)
          head.out[(row + r) * p.out_strides.row + column] = convert<Out>(acc[r][c] * factor * of_values);
      }
      if (head.lse && lane == 0 && first_column == 0)
        head.lse[(row + r) * p.lse_strides.row] = sum[r] == 0.0f ? rows::minus_infinity<float>()
                                                                  : top[r] + math::log<24>(sum[r]);
    }
  }
}
