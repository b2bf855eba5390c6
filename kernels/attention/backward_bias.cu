// grad_mask = dS = P (dO V^T - delta); grad_slopes = sum dS (j - (i + offset)); summed over broadcast axes.
//
// Tiling:    one CTA per 32 queries x 32 keys of the gradient; a broadcast axis is looped over in full, as are the
//            sequences and heads that share an entry, in a fixed order.
// Threads:   8 warps of 4 queries; one key per lane.
// Shared:    9 to 19 KB.   Bound: instruction issue; a slope's CTA computes all scores of one head.
#include "attention/gradients.cuh"
#include "attention/plain_scores.cuh"
#include "rows/group.cuh"

using namespace attention;

// Extents (1: broadcast) and strides of the gradient.
struct Entries {
  i64 steps[4];
  u32 batches, heads, rows, keys, sequences, unused;
};

template <class T, class C, class M, bool SLOPES>
__global__ void __launch_bounds__(256, 1)
attention_grad_bias(Problem<T, T, C> p, Gradients<T, C> g, M* to, Entries of) {
  constexpr int ROWS = PlainScores<C>::ROWS, WARPS = PlainScores<C>::WARPS, TILE = PlainScores<C>::TILE;
  __shared__ PlainScores<C> scores;
  __shared__ C of_warps[WARPS][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // 1. tile scheduler: entry of the gradient
  const u32 across = (of.keys + TILE - 1) / TILE, down = (of.rows + TILE - 1) / TILE,
            entry = blockIdx.x / across / down;
  const int own_row = blockIdx.x / across % down * TILE, own_key = blockIdx.x % across * TILE;
  const u32 own_head = entry % of.heads, own_batch = entry / of.heads;
  const C scale = C(p.scale);
  C acc[ROWS] = {};

  // 2. loop over sequences, heads, tiles that share the entry
  for (u32 b = 0; b < (of.batches == 1 ? of.sequences : 1); ++b)
    for (u32 h = 0; h < (of.heads == 1 ? p.heads : 1); ++h) {
      const u32 batch = own_batch + b, number = own_head + h;
      const Head<T, T, C> head(p, batch, number);
      const QueryGradients<T, C> own(p, g, batch, number);
      const int past = keys_of(p, head, head.rows - 1).end;  // trailing keys that no query sees may be uninitialized
      const Lines<T> q = {head.q, p.q_strides.row, head.rows, int(p.d)}, k = {head.k, p.k_strides.row, past, int(p.d)};
      const Lines<T> v = {head.v, p.v_strides.row, past, int(p.d_v)};
      const Lines<T> grad = {own.grad, g.grad_strides.row, head.rows, int(p.d_v)};
      const C slope = slope_of(p, head);
      for (int row = own_row; row < (of.rows == 1 ? head.rows : min(own_row + TILE, head.rows)); row += TILE) {
        const int last = min(row + TILE, head.rows) - 1;
        const int begin = keys_of(p, head, row).first, end = keys_of(p, head, last).end;
        for (int key = of.keys == 1 ? begin / TILE * TILE : own_key; key < (of.keys == 1 ? end : own_key + TILE);
            key += TILE) {
          const int past = min(key + TILE, end);
          if (past <= max(begin, key) || !any_counts(p, head, row, last + 1, key, past)) continue;
          C score[ROWS] = {}, pull[ROWS] = {};
          // 2a. S and dP
          scores.multiply(score, q, row, k, key);
          scores.multiply(pull, grad, row, v, key);
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const int i = row + warp * ROWS + r, j = key + lane;
            if (i >= head.rows) continue;
            // 2b. dS = P (dP - delta)
            const Keys seen = keys_of(p, head, i);
            if (j < seen.first || j >= seen.end) continue;
            const Stats<C> stats = own.stats[i];
            const C weight = weight_of(changed<T, C>(p, head, score[r] * scale, i, j, slope), stats);
            const C ds = weight * (pull[r] - stats.at[DELTA]);
            acc[r] += SLOPES ? ds * C(j - (i + head.offset)) : ds;
          }
        }
      }
    }

  // 3. reduce broadcast axes, store
  if (of.rows == 1) {
    C sum = 0;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sum += acc[r];
    of_warps[warp][lane] = sum;
    __syncthreads();
    acc[0] = 0;
    for (int w = 0; w < WARPS; ++w) acc[0] += of_warps[w][lane];
  }
  if (of.keys == 1)
#pragma unroll
    for (int r = 0; r < ROWS; ++r) acc[r] = rows::sum<32>(acc[r]);
  const int key = own_key + lane;
  if (key >= int(of.keys)) return;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int row = own_row + warp * ROWS + r;
    if (row < int(of.rows))
      to[own_batch * of.steps[0] + own_head * of.steps[1] + row * of.steps[2] + key * of.steps[3]] = convert<M>(acc[r]);
  }
}
