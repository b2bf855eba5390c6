// out = softmax(changed(scale q k^T)) v by mma.sync for f16 and bf16, scores never leaving registers; lse on request.
//
// Tiling: a CTA has BM queries of one head, a warp 16 BLOCKS of them; keys go by BN at a time, from the last that any of its
// queries sees to the first. Head dims below D and DV are filled up with zeros.
// Threads: a warp multiplies its queries with all BN keys, turns the scores into weights (softmax.cuh) and these, rounded to T
// where they lie, into a's of the second product. Only blocks at an edge (the last key, causal, window) look which scores count;
// CHANGED: every block does, and softcap, ALiBi and masks are applied.
// Shared memory: the queries, and STAGES of BN keys and values, by cp.async. Two stages: a whole block ahead, one barrier a block.
// One: keys come while weights are made, values while scores are.
// Grid: queries' tiles from the last to the first, which under causal is the longest first, of `section` heads side by side, whose
// keys and values L2 holds.
// Bound: the tensor cores' mma.sync rate, and close behind it shared memory's (BLOCKS = 1: shared memory's).
#include "attention/mask.cuh"
#include "attention/panels.cuh"
#include "attention/softmax.cuh"

using namespace attention;

template <class T, class Out, int D, int DV, int BM, int BN, int BLOCKS, int STAGES, int RESIDENT, bool CHANGED>
__global__ void __launch_bounds__(BM / BLOCKS * 2, RESIDENT)
attention_flash(Problem<T, Out, float> p, u32 tiles, u32 section, u32 heads) {
  constexpr int THREADS = BM / BLOCKS * 2;
  using Queries = Panels<16 * BLOCKS, D>;  // a warp's
  using Keys_ = Panels<BN, D>;
  using Values = Panels<BN, DV>;
  constexpr int STAGE = Keys_::BYTES + Values::BYTES, OWN = 32 * BLOCKS * (D > DV ? D : DV);
  extern __shared__ __align__(1024) u8 memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = warp * BLOCKS * 16;
  const u32 queries = shared_address(memory) + warp * OWN, ring = shared_address(memory) + THREADS / 32 * OWN;

  // Which queries of which head
  const u32 first_head = blockIdx.x / (section * tiles) * section, within = blockIdx.x - first_head * tiles;
  const u32 width = min(section, heads - first_head);
  const Place<Problem<T, Out, float>> place(p, first_head + within % width);
  const Head<T, Out, float> head(p, place.batch, place.head);
  const int tile = int(tiles - 1 - within / width) * BM, last_row = min(tile + BM, head.rows) - 1;
  if (tile >= head.rows) return;
  const int begin = keys_of(p, head, tile).first / BN, end = (keys_of(p, head, last_row).end + BN - 1) / BN;
  // Blocks [whole_begin, whole_end) are seen by all of the tile's queries
  const int whole_begin = (keys_of(p, head, last_row).first + BN - 1) / BN, whole_end = keys_of(p, head, tile).end / BN;

  const int k_step = int(p.k_walk.row), v_step = int(p.v_walk.row);
  const auto bring_keys = [&](u32 stage, int block) {
    Keys_::template bring<THREADS>(threadIdx.x, stage, head.k + i64(block) * BN * k_step, k_step, head.keys - block * BN, p.d);
  };
  const auto bring_values = [&](u32 stage, int block) {
    const T* from = head.v + i64(block) * BN * v_step;
    Values::template bring<THREADS>(threadIdx.x, stage + Keys_::BYTES, from, v_step, head.keys - block * BN, p.d_v);
  };
  // The next block that counts, down from `block`
  const auto down_from = [&](int block) {
    if constexpr (CHANGED)
      while (block >= begin && !any_counts(p, head, tile, last_row + 1, block * BN, min(block * BN + BN, head.keys))) --block;
    return block;
  };

  int block = down_from(end - 1);
  if (block >= begin) {
    const T* from = head.q + i64(tile + own) * p.q_walk.row;
    Queries::template bring<32>(lane, queries, from, int(p.q_walk.row), head.rows - tile - own, p.d);
    bring_keys(ring, block);
    if constexpr (STAGES == 2) bring_values(ring, block);
    commit_copies();
  }

  // A negative scale is the queries', so that the highest product has the highest score
  const float scale = fmaxf(fabsf(float(p.scale)), 1e-30f), slope = CHANGED ? slope_of(p, head) : 0.0f;
  if (p.scale < 0 && block >= begin) {
    await_copies<0>();
    __syncwarp();
    for (u32 at = lane * 4; at < Queries::BYTES; at += 128) {
      u32 pair;
      load_shared(pair, queries + at);
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(queries + at), "r"(pair ^ 0x80008000u) : "memory");
    }
  }

  const u32 at_queries = queries + Queries::template enter<true>(lane);
  u32 at_keys = ring + Keys_::template enter<false>(lane), at_values = ring + Keys_::BYTES + Values::template enter<true>(lane);
  u32 filled = ring;
  const int row = tile + own + lane / 4;
  OnlineSoftmax<BLOCKS> softmax(CHANGED ? math::LOG2E : scale * math::LOG2E);
  float acc[BLOCKS][DV / 8][4] = {};

  while (block >= begin) {
    const int first = block * BN, following = down_from(block - 1);
    await_copies<0>();
    __syncthreads();
    if constexpr (STAGES == 2) {
      filled = filled == ring ? ring + STAGE : ring;
      if (following >= begin) {
        bring_keys(filled, following);
        bring_values(filled, following);
      }
    } else {
      bring_values(filled, block);
    }
    commit_copies();

    // Scores
    float s[BLOCKS][BN / 8][4] = {};
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
      u32 a[BLOCKS][4];
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) load_matrices<false>(a[b], Queries::at(at_queries, b, step));
#pragma unroll
      for (int n = 0; n < BN / 16; ++n) {
        u32 keys[4];
        load_matrices<false>(keys, Keys_::at(at_keys, n, step));
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) {
          Mma<T>::run(s[b][2 * n], a[b], keys);
          Mma<T>::run(s[b][2 * n + 1], a[b], keys + 2);
        }
      }
    }
    if constexpr (STAGES == 1) {
      await_copies<0>();
      __syncthreads();
      if (following >= begin) bring_keys(filled, following);
      commit_copies();
    }

    // Which count, and as what
    if (CHANGED || block < whole_begin || block >= whole_end) {
#pragma unroll
      for (int r = 0; r < 2 * BLOCKS; ++r) {
        const int i = row + 8 * r;
        const Keys seen = keys_of(p, head, i);
#pragma unroll
        for (int n = 0; n < BN / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int j = first + 8 * n + lane % 4 * 2 + e;
            float& score = s[r / 2][n][r % 2 * 2 + e];
            const bool counts = j >= seen.first && j < seen.end && i < head.rows;
            if constexpr (CHANGED) score = counts ? changed<T>(p, head, score * scale, i, j, slope) : rows::minus_infinity<float>();
            else score = counts ? score : rows::minus_infinity<float>();
          }
      }
    }
    softmax.weigh(s, acc);

    // Weighted values
#pragma unroll
    for (int k = 0; k < BN / 16; ++k) {
      u32 a[BLOCKS][4];
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) pack_weights<T>(a[b], s[b], k);
#pragma unroll
      for (int c = 0; c < DV / 16; ++c) {
        u32 values[4];
        load_matrices<true>(values, Values::at(at_values, k, c));
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) {
          Mma<T>::run(acc[b][2 * c], a[b], values);
          Mma<T>::run(acc[b][2 * c + 1], a[b], values + 2);
        }
      }
    }
    if constexpr (STAGES == 2) {
      const u32 move = filled == ring ? -STAGE : STAGE;
      at_keys += move;
      at_values += move;
    }
    block = following;
  }

  // Division, and lse
  const float sink = sink_of<T, float>(p, head);
  float factor[2 * BLOCKS];
#pragma unroll
  for (int r = 0; r < 2 * BLOCKS; ++r) {
    float lse;
    softmax.finish(r, sink, factor[r], lse);
    if (head.lse && lane % 4 == 0 && row + 8 * r < head.rows) head.lse[(row + 8 * r) * p.lse_walk.row] = lse;
  }

  // Rows of the result, by way of the warp's own queries' place in shared memory, 16 bytes a store
  using Results = Panels<16, DV>;
  if constexpr (sizeof(Out) == 2) {
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 2 * BLOCKS; ++r)
#pragma unroll
      for (int c = 0; c < DV / 8; ++c) {
        const u32 pair = round_pair(acc[r / 2][c][r % 2 * 2] * factor[r], acc[r / 2][c][r % 2 * 2 + 1] * factor[r], Out{});
        const u32 to = queries + r / 2 * Results::BYTES + Results::offset(lane / 4 + r % 2 * 8, c) + lane % 4 * 4;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(pair) : "memory");
      }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < BLOCKS * 16 * Results::CHUNKS / 32; ++i) {
      const int at = lane + i * 32, line = at / Results::CHUNKS, chunk = at % Results::CHUNKS;
      Vec<float, 4> words;
      load_shared(words, queries + line / 16 * Results::BYTES + Results::offset(line % 16, chunk));
      const int to = tile + own + line;
      if (to < head.rows && chunk * 8 < p.d_v) *reinterpret_cast<Vec<float, 4>*>(head.out + to * p.out_walk.row + chunk * 8) = words;
    }
  } else {
#pragma unroll
    for (int r = 0; r < 2 * BLOCKS; ++r)
#pragma unroll
      for (int c = 0; c < DV / 8; ++c) {
        const int column = 8 * c + lane % 4 * 2;
        const Vec<Out, 2> pair = {acc[r / 2][c][r % 2 * 2] * factor[r], acc[r / 2][c][r % 2 * 2 + 1] * factor[r]};
        if (row + 8 * r < head.rows && column < p.d_v)
          *reinterpret_cast<Vec<Out, 2>*>(head.out + (row + 8 * r) * p.out_walk.row + column) = pair;
      }
  }
}
