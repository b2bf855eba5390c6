// dQ = scale dS K, dK = scale dS^T Q or dV = P^T dO (OF names which), by FMA: any type, head dim and feature.
//
// P = min(exp(S - lse), 1), dS = P (dO V^T - delta) (softcap: times 1 - tanh^2; FlashAttention-2, T. Dao, 2023,
// algorithm 2); dK and dV are summed over the query heads of the GQA group.
// Tiling:    one CTA per 32 own rows (queries of one head, or keys) and 32 COLUMNS columns; loops over the other side's
//            rows 32 at a time; tiles without a visible score are skipped.
// Threads:   8 warps of 4 own rows; one score row of the other side per lane, then COLUMNS columns per lane.
// Order:     no atomics; sums follow the problem's order (deterministic).
// Shared:    32 x 32 of the other side, 32 columns of own rows, P or dS: 12 to 25 KB.
// Bound:     instruction issue: two shared loads per four FMAs.
#include "attention/gradients.cuh"
#include "attention/plain_scores.cuh"

using namespace attention;

enum Of { QUERIES, KEYS, VALUES };

template <class T, class C, Of OF, int COLUMNS>
__global__ void __launch_bounds__(256, 1)
    attention_backward_simt(Problem<T, T, C> p, Gradients<T, C> g, u32 tiles, u32 chunks) {
  constexpr int ROWS = PlainScores<C>::ROWS, WARPS = PlainScores<C>::WARPS, TILE = PlainScores<C>::TILE,
                CHUNK = 32 * COLUMNS;
  __shared__ PlainScores<C> scores;
  __shared__ Vec<C, ROWS> weights[WARPS][TILE];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 flat = blockIdx.x / chunks, first_column = (blockIdx.x - flat * chunks) * CHUNK;
  const u32 group = OF == QUERIES ? 1 : p.group, heads = p.heads / group;
  const u32 batch = flat / tiles / heads, place = flat / tiles % heads;
  const Head<T, T, C> any(p, batch, place * group);
  const int own_rows = OF == QUERIES ? any.rows : any.keys;
  const C scale = C(p.scale);

  // 1. loop over tiles of own rows
  // It has one iteration, unless a sequence exceeds its max_seqlen.
  for (int tile = flat % tiles * TILE; u32(tile) < u32(own_rows); tile += tiles * TILE) {
    const int row = tile + warp * ROWS, last = min(tile + TILE, own_rows) - 1;
    C acc[ROWS][COLUMNS] = {};

    for (u32 shared = 0; shared < group; ++shared) {
      const Head<T, T, C> head(p, batch, place * group + shared);
      const QueryGradients<T, C> gradients(p, g, batch, place * group + shared);
      const int past = keys_of(p, head, head.rows - 1).end;  // trailing keys that no query sees may be uninitialized
      const Lines<T> q = {head.q, p.q_strides.row, head.rows, int(p.d)}, k = {head.k, p.k_strides.row, past, int(p.d)};
      const Lines<T> v = {head.v, p.v_strides.row, past, int(p.d_v)};
      const Lines<T> grad = {gradients.grad, g.grad_strides.row, head.rows, int(p.d_v)};
      const C slope = slope_of(p, head);
      const int begin = OF == QUERIES ? keys_of(p, head, tile).first : rows_of(p, head, tile).first;
      const int end = OF == QUERIES ? keys_of(p, head, last).end : rows_of(p, head, last).end;

      for (int first = begin / TILE * TILE; first < end; first += TILE) {
        const int others = min(first + TILE, OF == QUERIES ? head.keys : head.rows);
        if (OF == QUERIES ? !any_counts(p, head, tile, last + 1, first, others)
                          : !any_counts(p, head, first, others, tile, last + 1))
          continue;

        // 2. S, dP, and P or dS
        // The lane's other row is multiplied with the warp's own rows.
        C score[ROWS] = {}, pull[ROWS] = {};
        if constexpr (OF == QUERIES)
          scores.multiply(score, q, tile, k, first), scores.multiply(pull, grad, tile, v, first);
        else scores.multiply(score, k, tile, q, first);
        if constexpr (OF == KEYS) scores.multiply(pull, v, tile, grad, first);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          const int i = OF == QUERIES ? row + r : first + lane, j = OF == QUERIES ? first + lane : row + r;
          C weight = 0;
          if (i < head.rows) {
            const Keys seen = keys_of(p, head, i);
            const C scaled = score[r] * scale;
            if (j >= seen.first && j < seen.end) {
              const Stats<C> stats = gradients.stats[i];
              weight = weight_of(changed<T, C>(p, head, scaled, i, j, slope), stats);
              if constexpr (OF != VALUES) weight *= (pull[r] - stats.at[DELTA]) * derivative(p, scaled);
            }
          }
          weights[warp][lane].at[r] = weight;
        }
        __syncwarp();

        // 3. accumulate weighted rows of the other side
        const Lines<T> other = OF == QUERIES ? k : OF == KEYS ? q : grad;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
          const int column = first_column + c * 32 + lane;
          __syncthreads();
          for (int i = warp; i < TILE; i += WARPS) scores.staged[i][lane] = other.template at<C>(first + i, column);
          __syncthreads();
#pragma unroll 8
          for (int i = 0; i < TILE; ++i) {
            const C x = scores.staged[i][lane];
            const Vec<C, ROWS> w = weights[warp][i];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) acc[r][c] += w.at[r] * x;
          }
        }
      }
    }

    // 4. epilogue: store
    const QueryGradients<T, C> queries(p, g, batch, place * group);
    const KeyGradients<T, C> keys(p, g, batch, OF == QUERIES ? place / p.group : place);
    T* const to = OF == QUERIES ? queries.grad_q : OF == KEYS ? keys.grad_k : keys.grad_v;
    const i64 step = OF == QUERIES ? g.grad_q_strides.row : OF == KEYS ? g.grad_k_strides.row : g.grad_v_strides.row;
    const u32 columns = OF == VALUES ? p.d_v : p.d;
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        const u32 column = first_column + c * 32 + lane;
        if (row + r < own_rows && column < columns)
          to[(row + r) * step + column] = convert<T>(OF == VALUES ? acc[r][c] : acc[r][c] * scale);
      }
  }
}
