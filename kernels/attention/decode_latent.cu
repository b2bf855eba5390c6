// out = softmax(change(scale q k^T)) v for absorbed MLA decode (split-KV): many query heads share one key row, which
// also holds V (DeepSeek: 576 columns of K, the first 512 are V); f16, bf16; lse on request.
//
// Tiling:    one CTA per (split of the keys, KV head, 64 rows), all DV columns; k_blocks of KEYS keys.
// Threads:   8 warps. S: 16 BLOCKS rows by 16 keys per warp. O: all 64 rows by DV / 8 columns per warp. P and the
//            rescale factors go from S warps to O warps through shared memory: three barriers per k_block.
// HALVED:    two warps share 32 keys, each over half of the head dim, and add their S: each ldmatrix of Q feeds twice
//            as many mma (2,300 instead of 3,460 clocks of shared memory per k_block).
// Pipeline:  two stages of K by cp.async. `joined`: V is read from K's stage. Otherwise V uses the second stage and is
//            loaded during Q K^T. `alike`: K and V have the same strides.
// PAGED:     page ids are looked up one k_block ahead; keys of missing pages are masked.
// Grid:      row tiles innermost, so that CTAs that share keys run together and hit L2. Splits write for merge.cu.
// Shared:    Q 74 KB, 2 x 74 KB of K (KEYS = 64), P 8 KB. Code outside the loop is short: it evicts the loop's code.
// Bound:     shared memory (Q K^T), tensor cores (P V): 5,700 clocks per 64 rows x 64 keys, 3x the DRAM time.
#include "attention/opaque.cuh"
#include "attention/decoding.cuh"
#include "attention/forward_products.cuh"
#include "attention/pages.cuh"
#include "ptx/overlap.cuh"

using namespace attention;

// HALVED: S of 32 keys over half of the columns, summed with the partner warp's; each warp keeps 16 of the keys (half 0
// the first 16). `at`: the lane's slots of the exchange buffer.
template <int BLOCKS>
__device__ __forceinline__ void add_halves(
    float (&s)[BLOCKS][2][4], const float (&both)[BLOCKS][4][4], u32 half, u32 at, u32 barrier) {
  const auto place = [&](int b, int n) { return at + (2 * b + n) * 512; };
  const auto store = [&](int first) {
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float(&x)[4] = both[b][first + n];
        store_shared(place(b, n), Vec<float, 4>{{x[0], x[1], x[2], x[3]}});
      }
  };
  const auto take = [&](int first) {
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        Vec<float, 4> other;
        load_shared(other, place(b, n));
#pragma unroll
        for (int e = 0; e < 4; ++e) s[b][n][e] = both[b][first + n][e] + other.at[e];
      }
  };
  if (half) store(0);
  barrier_sync(barrier, 64);
  if (!half) take(0), store(2);
  barrier_sync(barrier, 64);
  if (half) take(2);
}

// Epilogue of one warp: O times two factors per row, to the row's destination; `rows` rows and `columns` columns exist.
template <int BLOCKS, int N, class To>
__device__ __forceinline__ void store(const float (&acc)[BLOCKS][N][4], const float* weights, const float* divisions,
    const i64* places, int rows, int columns, To* to) {
  const int lane = opaque(threadIdx.x) % 32;
#pragma unroll
  for (int r = 0; r < 2 * BLOCKS; ++r) {
    const int line = lane / 4 + 8 * r;
    if (line >= rows) break;
    const float weight = weights[line], division = divisions[line];
    To* first = to + places[line] + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float pair[2] = {
          acc[r / 2][n][r % 2 * 2] * weight * division, acc[r / 2][n][r % 2 * 2 + 1] * weight * division};
      if (8 * n < columns) *reinterpret_cast<Vec<To, 2>*>(first + 8 * n) = round_to<To>(pair);
    }
  }
}

template <class T, class Out, int D, int DV, int KEYS, bool HALVED, bool CHANGED, bool PAGED>
__global__ void __launch_bounds__(256, 1)
attention_decode_latent(Problem<T, Out, float> p, Cache cache, Scales scales, Splits splits, u32 tiles, u32 alike) {
  constexpr int THREADS = 256, WARPS = 8, ROWS = 64, SPLIT = KEYS / 16, BLOCKS = ROWS * SPLIT / WARPS / 16,
                OWN = 2 * BLOCKS;
  constexpr int COLUMNS = DV / WARPS, AT_ONCE = THREADS / 8, PASSES = KEYS / AT_ONCE;
  using Queries = Panels<ROWS, D>;
  using Tile = Panels<KEYS, D>;
  using Weights = Panels<ROWS, KEYS>;
  static_assert(COLUMNS == 64 && DV <= D, "a warp's columns of values are a panel");
  extern __shared__ __align__(1024) u8 memory[];
  // Per row: rescale factor, maximum m (base 2), sum l.
  __shared__ float shrinks[ROWS], row_max[ROWS], sums[ROWS];
  __shared__ float exchanged[WARPS * BLOCKS * 16];
  __shared__ volatile int missing;  // some page that was looked up is missing
  // Shared memory: Q, stage buffers (`stages`), P (`weights`).
  const u32 queries = shared_address(memory), stages = queries + Queries::BYTES, weights = stages + 2 * Tile::BYTES;
  const u32 exchange = shared_address(exchanged);
  const int warp = threadIdx.x / 32, group = warp / SPLIT, part = warp % SPLIT;
  overlap::wait();
  overlap::release();

  // 1. tile scheduler: split, rows, head
  u32 flat = blockIdx.x;
  if constexpr (PAGED) {
    if (flat < cache.sequences) check<THREADS>(cache, p, flat);
    if (flat < cache.sequences) return;
    flat -= cache.sequences;
  }
  const u32 kv_heads = p.heads / p.group;
  const auto split_of = [&](u32 flat) { return flat / tiles % splits.count; };
  const auto rows_of = [&](u32 flat) {
    const u32 heads = flat / (tiles * splits.count);
    return SharedRows<T, Out>(p, cache, heads / kv_heads, heads % kv_heads, flat % tiles * ROWS, ROWS);
  };
  const u32 split = split_of(flat);
  const SharedRows<T, Out> shared = rows_of(flat);
  if (shared.first >= shared.count) return;

  // 2. k_blocks of this split that some row sees
  const Keys highest = shared.seen_by(shared.last), lowest = shared.seen_by(shared.first);
  const int begin = lowest.first, end = highest.end, whole_begin = highest.first, whole_end = lowest.end;
  const int2 range = begin < end ? splits.range(split, begin, end, SPLIT) : int2{0, 0};
  if (split && range.x >= range.y) {
    shared.template store_empty<THREADS>(splits, split);
    return;
  }
  int block = range.x;
  while (block * 16 + KEYS <= begin) block += SPLIT;
  if constexpr (PAGED) {
    if (threadIdx.x == 0) missing = 0;
    __syncthreads();
  }

  // 3. loader: cp.async of one k_block
  // Each thread copies one 16-byte chunk of every panel, AT_ONCE rows at a time.
  // `page` and `slot` locate the thread's rows of the next k_block.
  const T *k = p.k + shared.kv_head * p.k_strides.head, *v = p.v + shared.kv_head * p.v_strides.head;
  const bool joined = alike && p.k == p.v;
  int page[PASSES], slot[PASSES];
  bool lost = false;  // some page that the thread looked up is missing
  const auto look_up = [&](int next) {
#pragma unroll
    for (int i = 0; i < PASSES; ++i) {
      const int key = next * 16 + int(opaque(threadIdx.x) / 8) + i * AT_ONCE;
      const bool counts = next < range.y && key >= begin && key < end;
      slot[i] = key;
      page[i] = counts ? int(shared.sequence) : -1;
      if constexpr (PAGED) {
        const int at = key / int(cache.page_keys);
        slot[i] = key - at * int(cache.page_keys);
        if (counts) page[i] = cache.table[shared.sequence * cache.table_step + at];
        if (u32(page[i]) >= cache.pages) page[i] = -1, lost |= counts;
      }
    }
  };
  const auto issue_loads = [&](int stage, const T* from, const OperandStrides& strides, u32 columns) {
    const u32 thread = opaque(threadIdx.x), to = stages + stage * Tile::BYTES + Tile::offset(thread / 8, thread % 8);
#pragma unroll
    for (int i = 0; i < PASSES; ++i) {
      const T* line = from + page[i] * strides.batch + slot[i] * strides.row + thread % 8 * 8;
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel)
        copy_async<16>(to + panel * Tile::PANEL + i * AT_ONCE * Tile::PITCH, line + panel * 64,
            page[i] >= 0 && panel * 64 + int(thread % 8 * 8) < int(columns) ? 16 : 0);
    }
    commit_copies();
  };
  look_up(block);
  if (block < range.y) issue_loads(0, k, p.k_strides, p.d);
  if (joined) look_up(block + SPLIT);

  // 4. Q to shared memory
  // Q is negated if scale < 0, so that the largest product stays the largest score.
  const float whole_scale = float(p.scale) * scales.of_keys(shared.kv_head);
  shared.template load_queries<Queries, ROWS, THREADS, false>(queries, whole_scale < 0 ? 0x80008000u : 0);
  const float scale = whole_scale == 0.0f ? 0x1p-149f : fabsf(whole_scale);  // nonzero, so that scale * -inf stays -inf
  const float factor = CHANGED ? math::LOG2E : scale * math::LOG2E;

  const HeldQueries<0, BLOCKS> held = {};
  OnlineSoftmax<BLOCKS> softmax;
  float acc[ROWS / 16][COLUMNS / 8][4] = {};
  // 5. main loop over k_blocks; `stage`: index of the pipeline stage
  for (int stage = 0; block < range.y; block += SPLIT) {
    await_copies<0>();
    if (PAGED && lost) missing = 1;
    __syncthreads();

    // 5a. load the next K, or V of these keys
    const bool more = block + SPLIT < range.y;
    if (more || !joined)
      issue_loads(joined ? stage ^ 1 : 1, joined ? k : v, joined ? p.k_strides : p.v_strides, joined ? p.d : p.d_v);
    look_up(block + (joined ? 2 : 1) * SPLIT);

    // 5b. S = Q K^T
    float s[BLOCKS][2][4];
    const u32 thread = opaque(threadIdx.x),
              at_queries = queries + group * BLOCKS * 16 * Queries::PITCH +
        Queries::template lane_address<true>(thread % 32);
    const u32 tile_at = stages + stage * Tile::BYTES;
    const u32 at_keys = tile_at + Tile::template lane_address<false>(thread % 32);
    if constexpr (HALVED) {
      constexpr int FIRST = (D / 64 + 1) / 2;  // panels of the first half
      const u32 half = part % 2, keys = at_keys + part / 2 * 32 * Tile::PITCH;
      float both[BLOCKS][4][4] = {};
      if (half == 0) add_scores<T, FIRST * 64, Queries, Tile>(both, held, at_queries, keys);
      else
        add_scores<T, D - FIRST * 64, Queries, Tile>(
            both, held, at_queries + FIRST * Queries::PANEL, keys + FIRST * Tile::PANEL);
      add_halves(s, both, half, weights + warp / 2 * (BLOCKS * 1024) + thread % 32 * 16, 1 + WARPS / SPLIT + warp / 2);
    } else {
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
        for (int e = 0; e < 8; ++e) s[b][e / 4][e % 4] = 0.0f;
      add_scores<T, D, Queries, Tile>(s, held, at_queries, at_keys + part * 16 * Tile::PITCH);
    }

    // 5c. masks and score changes
    u32 there = ~0u;  // one bit per key of the warp: its page exists
    if constexpr (PAGED)
      if (missing) there = __ballot_sync(~0u, cache.has(shared.sequence, (block + part) * 16 + thread % 16));
    if (CHANGED || block * 16 < whole_begin || block * 16 + KEYS > whole_end || ~there) {
#pragma unroll
      for (int r = 0; r < OWN; ++r) {
        const int line = shared.first + group * BLOCKS * 16 + int(thread % 32 / 4) + 8 * r;
        const Standing head = shared.standing(line);
        const Keys seen = line < shared.count ? shared.seen_by(line) : Keys{0, 0};
        const float slope = CHANGED && line < shared.count ? slope_of(p, head) : 0.0f;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int key = block * 16 + part * 16 + 8 * n + int(thread % 4) * 2 + e;
            float& score = s[r / 2][n][r % 2 * 2 + e];
            const bool counts = key >= seen.first && key < seen.end && (there >> key % 16 & 1);
            if constexpr (CHANGED)
              score = counts ? changed<T>(p, head, score * scale, shared.token(line), key, slope)
                             : rows::minus_infinity<float>();
            else score = counts ? score : rows::minus_infinity<float>();
          }
      }
    }

    // 5d. online softmax; P and rescale factors to shared memory
    float shrink[BLOCKS][1][4];
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b) shrink[b][0][0] = shrink[b][0][1] = shrink[b][0][2] = shrink[b][0][3] = 1.0f;
    softmax.follow(s, factor, shrink,
        [&](float (&most)[OWN]) { join_rows<BLOCKS, SPLIT, true>(exchange, opaque(threadIdx.x), most); });
    softmax.weigh(s, factor);
#pragma unroll
    for (int r = 0; r < OWN; ++r) {
      const int line = group * BLOCKS * 16 + int(thread % 32 / 4) + 8 * r;
      if (part == 0 && thread % 4 == 0) shrinks[line] = shrink[r / 2][0][r % 2 * 2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const u32 pair = round_pair(s[r / 2][n][r % 2 * 2], s[r / 2][n][r % 2 * 2 + 1], T{});
        asm volatile(
            "st.shared.b32 [%0], %1;" ::"r"(weights + Weights::offset(line, part * 2 + n) + thread % 4 * 4), "r"(pair)
            : "memory");
      }
    }
    if (!joined) await_copies<0>();
    __syncthreads();

    // 5e. V not in K: load the next K
    if (more && !joined) issue_loads(0, k, p.k_strides, p.d);

    // 5f. rescale O; O += P V, one panel of columns per warp
    float by[ROWS / 8];
    bool shrunk = false;
#pragma unroll
    for (int r = 0; r < ROWS / 8; ++r) {
      by[r] = shrinks[thread % 32 / 4 + 8 * r];
      shrunk |= by[r] != 1.0f;
    }
    if (__any_sync(~0u, shrunk))
#pragma unroll
      for (int r = 0; r < ROWS / 8; ++r)
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; ++n) acc[r / 2][n][r % 2 * 2] *= by[r], acc[r / 2][n][r % 2 * 2 + 1] *= by[r];
    const u32 at_weights = weights + Weights::template lane_address<true>(thread % 32);
    const u32 at_values = (joined ? tile_at : stages + Tile::BYTES) + warp * Tile::PANEL +
        Tile::template lane_address<true>(thread % 32);
    add_values<T, KEYS, Tile>(
        acc, [&](u32(&a)[4], int b, int step) { load_matrices<false>(a, Weights::at(at_weights, b, step)); },
        at_values);
    if (joined) stage ^= 1;
  }

  // 6. (m, l) of every row to shared memory
  softmax.add_up();
  const u32 thread = opaque(threadIdx.x);
  join_rows<BLOCKS, SPLIT, false>(exchange, thread, softmax.sum);
#pragma unroll
  for (int r = 0; r < OWN; ++r) {
    const int line = group * BLOCKS * 16 + int(thread % 32 / 4) + 8 * r;
    if (part == 0 && thread % 4 == 0) row_max[line] = softmax.base[r] * factor, sums[line] = softmax.sum[r];
  }
  __syncthreads();

  // 7. combine: one thread per row
  // It computes the rescale factor, 1 / l (with the sink in split 0), lse, and the destination (in place of Q).
  // The tile is recomputed from blockIdx, so that no register holds it through the loop.
  i64* const places = reinterpret_cast<i64*>(memory);
  const u32 line = thread, same = opaque(flat), own_split = split_of(same);
  const SharedRows<T, Out> reloaded = rows_of(same);
  const int own = reloaded.first + int(line);
  if (line < ROWS && own <= reloaded.last) {
    float whole = sums[line], most;
    shrinks[line] = reloaded.with_sink(own_split, own, row_max[line], whole, most);
    sums[line] = reloaded.division(scales.of_values(reloaded.kv_head), whole);
    places[line] = reloaded.template destination<true>(splits, own_split, own);
    reloaded.template store_lse<true>(splits, own_split, own, whole, most);
  }
  __syncthreads();

  // 8. epilogue: store O
  const int rows = reloaded.last - reloaded.first + 1, first_column = opaque(threadIdx.x) / 32 * COLUMNS,
            columns = int(p.d_v) - first_column;
  if (splits.out) store(acc, shrinks, sums, places, rows, columns, splits.out + first_column);
  else store(acc, shrinks, sums, places, rows, columns, p.out + first_column);
}
