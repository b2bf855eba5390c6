// Decoding where many query heads share one long row a key, which holds the values too (DeepSeek's latent attention, absorbed: 576
// columns of keys, of which the first 512 are the values); f16 and bf16; lse on request.
//
// Tiling: a CTA has a split of the keys of one key head, 64 of the rows that share it and all DV columns of values. Eight warps: for
// the scores of KEYS keys each has 16 of them and 16 BLOCKS rows, for weighted values all rows and DV / 8 columns. Weights, and what
// sums are rescaled with, go from the one to the other through shared memory: three barriers a tile.
// HALVED: two warps have 32 of the keys, each by half of the columns, and then add these up: each load of queries serves twice as
// many products, and a tile's scores take 2,300 clocks of shared memory instead of 3,460.
// Shared memory: queries, 74 KB; two tiles of keys, 74 KB each at 64 keys, by cp.async: the next comes while one is multiplied; 8 KB
// of weights. Where values are no columns of the keys, they take the second tile's place, and come while scores are made.
// `alike`: values lie as far apart as keys do, so that they are columns of these where both begin at one address.
// PAGED: rows lie where the table says, looked up a tile ahead; those of pages that are missing are not seen. The first CTAs, one a sequence, look whether pages are there.
// Splits leave (out, lse) for merge.cu; one alone writes the result. Rows are the innermost CTAs, so that those that share keys run
// together, and all but the first find them in L2.
// Bound: shared memory in the scores (1.5 KB a warp for 16 x 2048 multiply-adds), tensor cores in the values. 5,700 clocks for 64
// rows and keys, or for 128 rows 0.8 ns a key on an H200, beside 0.25 ns in which its 1152 bytes are read: 3 times the floor.
// What a CTA does once is short: code that runs once costs what it takes to fetch it, and the loop's is evicted by it.
#include "attention/anew.cuh"
#include "attention/decoding.cuh"
#include "attention/forward_products.cuh"
#include "attention/pages.cuh"
#include "overlap.cuh"

using namespace attention;

// Scores of 32 keys by half of the columns become those of 16 keys, the first ones where `half` is 0, by all: with those of the
// neighbouring warp, by way of a lane's places from `at` on.
template <int BLOCKS> __device__ __forceinline__ void add_halves(float (&s)[BLOCKS][2][4], const float (&both)[BLOCKS][4][4], u32 half, u32 at, u32 barrier) {
  const auto place = [&](int b, int n) { return at + (2 * b + n) * 512; };
  const auto leave = [&](int first) {
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
  if (half) leave(0);
  meet(barrier, 64);
  if (!half) take(0), leave(2);
  meet(barrier, 64);
  if (half) take(2);
}

// The first `rows` of a warp's rows of weighted values, and `columns` of its columns, each row times two factors, to where it begins.
template <int BLOCKS, int N, class To>
__device__ __forceinline__ void leave(const float (&acc)[BLOCKS][N][4], const float* weights, const float* divisions, const i64* places, int rows, int columns, To* to) {
  const int lane = anew(threadIdx.x) % 32;
#pragma unroll
  for (int r = 0; r < 2 * BLOCKS; ++r) {
    const int line = lane / 4 + 8 * r;
    if (line >= rows) break;
    const float weight = weights[line], division = divisions[line];
    To* first = to + places[line] + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float pair[2] = {acc[r / 2][n][r % 2 * 2] * weight * division, acc[r / 2][n][r % 2 * 2 + 1] * weight * division};
      if (8 * n < columns) *reinterpret_cast<Vec<To, 2>*>(first + 8 * n) = round_to<To>(pair);
    }
  }
}

template <class T, class Out, int D, int DV, int KEYS, bool HALVED, bool CHANGED, bool PAGED>
__global__ void __launch_bounds__(256, 1)
attention_decode_latent(Problem<T, Out, float> p, Cache cache, Scales scales, Splits splits, u32 tiles, u32 alike) {
  constexpr int THREADS = 256, WARPS = 8, ROWS = 64, SPLIT = KEYS / 16, BLOCKS = ROWS * SPLIT / WARPS / 16, OWN = 2 * BLOCKS;
  constexpr int COLUMNS = DV / WARPS, AT_ONCE = THREADS / 8, PASSES = KEYS / AT_ONCE;
  using Queries = Panels<ROWS, D>;
  using Tile = Panels<KEYS, D>;
  using Weights = Panels<ROWS, KEYS>;
  static_assert(COLUMNS == 64 && DV <= D, "a warp's columns of values are a panel");
  extern __shared__ __align__(1024) u8 memory[];
  __shared__ float shrinks[ROWS], reached[ROWS], sums[ROWS];
  __shared__ float exchanged[WARPS * BLOCKS * 16];
  __shared__ volatile int missing;  // whether a page is that has been looked up
  const u32 queries = shared_address(memory), ring = queries + Queries::BYTES, weights = ring + 2 * Tile::BYTES;
  const u32 exchange = shared_address(exchanged);
  const int warp = threadIdx.x / 32, group = warp / SPLIT, part = warp % SPLIT;
  overlap::wait();
  overlap::release();

  // Which split of which rows of which head
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

  // Its blocks of keys: those that some of its rows see
  const Keys highest = shared.seen_by(shared.last), lowest = shared.seen_by(shared.first);
  const int begin = lowest.first, end = highest.end, whole_begin = highest.first, whole_end = lowest.end;
  const int2 range = begin < end ? splits.range(split, begin, end, SPLIT) : int2{0, 0};
  if (split && range.x >= range.y) {
    shared.template leave_nothing<THREADS>(splits, split);
    return;
  }
  int block = range.x;
  while (block * 16 + KEYS <= begin) block += SPLIT;
  if constexpr (PAGED) {
    if (threadIdx.x == 0) missing = 0;
    __syncthreads();
  }

  // Copies of a tile, a panel's chunk a thread, AT_ONCE rows at a time. `page` and `slot` are where its rows of the next tile lie.
  const T *k = p.k + shared.kv_head * p.k_walk.head, *v = p.v + shared.kv_head * p.v_walk.head;
  const bool joined = alike && p.k == p.v;
  int page[PASSES], slot[PASSES];
  bool lost = false;  // a page that the thread has looked up
  const auto look_up = [&](int next) {
#pragma unroll
    for (int i = 0; i < PASSES; ++i) {
      const int key = next * 16 + int(anew(threadIdx.x) / 8) + i * AT_ONCE;
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
  const auto bring = [&](int turn, const T* from, const Walk& walk, u32 columns) {
    const u32 thread = anew(threadIdx.x), to = ring + turn * Tile::BYTES + Tile::offset(thread / 8, thread % 8);
#pragma unroll
    for (int i = 0; i < PASSES; ++i) {
      const T* line = from + page[i] * walk.batch + slot[i] * walk.row + thread % 8 * 8;
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel)
        copy_async<16>(to + panel * Tile::PANEL + i * AT_ONCE * Tile::PITCH, line + panel * 64, page[i] >= 0 && panel * 64 + int(thread % 8 * 8) < int(columns) ? 16 : 0);
    }
    commit_copies();
  };
  look_up(block);
  if (block < range.y) bring(0, k, p.k_walk, p.d);
  if (joined) look_up(block + SPLIT);

  // Queries; a negative scale is theirs, so that the highest product has the highest score
  const float whole_scale = float(p.scale) * scales.of_keys(shared.kv_head);
  shared.template bring_queries<Queries, ROWS, THREADS, false>(queries, whole_scale < 0 ? 0x80008000u : 0);
  const float scale = whole_scale == 0.0f ? 0x1p-149f : fabsf(whole_scale);  // times -inf still -inf
  const float factor = CHANGED ? math::LOG2E : scale * math::LOG2E;

  const HeldQueries<0, BLOCKS> held = {};
  OnlineSoftmax<BLOCKS> softmax;
  float acc[ROWS / 16][COLUMNS / 8][4] = {};
  for (int turn = 0; block < range.y; block += SPLIT) {
    await_copies<0>();
    if (PAGED && lost) missing = 1;
    __syncthreads();

    // The next tile, or these keys' values
    const bool more = block + SPLIT < range.y;
    if (more || !joined) bring(joined ? turn ^ 1 : 1, joined ? k : v, joined ? p.k_walk : p.v_walk, joined ? p.d : p.d_v);
    look_up(block + (joined ? 2 : 1) * SPLIT);

    // Scores
    float s[BLOCKS][2][4];
    const u32 thread = anew(threadIdx.x), at_queries = queries + group * BLOCKS * 16 * Queries::PITCH + Queries::template enter<true>(thread % 32);
    const u32 tile_at = ring + turn * Tile::BYTES;
    const u32 at_keys = tile_at + Tile::template enter<false>(thread % 32);
    if constexpr (HALVED) {
      constexpr int FIRST = (D / 64 + 1) / 2;  // panels
      const u32 half = part % 2, keys = at_keys + part / 2 * 32 * Tile::PITCH;
      float both[BLOCKS][4][4] = {};
      if (half == 0) add_scores<T, FIRST * 64, Queries, Tile>(both, held, at_queries, keys);
      else add_scores<T, D - FIRST * 64, Queries, Tile>(both, held, at_queries + FIRST * Queries::PANEL, keys + FIRST * Tile::PANEL);
      add_halves(s, both, half, weights + warp / 2 * (BLOCKS * 1024) + thread % 32 * 16, 1 + WARPS / SPLIT + warp / 2);
    } else {
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
        for (int e = 0; e < 8; ++e) s[b][e / 4][e % 4] = 0.0f;
      add_scores<T, D, Queries, Tile>(s, held, at_queries, at_keys + part * 16 * Tile::PITCH);
    }

    // Which count, and as what
    u32 there = ~0u;  // a bit a key of the warp's
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
            if constexpr (CHANGED) score = counts ? changed<T>(p, head, score * scale, shared.token(line), key, slope) : rows::minus_infinity<float>();
            else score = counts ? score : rows::minus_infinity<float>();
          }
      }
    }

    // Weights, and what the sums of these rows are to be rescaled with
    float shrink[BLOCKS][1][4];
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b) shrink[b][0][0] = shrink[b][0][1] = shrink[b][0][2] = shrink[b][0][3] = 1.0f;
    softmax.follow(s, factor, shrink, [&](float(&most)[OWN]) { join_rows<BLOCKS, SPLIT, true>(exchange, anew(threadIdx.x), most); });
    softmax.weigh(s, factor);
#pragma unroll
    for (int r = 0; r < OWN; ++r) {
      const int line = group * BLOCKS * 16 + int(thread % 32 / 4) + 8 * r;
      if (part == 0 && thread % 4 == 0) shrinks[line] = shrink[r / 2][0][r % 2 * 2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const u32 pair = round_pair(s[r / 2][n][r % 2 * 2], s[r / 2][n][r % 2 * 2 + 1], T{});
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(weights + Weights::offset(line, part * 2 + n) + thread % 4 * 4), "r"(pair) : "memory");
      }
    }
    if (!joined) await_copies<0>();
    __syncthreads();

    // The next keys, in place of those whose values are apart
    if (more && !joined) bring(0, k, p.k_walk, p.d);

    // Weighted values, a panel of columns a warp
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
    const u32 at_weights = weights + Weights::template enter<true>(thread % 32);
    const u32 at_values = (joined ? tile_at : ring + Tile::BYTES) + warp * Tile::PANEL + Tile::template enter<true>(thread % 32);
    add_values<T, KEYS, Tile>(acc, [&](u32(&a)[4], int b, int step) { load_matrices<false>(a, Weights::at(at_weights, b, step)); }, at_values);
    if (joined) turn ^= 1;
  }

  // Rows' highest scores and sums of weights, for all
  softmax.add_up();
  const u32 thread = anew(threadIdx.x);
  join_rows<BLOCKS, SPLIT, false>(exchange, thread, softmax.sum);
#pragma unroll
  for (int r = 0; r < OWN; ++r) {
    const int line = group * BLOCKS * 16 + int(thread % 32 / 4) + 8 * r;
    if (part == 0 && thread % 4 == 0) reached[line] = softmax.base[r] * factor, sums[line] = softmax.sum[r];
  }
  __syncthreads();

  // What a row's values are multiplied with (`shrinks`, `sums`), its lse, with the sink's term in the first split, and where it goes, in
  // place of queries: a thread a row. Which rows is made out again, so that no register keeps it.
  i64* const places = reinterpret_cast<i64*>(memory);
  const u32 line = thread, same = anew(flat), own_split = split_of(same);
  const SharedRows<T, Out> again = rows_of(same);
  const int own = again.first + int(line);
  if (line < ROWS && own <= again.last) {
    const float sink = own_split == 0 ? sink_of<T, float>(p, again.standing(own)) * math::LOG2E : rows::minus_infinity<float>();
    const float highest_here = reached[line], most = fmaxf(highest_here, sink), base = OnlineSoftmax<BLOCKS>::shift(most);
    const float weight = math::ex2_ftz(highest_here - base), whole = math::ex2_ftz(sink - base) + sums[line] * weight;
    shrinks[line] = weight;
    sums[line] = again.division(scales.of_values(again.kv_head), whole);
    places[line] = again.template destination<true>(splits, own_split, own);
    again.template leave_lse<true>(splits, own_split, own, whole, most);
  }
  __syncthreads();

  // The result
  const int rows = again.last - again.first + 1, first_column = anew(threadIdx.x) / 32 * COLUMNS, columns = int(p.d_v) - first_column;
  if (splits.out) leave(acc, shrinks, sums, places, rows, columns, splits.out + first_column);
  else leave(acc, shrinks, sums, places, rows, columns, p.out + first_column);
}
