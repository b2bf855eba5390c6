// out = softmax(change(scale q k^T)) v, lse on request: FlashAttention-2 forward on mma.sync; f16, bf16, f32 as TF32.
//
// Tiling:    one CTA per BM queries of one head; k_blocks of BN keys, from the last visible key down to the first.
//            Head dims below D and DV are filled with zeros.
// Threads:   one warp per 16 BLOCKS queries: S = Q K^T, online softmax in registers (softmax.cuh), P rounded to T in
//            place as the A operand of O += P V. SPLIT > 1: SPLIT warps share queries (rows of O too long for one
//            warp); each has a part of the keys for S and a part of the columns for O; P goes through shared memory.
// Pipeline:  cp.async. STAGES = 2: the next K and V are loaded during exp and P V, one barrier per k_block. STAGES = 1:
//            V is loaded during Q K^T, the next K during softmax and P V.
// Masking:   only k_blocks at an edge (last key, causal, window) compare indices. CHANGES (changes.cuh): softcap,
//            ALiBi, mask, block mask. PAGED: 16-bit K and V by a page table (page_lines.cuh), no block mask; keys of
//            missing pages are masked. The first cache.sequences CTAs only check page tables, one sequence each.
// Grid:      query tiles from the last to the first (longest first under causal), `section` heads interleaved for L2.
// Shared:    Q, STAGES x (K, V), SPLIT > 1: P. Registers: up to 192 accumulators per thread, HELD k-steps of Q.
// Bound:     mma.sync rate, closely followed by shared-memory bandwidth (which is the bound for BLOCKS = 1 or D = 256).
#include "attention/opaque.cuh"
#include "attention/changes.cuh"
#include "attention/forward_products.cuh"
#include "attention/page_lines.cuh"
#include "attention/pages.cuh"

using namespace attention;

template <class T, class Out, int D, int DV, int BM, int BN, int BLOCKS, int SPLIT, int STAGES, int HELD, int RESIDENT,
    int CHANGES, bool PAGED>
__device__ __forceinline__ void flash(const Problem<T, Out, float>& p, u32 tiles, u32 section, u32 heads,
    const Cache& cache = {}, const Scales& scales = {}) {
  constexpr int ROWS = 16 * BLOCKS, THREADS = BM / BLOCKS * 2 * SPLIT, KEYS = BN / SPLIT, COLUMNS = DV / SPLIT;
  constexpr bool TF32 = IS_TF32<T>;
  using QueryPanels = Panels<ROWS, D * HALVES<T>>;  // Q of one warp
  using KeyPanels = Panels<BN, D * HALVES<T>>;
  using ValuePanels = Panels<BN, DV * HALVES<T>>;
  constexpr int STAGE = KeyPanels::BYTES + ValuePanels::BYTES, OWN = sizeof(T) * ROWS * (D > DV ? D : DV);
  using WeightPanels = Panels<ROWS, BN>;  // P of SPLIT warps
  extern __shared__ __align__(128) u8 memory[];
  // CTA-wide constants that the k_block loop reads from shared memory, because registers are full (volatile: it
  // loads them at each use). first, end, keys: the Band (mask.cuh); past: end of the keys that the tile sees.
  __shared__ struct {
    const T *volatile k, *volatile v;
    volatile float factor, by, cap, slope;
    volatile u32 batch, head;
    volatile int tile, begin, first, end, keys, past, whole_begin, whole_end;
    const i32* volatile table;  // PAGED: the sequence's page table row; keys that the tile sees; some page is missing
    volatile int seen_first, seen_end, missing;
  } kept;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = warp / SPLIT * ROWS, part = warp % SPLIT;
  // Shared memory: Q (OWN bytes per SPLIT warps, later their rows of O), stage buffers (`stages`), P (`weights`), row
  // maxima or sums (`exchange`), page lookups.
  const u32 queries = shared_address(memory) + warp / SPLIT * OWN, stages = shared_address(memory) + BM / ROWS * OWN;
  const u32 weights = stages + STAGES * STAGE, exchange = weights + BM * BN * 2;
  const PageLines<BN> pages = {SPLIT > 1 ? exchange + 4 * BM * SPLIT : weights};
  static_assert(!PAGED || BN <= THREADS, "a thread looks up a key");
  if constexpr (PAGED)
    // 0. page-table check: one CTA per sequence
    if (blockIdx.x < cache.sequences) return check<THREADS>(cache, p, blockIdx.x);

  // 1. tile scheduler: which queries, which head
  const TilePlace<BM, Problem<T, Out, float>> at(p, blockIdx.x - (PAGED ? cache.sequences : 0), tiles, section, heads);
  Head<T, Out, float> head(p, at.batch, at.head);
  if constexpr (PAGED) {
    head.keys = cache.length(at.batch);
    head.offset = i64(head.keys) - head.rows;
    head.k = p.k + at.head / p.group * p.k_strides.head, head.v = p.v + at.head / p.group * p.v_strides.head;
  }
  const int tile = at.tile * BM, last_row = min(tile + BM, head.rows) - 1;
  if (tile < 0 || tile >= head.rows) return;
  const Band band = Band::make(p, head);
  // k_blocks [begin, end) hold the keys up to `past` that some query of the tile sees.
  const int begin = band.of(tile).first / BN, past = band.of(last_row).end, end = (past + BN - 1) / BN;
  // k_blocks [whole_begin, whole_end) are visible to every query of the tile.
  const int whole_begin = (band.of(last_row).first + BN - 1) / BN, whole_end = band.of(tile).end / BN;

  // 2. loaders: global -> shared memory (cp.async)
  const int k_step = int(p.k_strides.row), v_step = int(p.v_strides.row);
  using KeyLoader = typename KeyPanels::template GlobalLoader<THREADS>;
  using ValueLoader = typename ValuePanels::template GlobalLoader<THREADS>;
  using QueryLoader = typename QueryPanels::template GlobalLoader<32>;
  const auto issue_keys = [&](u32 stage, int block) {
    if constexpr (PAGED)
      return KeyLoader::issue_each(
          threadIdx.x, stage, p.d, [&](int key) { return pages.row(cache, kept.k, p.k_strides, block, key); });
    KeyLoader::issue(threadIdx.x, stage, kept.k + i64(block * BN) * k_step, k_step, kept.past - block * BN, p.d);
  };
  const auto issue_values = [&](u32 stage, int block) {
    const u32 to = stage + KeyPanels::BYTES;
    if constexpr (PAGED)
      return ValueLoader::issue_each(
          threadIdx.x, to, p.d_v, [&](int key) { return pages.row(cache, kept.v, p.v_strides, block, key); });
    ValueLoader::issue(threadIdx.x, to, kept.v + i64(block * BN) * v_step, v_step, kept.past - block * BN, p.d_v);
  };
  const auto look_up = [&](int block) {
    if constexpr (PAGED) pages.look_up(cache, kept.table, block, Keys{kept.seen_first, kept.seen_end});
  };
  // The next k_block at or below `block` that the block mask does not skip.
  const auto down_from = [&](int block) {
    if constexpr ((CHANGES & BLOCK_MASK) != 0)
      while (block >= begin && !any_counts(p, head, tile, last_row + 1, block * BN, min(block * BN + BN, head.keys)))
        --block;
    return block;
  };

  // 3. CTA constants to shared memory. The scale is not 0, so that factor * -inf stays -inf.
  const float signed_scale = float(p.scale) * (PAGED ? float(scales.k_number) : 1.0f);
  if (threadIdx.x == 0) {
    const Units units = units_of<CHANGES>(p, fmaxf(fabsf(signed_scale), 0x1p-149f));
    kept.k = head.k, kept.v = head.v;
    kept.factor = units.unit * math::LOG2E, kept.by = units.by, kept.cap = units.cap;
    kept.slope = CHANGES & SLOPE ? slope_of(p, head) : 0.0f;
    kept.batch = at.batch, kept.head = at.head;
    kept.tile = tile, kept.begin = begin;
    kept.first = band.first, kept.end = band.end, kept.keys = band.keys, kept.past = past;
    kept.whole_begin = whole_begin, kept.whole_end = whole_end;
    if constexpr (PAGED) {
      kept.table = cache.table + at.batch * cache.table_step, kept.missing = 0;
      kept.seen_first = band.of(tile).first, kept.seen_end = band.of(last_row).end;
    }
  }
  __syncthreads();

  // 4. prologue: page lookup, Q, first stage
  int block = down_from(end - 1);
  if constexpr (PAGED) {
    look_up(block);
    if (STAGES == 2) look_up(block - 1);
    commit_copies();
    if (misses<THREADS>(cache, kept.table, {kept.seen_first, kept.seen_end})) kept.missing = 1;
    await_copies<0>();
    __syncthreads();
  }
  if (block >= begin) {
    const int q_step = int(p.q_strides.row);
    if (part == 0)
      QueryLoader::issue(lane, queries, head.q + i64(tile + own) * q_step, q_step, head.rows - tile - own, p.d);
    if constexpr (TF32) commit_copies();
    issue_keys(stages, block);
    if constexpr (STAGES == 2) issue_values(stages, block);
    commit_copies();
  }

  // 5. sign of scale into Q; TF32 rounding
  // Q is negated if scale < 0, so that the largest product stays the largest score. The warp that loaded the rows
  // does it, and waits for no other. TF32: Q has a commit group of its own.
  if ((TF32 || signed_scale < 0) && block >= begin && part == 0) {
    await_copies<TF32>();
    __syncwarp();
    const u32 negative = signed_scale < 0 ? TF32 ? 0x80000000u : 0x80008000u : 0;
    for (u32 at = lane * 4; at < QueryPanels::BYTES; at += 128) {
      u32 word[1];
      load_shared(word[0], queries + at);
      word[0] ^= negative;
      round_operand<T>(word);
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(queries + at), "r"(word[0]) : "memory");
    }
  }

  // 6. HELD k-steps of Q to registers
  HeldQueries<HELD, BLOCKS> held;
  if constexpr (HELD > 0)
    if (block >= begin) {
      await_copies<0>();
      __syncthreads();
      held.template load<QueryPanels>(queries + QueryPanels::template lane_address<true>(lane));
    }

  int stage = 0;  // index of the pipeline stage
  OnlineSoftmax<BLOCKS> softmax;
  float acc[BLOCKS][COLUMNS / 8][4] = {};
  // Row maxima over the SPLIT warps.
  const auto highest = [&](float (&most)[2 * BLOCKS]) {
    join_rows<BLOCKS, SPLIT, true>(exchange, opaque(threadIdx.x), most);
  };

  // 7. main loop over k_blocks, last to first
  while (block >= kept.begin) {
    const int first = block * BN, following = down_from(block - 1);
    await_copies<0>();
    __syncthreads();
    if constexpr (STAGES == 1) {
      issue_values(stages, block);
      look_up(block - 1);
      commit_copies();
    }

    // 7a. S = Q K^T. Without CHANGES, accumulators of masked scores start at -inf; otherwise 7b masks.
    const u32 thread = opaque(threadIdx.x);
    const u32 at_queries = shared_address(memory) + thread / 32 / SPLIT * OWN +
        QueryPanels::template lane_address<true>(thread % 32);
    const u32 own_part = SPLIT > 1 ? thread / 32 % SPLIT : 0;
    const u32 at_keys = stages + stage * STAGE + own_part * KEYS * KeyPanels::PITCH +
        KeyPanels::template lane_address<false>(thread % 32);
    float s[BLOCKS][KEYS / 8][4] = {};
    // Keys of missing pages are masked.
    const auto mask_out = [&](int column) {
      if (!PAGED || !kept.missing) return;
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (!cache.has(kept.batch, column + 8 * n + e))
#pragma unroll
            for (int r = 0; r < 2 * BLOCKS; ++r) s[r / 2][n][r % 2 * 2 + e] = rows::minus_infinity<float>();
    };
    // The thread's first row and column; whether the k_block is at an edge; the range of visible keys.
    const auto own_row = [&] { return kept.tile + int(thread / 32 / SPLIT * ROWS + thread % 32 / 4); };
    const auto own_column = [&] { return first + int(own_part * KEYS + thread % 4 * 2); };
    const auto at_an_edge = [&] { return block < kept.whole_begin || block >= kept.whole_end; };
    const auto seen_by = [&] { return Band{kept.first, kept.end, kept.keys}; };
    if (!CHANGES && (at_an_edge() || (PAGED && kept.missing))) {  // accumulators start at 0 or -inf
      const Band band = seen_by();
      const int row = own_row(), column = own_column();
#pragma unroll
      for (int r = 0; r < 2 * BLOCKS; ++r) {
        const Keys seen = band.of(row + 8 * r);
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const bool counts = 8 * n + e >= seen.first - column && 8 * n + e < seen.end - column;
            s[r / 2][n][r % 2 * 2 + e] = counts ? 0.0f : rows::minus_infinity<float>();
          }
      }
      mask_out(column);
    }
    add_scores<T, D, QueryPanels, KeyPanels>(s, held, at_queries, at_keys);
    if constexpr (STAGES == 1) {
      await_copies<0>();
      __syncthreads();
      if (following >= kept.begin) issue_keys(stages, following);
      commit_copies();
    }

    // 7b. softcap, ALiBi, masks (changes.cuh)
    if constexpr (CHANGES != 0) {
      const bool mixed = CHANGES & BLOCK_MASK &&
          !all_count(p, head, tile, last_row + 1, first, min(first + BN, head.keys));
      const Units units = {kept.by, kept.cap};
      change_scores<CHANGES, T>(s, p, head, seen_by(), units, kept.slope, own_row(), own_column(), at_an_edge(), mixed);
      mask_out(own_column());
    }
    // 7c. online softmax: row maxima, lazy rescale of O
    softmax.follow(s, kept.factor, acc, highest);

    // 7d. prefetch the next k_block
    // Before this point no registers are free for its addresses.
    if constexpr (STAGES == 2) {
      stage ^= 1;
      if (following >= kept.begin) {
        issue_keys(stages + stage * STAGE, following);
        issue_values(stages + stage * STAGE, following);
        look_up(following - 1);
      }
      commit_copies();
    }
    // 7e. P = exp2(S - m)
    softmax.weigh(s, kept.factor);

    // 7f. O += P V
    // SPLIT > 1: the warps exchange P through shared memory.
    if constexpr (SPLIT > 1) {
      const u32 to = weights + thread / 32 / SPLIT * WeightPanels::BYTES;
#pragma unroll
      for (int r = 0; r < 2 * BLOCKS; ++r)
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
          const u32 pair = round_pair(s[r / 2][n][r % 2 * 2], s[r / 2][n][r % 2 * 2 + 1], T{});
          const u32 at = WeightPanels::offset(thread % 32 / 4 + 8 * r, own_part * (KEYS / 8) + n) + thread % 4 * 4;
          asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + at), "r"(pair) : "memory");
        }
      barrier_sync(1 + thread / 32 / SPLIT, 32 * SPLIT);
    }
    const u32 at_weights = weights + thread / 32 / SPLIT * WeightPanels::BYTES +
        WeightPanels::template lane_address<true>(thread % 32);
    const u32 of_values = stages + (STAGES == 2 ? stage ^ 1 : 0) * STAGE + KeyPanels::BYTES;
    // The columns of one part may begin in the middle of a panel; every second half panel of it is in the next (carry).
    constexpr int STEPS = COLUMNS / 16, FLIPS = ValuePanels::FLIPS;
    static_assert(STEPS % FLIPS == 0 || (SPLIT == 2 && STEPS % FLIPS == FLIPS / 2) || SPLIT == 1);
    const u32 lane_offset = values_lane_address<T, ValuePanels>(thread % 32) ^ own_part * (STEPS % FLIPS * 32);
    const u32 at_values = of_values + own_part * (STEPS / FLIPS * ValuePanels::PANEL) + lane_offset;
    const u32 carry = STEPS % FLIPS && SPLIT > 1 ? own_part * ValuePanels::PANEL : 0;
    const auto weight = [&](u32 (&a)[4], int b, int k) {
      if constexpr (SPLIT > 1) load_matrices<false>(a, WeightPanels::at(at_weights, b, k));
      else pack_weights<T>(a, s[b], k);
    };
    add_values<T, BN, ValuePanels>(acc, weight, at_values, carry);
    block = following;
  }

  // 8. epilogue: row sums, 1 / l, lse
  // The head is recomputed, because the loop has no registers to keep it.
  const Head<T, Out, float> result(p, kept.batch, kept.head);
  const float sink = sink_of<T, float>(p, result);
  float factor[2 * BLOCKS];
  softmax.add_up();
  join_rows<BLOCKS, SPLIT, false>(exchange, threadIdx.x, softmax.sum);
  const int first_row = kept.tile, row = first_row + own + lane / 4;
#pragma unroll
  for (int r = 0; r < 2 * BLOCKS; ++r) {
    float lse;
    softmax.finish(r, kept.factor, sink, factor[r], lse);
    if constexpr (PAGED) factor[r] *= float(scales.v_number);
    if (result.lse && part == 0 && lane % 4 == 0 && row + 8 * r < result.rows)
      result.lse[(row + 8 * r) * p.lse_strides.row] = lse;
  }

  // 9. store O
  // 16-bit rows are staged in the warp's Q buffer (SPLIT > 1: each warp its own columns) and stored by 16 bytes.
  using Results = Panels<16, DV>;
  constexpr int CHUNKS = COLUMNS / 8;
  const u32 first_chunk = part * CHUNKS, first_column = part * COLUMNS;
  if constexpr (sizeof(Out) == 2) {
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 2 * BLOCKS; ++r)
#pragma unroll
      for (int c = 0; c < COLUMNS / 8; ++c) {
        const u32 pair = round_pair(
            acc[r / 2][c][r % 2 * 2] * factor[r], acc[r / 2][c][r % 2 * 2 + 1] * factor[r], Out{});
        const u32 to = queries + r / 2 * Results::BYTES + Results::offset(lane / 4 + r % 2 * 8, first_chunk + c) +
            lane % 4 * 4;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(pair) : "memory");
      }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < BLOCKS * 16 * CHUNKS / 32; ++i) {
      const int at = lane + i * 32, line = at / CHUNKS;
      const u32 chunk = first_chunk + at % CHUNKS, column = chunk * 8;
      Vec<float, 4> words;
      load_shared(words, queries + line / 16 * Results::BYTES + Results::offset(line % 16, chunk));
      const int to = first_row + own + line;
      if (to < result.rows && column < p.d_v)
        *reinterpret_cast<Vec<float, 4>*>(result.out + to * p.out_strides.row + column) = words;
    }
  } else if constexpr (TF32) {  // a thread has eight consecutive columns of 32 (forward_products.cuh)
#pragma unroll
    for (int r = 0; r < 2 * BLOCKS; ++r)
#pragma unroll
      for (int c = 0; c < COLUMNS / 16; ++c) {
        const u32 column = c / 2 * 32 + lane % 4 * 8 + c % 2 * 4;
        Vec<Out, 4> words;
#pragma unroll
        for (int j = 0; j < 4; ++j) words.at[j] = acc[r / 2][c / 2 * 4 + j][r % 2 * 2 + c % 2] * factor[r];
        if (row + 8 * r < result.rows && column < p.d_v)
          *reinterpret_cast<Vec<Out, 4>*>(result.out + (row + 8 * r) * p.out_strides.row + column) = words;
      }
  } else {
#pragma unroll
    for (int r = 0; r < 2 * BLOCKS; ++r)
#pragma unroll
      for (int c = 0; c < COLUMNS / 8; ++c) {
        const u32 column = first_column + 8 * c + lane % 4 * 2;
        const Vec<Out, 2> pair = {acc[r / 2][c][r % 2 * 2] * factor[r], acc[r / 2][c][r % 2 * 2 + 1] * factor[r]};
        if (row + 8 * r < result.rows && column < p.d_v)
          *reinterpret_cast<Vec<Out, 2>*>(result.out + (row + 8 * r) * p.out_strides.row + column) = pair;
      }
  }
}

template <class T, class Out, int D, int DV, int BM, int BN, int BLOCKS, int SPLIT, int STAGES, int HELD, int RESIDENT,
    int CHANGES>
__global__ void __launch_bounds__(BM / BLOCKS * 2 * SPLIT, RESIDENT)
    attention_flash(Problem<T, Out, float> p, u32 tiles, u32 section, u32 heads) {
  flash<T, Out, D, DV, BM, BN, BLOCKS, SPLIT, STAGES, HELD, RESIDENT, CHANGES, false>(p, tiles, section, heads);
}

template <class T, class Out, int D, int DV, int BM, int BN, int BLOCKS, int SPLIT, int STAGES, int HELD, int RESIDENT,
    int CHANGES>
__global__ void __launch_bounds__(BM / BLOCKS * 2 * SPLIT, RESIDENT)
    attention_flash_paged(Problem<T, Out, float> p, u32 tiles, u32 section, u32 heads, Cache cache, Scales scales) {
  flash<T, Out, D, DV, BM, BN, BLOCKS, SPLIT, STAGES, HELD, RESIDENT, CHANGES, true>(
      p, tiles, section, heads, cache, scales);
}
