// out = softmax(change(scale q k^T)) v, lse on request, by wgmma (Hopper); f16, bf16. FlashAttention-3 forward (J. Shah
// et al., arXiv:2407.08608): asynchronous products, one block of scores ahead of the values.
//
// Tiling:    one CTA per BM queries of one head; k_blocks of BN keys, from the last visible key down to the first. Head
//            dims are filled up to D and DV, multiples of 64, with zeros by TMA.
// Threads:   one producer warpgroup, of which one thread issues TMA, and BM / 64 consumer warpgroups of 64 queries:
//            S = Q K^T from shared memory, online softmax in registers (softmax.cuh), P rounded to T in registers as
//            the A operand of O += P V. S of the next k_block is issued before P V of this one, and its softmax is
//            computed while P V runs; AHEAD: so are the first scores of the next tile with the last P V of this one.
// Pipeline:  STAGES slots of keys and STAGES of values, full and empty mbarriers each. ORDERED: named barriers let the
//            consumers issue their products in turn, so that one's softmax runs during the other's products.
// Masking:   only k_blocks at an edge of a consumer's rows compare indices. CHANGES (changes.cuh): softcap, ALiBi, and
//            bool masks, packed into bits by mask_bits.cu, which are read while the scores are computed.
// Pages:     BOXES > 0: K and V by a page table, BOXES boxes per k_block, each within a page and issued by its own
//            lane. Boxes that no query of the tile sees, and missing pages, are outside of the pool, where TMA reads
//            zeros; keys of missing pages are masked. The first cache.sequences CTAs only check page tables.
// Tails:     TMA zero-fills past the tensor; values behind the last key that any query sees are overwritten with zeros
//            (weights of 0 would meet a NaN), their scores are masked.
// Grid:      query tiles from the last to the first (longest first under causal), `section` heads interleaved for L2. A
//            CTA takes the next tile that no CTA has taken (`counter`), or every gridDim.x-th; its Q and K are loaded
//            while the last one ends. The producer hands the tiles' numbers to the consumers.
// Shared:    Q, STAGES x (K, V) as panels of 64 columns in the 128-byte swizzle, barriers, two tile numbers.
// Bound:     tensor cores; exponentials for D = 64.
#include "attention/capped.cuh"
#include "attention/changes.cuh"
#include "attention/head_boxes.cuh"
#include "attention/mask_bits.cuh"
#include "attention/page_boxes.cuh"
#include "attention/pages.cuh"
#include "attention/softmax.cuh"
#include "ptx/warpgroup.cuh"

using namespace attention;

// Named barriers: that and the consumer's index (CONSUMER: its threads; TURN: it may issue its products), ZEROED: all
// consumers have overwritten the values behind the last key.
constexpr u32 BARRIER_CONSUMER = 1, BARRIER_ZEROED = 4, BARRIER_TURN = 5;

constexpr int ORIGINS = 16;  // multiples of keys at which k_blocks of several heads begin, so that boxes stay in a page

// HeadBoxes that say what is expected of them.
struct Operand : HeadBoxes {
  using HeadBoxes::HeadBoxes;
  // Loads a k_block of pages, warp-wide, into panels at `to`. A pool whose pages are not stepped has one at most.
  template <int BN, int COLUMNS, int BOXES> __device__ __forceinline__ void load(
      u32 to, const TensorMap& map, const PageBoxes<BN, BOXES>& boxes, u32 pages, bool stepped, u32 full) const {
    const u32 lane = threadIdx.x % 32;
    if (lane == 0) barrier::expect(full, BN * COLUMNS * 2);
    __syncwarp();
    if (lane >= BOXES) return;
    const u32 page = stepped || boxes.page == pages ? boxes.page : 0;
#pragma unroll
    for (int x = 0; x < COLUMNS; x += 64)
      tma::load<true, false>(to + (x / 64 * BN + lane * (BN / BOXES)) * PANEL_ROW, map, x, boxes.row,
          BatchIndex{{0, page, place.at[2]}}, full, 0);
  }
  // Loads ROWS rows from `first` on into panels at `to`.
  template <int ROWS, int COLUMNS> __device__ __forceinline__ void load(
      u32 to, const TensorMap& map, int first, u32 full) const {
    barrier::expect(full, ROWS * COLUMNS * 2);
    HeadBoxes::load<ROWS, COLUMNS>(to, map, first, full);
  }
};

// The descriptor of BN keys' values, MN-major, in panels of 64 columns.
template <int BN> __device__ __forceinline__ u64 descriptor_of_values(u32 address) {
  return u64((address & 0x3ffff) >> 4) | u64(BN * PANEL_ROW >> 4) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}

template <int N> __device__ __forceinline__ void pin_tile(float (&x)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i) warpgroup::pin(x[i]);
}

// What TilePlace reads of a problem, HEADS heads as one.
template <int HEADS> struct HeadTiles { const i32* starts_q; u32 heads, rows; };
// TilePlace calls this one for them: a tile of several heads may begin before a sequence's first query, so each has one
// tile more.
template <int QUERIES, int HEADS>
__device__ __forceinline__ u32 first_tile(const HeadTiles<HEADS>& p, u32 sequence) {
  return attention::first_tile<QUERIES, HeadTiles<HEADS>>(p, sequence) + (HEADS > 1 ? sequence : 0);
}
// A tile's place; `head` is the first of its heads.
template <int QUERIES, int HEADS> struct TileOfHeads : TilePlace<QUERIES, HeadTiles<HEADS>> {
  template <class P> __device__ __forceinline__ TileOfHeads(const P& p, u32 number, u32 tiles, u32 section, u32 heads)
      : TilePlace<QUERIES, HeadTiles<HEADS>>({p.starts_q, p.heads / HEADS, p.rows}, number, tiles, section, heads) {
    this->head *= HEADS;
  }
};

// One tile: its head, HEADS of which take the same keys, and the k_blocks [begin, end) that hold the keys that some
// query of the tile sees. `own`: the head's number in the tile.
template <class T, class Out, int QUERIES, int BN, int HEADS, bool PAGED, int CHANGES> struct Tile {
  Head<T, Out, float> head;
  Band band;
  Keys seen;  // by some query
  float slope;
  int row, origin, begin, end;  // row: the first of the tile; origin: the first key of k_block 0
  __device__ __forceinline__ Tile(
      const Problem<T, Out, float>& p, const TileOfHeads<QUERIES, HEADS>& at, const Cache& cache, u32 own)
      : head(p, at.batch, at.head + own), row(at.tile * QUERIES) {
    if constexpr (PAGED) head.keys = cache.length(at.batch), head.offset = i64(head.keys) - head.rows;
    band = Band::make(p, head);
    slope = CHANGES & SLOPE ? slope_of(p, head) : 0.0f;
    // Tiles begin at multiples of QUERIES keys, so that a row's bits are the same in every chunk of queries
    if (HEADS > 1) row -= int(head.offset & (QUERIES - 1));
    const bool exists = at.tile >= 0 && row < head.rows;
    seen = {band.of(HEADS > 1 ? max(row, 0) : row).first, band.of(min(row + QUERIES, head.rows) - 1).end};
    origin = HEADS > 1 ? band.of(row).first / ORIGINS * ORIGINS % BN : 0;
    begin = (seen.first - origin) / BN;
    end = exists ? (seen.end - origin + BN - 1) / BN : begin;
    if (!exists) row = head.rows;
  }
  __device__ __forceinline__ int key(int block) const { return origin + block * BN; }
};

// Four lanes of a quad have two columns each of four groups of eight columns; afterwards each has a whole group.
__device__ __forceinline__ void gather_groups(u32 (&x)[4], u32 lane) {
#pragma unroll
  for (int step = 1; step < 4; step *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (!(i & step)) {
        const bool upper = lane & step;
        const u32 got = __shfl_xor_sync(~0u, upper ? x[i] : x[i + step], step);
        if (upper) x[i] = got;
        else x[i + step] = got;
      }
}

// Scores that their rows do not see become -inf; where all do but in the first and the last MARGIN columns, others are
// not looked at.
template <int MARGIN, int N>
__device__ __forceinline__ void hide_outside(float (&s)[N][4], const Band& band, int row, int column) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const Keys seen = band.of(row + 8 * r);
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if ((n < MARGIN / 8 || n >= N - MARGIN / 8) &&
            u32(8 * n + e - (seen.first - column)) >= u32(max(seen.end - seen.first, 0)))
          s[n][r * 2 + e] = rows::minus_infinity<float>();
  }
}

template <class T, class Out, int D, int DV, int BM, int BN, int HEADS, int STAGES, bool ORDERED, bool AHEAD,
    int CHANGES, int BOXES>
__device__ __forceinline__ void forward(const Problem<T, Out, float>& p, const TensorMap& q_map, const TensorMap& k_map,
    const TensorMap& v_map, u32 tiles, u32 section, u32 heads, u32 count, u32* counter, const Cache& cache = {},
    const Scales& scales = {}) {
  constexpr bool PAGED = BOXES > 0;
  constexpr int CONSUMERS = BM / 64, QUERIES = BM / HEADS;
  constexpr u32 Q_PANEL = BM * PANEL_ROW, KV_PANEL = BN * PANEL_ROW;
  constexpr u32 K_BYTES = D / 64 * KV_PANEL, V_BYTES = DV / 64 * KV_PANEL;
  using At = TileOfHeads<QUERIES, HEADS>;
  using Work = Tile<T, Out, QUERIES, BN, HEADS, PAGED, CHANGES>;
  extern __shared__ __align__(1024) u8 memory[];
  const u32 queries = shared_address(memory), keys = queries + D / 64 * Q_PANEL, values = keys + STAGES * K_BYTES;
  // Barriers: full and empty of keys, full and empty of values, STAGES each; full and empty of the queries.
  const u32 keys_full = values + STAGES * V_BYTES, keys_empty = keys_full + 8 * STAGES,
            values_full = keys_empty + 8 * STAGES, values_empty = values_full + 8 * STAGES,
            queries_full = values_empty + 8 * STAGES, queries_empty = queries_full + 8;
  // Two tile numbers: full, empty, and the numbers
  const u32 tiles_full = queries_empty + 8, tiles_empty = tiles_full + 16, numbers = tiles_empty + 16;
  const u32 absents = numbers + 8;  // PAGED: of each slot of keys, the boxes whose pages are missing
  // 0. page-table check: one CTA per sequence
  if constexpr (PAGED)
    if (blockIdx.x < cache.sequences) return check<128 + 2 * BM>(cache, p, blockIdx.x);
  const u32 first_cta = PAGED ? cache.sequences : 0, ctas = gridDim.x - first_cta;

  // 1. barriers
  if (threadIdx.x == 0) {
    tma::prefetch(q_map);
    tma::prefetch(k_map);
    tma::prefetch(v_map);
    for (int i = 0; i < STAGES; ++i) {
      barrier::init(keys_full + 8 * i, 1);
      barrier::init(keys_empty + 8 * i, 4 * CONSUMERS);
      barrier::init(values_full + 8 * i, 1);
      barrier::init(values_empty + 8 * i, 4 * CONSUMERS);
    }
    for (int i = 0; i < 2; ++i) {
      barrier::init(tiles_full + 8 * i, 1);
      barrier::init(tiles_empty + 8 * i, 4 * CONSUMERS);
    }
    barrier::init(queries_full, 1);
    barrier::init(queries_empty, 4 * CONSUMERS);
    barrier::fence_init();
  }
  __syncthreads();
  const u32 group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  Cursor<STAGES> at_keys, at_values;
  Cursor<1> at_queries;
  Cursor<2> at_numbers;
  // 2. producer warpgroup: one thread of a warp issues the loads, keys one k_block ahead of values
  if (group == 0) {
    warpgroup::give_registers<CONSUMERS == 2 ? 40 : PAGED ? 56 : 32>();
    if (__shfl_sync(~0u, threadIdx.x / 32, 0) != 0) return;
    const bool lead = threadIdx.x == 0, issues = PAGED || lead;
    u32 number = blockIdx.x - first_cta;
#pragma unroll 1
    while (true) {
      if (lead) {
        barrier::wait(tiles_empty + 8 * at_numbers.stage, at_numbers.parity ^ 1);
        store_shared(numbers + 4 * at_numbers.stage, i32(number));
        barrier::arrive(tiles_full + 8 * at_numbers.stage);
      }
      at_numbers.next();
      if (number >= count) return;
      const At at(p, number, tiles, section, heads);
      const Work work(p, at, cache, 0);
      if (issues && work.begin < work.end) {
        const u32 kv_head = at.head / p.group;
        const int first_query = Extent(p.starts_q, at.batch, p.rows).first,
                  first_key = Extent(p.starts_k, at.batch, p.keys).first;
        const Operand of_queries(p.q_strides, first_query, p.starts_q ? 0 : at.batch, at.head);
        const Operand of_keys(p.k_strides, first_key, p.starts_k ? 0 : at.batch, kv_head);
        const Operand of_values(p.v_strides, first_key, p.starts_k ? 0 : at.batch, kv_head);
        barrier::wait(queries_empty, at_queries.parity ^ 1);
        if (lead) of_queries.template load<BM, D>(queries, q_map, work.row, queries_full);
        at_queries.next();
        // Pages of `block`, of the block after it and of the one before it, which are looked up ahead of the barriers
        PageBoxes<BN, PAGED ? BOXES : 1> boxes, last, next;
        const auto look_up = [&](int first) {
          if constexpr (PAGED)
            next.look_up(cache, cache.table + at.batch * cache.table_step, first, work.seen);
        };
        look_up(work.key(work.end - 1));
        // Keys of `block`, values of the block after it
#pragma unroll 1
        for (int block = work.end - 1; block >= work.begin - 1; --block) {
          if constexpr (PAGED) last = boxes, boxes = next;
          if (block > work.begin) look_up(work.key(block - 1));
          if (block >= work.begin) {
            const u32 to = keys + at_keys.stage * K_BYTES, full = keys_full + 8 * at_keys.stage;
            barrier::wait(keys_empty + 8 * at_keys.stage, at_keys.parity ^ 1);
            if constexpr (PAGED) {
              if (lead) store_shared(absents + 4 * at_keys.stage, i32(boxes.absent));
              of_keys.template load<BN, D>(to, k_map, boxes, cache.pages, p.k_strides.batch != 0, full);
            } else {
              of_keys.template load<BN, D>(to, k_map, work.key(block), full);
            }
            at_keys.next();
          }
          if (block + 1 < work.end) {
            const u32 to = values + at_values.stage * V_BYTES, full = values_full + 8 * at_values.stage;
            barrier::wait(values_empty + 8 * at_values.stage, at_values.parity ^ 1);
            if constexpr (PAGED)
              of_values.template load<BN, DV>(to, v_map, last, cache.pages, p.v_strides.batch != 0, full);
            else of_values.template load<BN, DV>(to, v_map, work.key(block + 1), full);
            at_values.next();
          }
        }
      }
      if (lead) number = counter ? ctas + atomicAdd(counter, 1u) : number + ctas;
      number = __shfl_sync(~0u, number, 0);
    }
  }

  // 3. consumer warpgroups
  warpgroup::take_registers<CONSUMERS == 2 ? 232 : PAGED ? 152 : 160>();
  const u32 consumer = group - 1, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  // The scale is not 0, so that factor * -inf stays -inf.
  const float signed_scale = float(p.scale) * (PAGED ? float(scales.k_number) : 1.0f);
  constexpr int ADDED = CHANGES & ~BITS;  // a bool mask adds nothing
  const Units units = units_of<ADDED>(p, fmaxf(fabsf(signed_scale), 0x1p-149f));
  const float factor = units.unit * math::LOG2E;
  const u64 of_queries = warpgroup::descriptor<false>(queries) + consumer * warpgroup::NEXT_64;
  const auto release = [&](u32 empty) {
    if (lane == 0) barrier::arrive(empty);
  };
  const auto turn = [&](u32 of) { return BARRIER_TURN + of; };
  if (ORDERED && consumer == CONSUMERS - 1) barrier_arrive(turn(0), 256);

  const auto take_number = [&] {
    barrier::wait(tiles_full + 8 * at_numbers.stage, at_numbers.parity);
    const u32 taken = load_shared<u32>(numbers + 4 * at_numbers.stage);
    __syncwarp();
    release(tiles_empty + 8 * at_numbers.stage);
    at_numbers.next();
    return taken;
  };
  // Rows of the tile are head by head: a warp's are of one head.
  const auto of_head = [](u32 row) { return int(HEADS == 1 ? row : row % QUERIES); };
  const auto work_of = [&](u32 number) {
    const u32 own = HEADS == 1 ? 0 : (consumer * 64 + warp * 16) / QUERIES;
    return Work(p, At(p, min(number, count - 1), tiles, section, heads), cache, own);
  };
  const auto warp_row = [&](const Work& work) { return work.row + of_head(consumer * 64 + warp * 16); };
  const auto row_of = [&](const Work& work) { return warp_row(work) + int(lane / 4); };
  OnlineSoftmax<1> softmax;
  float acc[1][DV / 8][4], s[1][BN / 8][4];
  u32 weights[BN / 16][4];
  // Queries, negated if scale < 0, so that the largest product stays the largest score
  const auto await_queries = [&] {
    barrier::wait(queries_full, at_queries.parity);
    at_queries.next();
    if (signed_scale < 0) {
#pragma unroll 1
      for (u32 i = thread; i < D / 64 * 64 * PANEL_ROW / 4; i += 128) {
        constexpr u32 OWN = 64 * PANEL_ROW / 4;
        const u32 word = queries + i / OWN * Q_PANEL + (consumer * OWN + i % OWN) * 4;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(word), "r"(load_shared<u32>(word) ^ 0x80008000u) : "memory");
      }
      tma::fence_shared();
      barrier_sync(BARRIER_CONSUMER + consumer, 128);
    }
  };
  // S = Q K^T of the next k_block, not waited for
  const auto issue_scores = [&] {
    barrier::wait(keys_full + 8 * at_keys.stage, at_keys.parity);
    const u64 of_keys = warpgroup::descriptor<false>(keys + at_keys.stage * K_BYTES);
    pin_tile(s[0]);
    warpgroup::arrive();
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      wgmma_scores(s[0], of_queries + (k / 4 * (Q_PANEL >> 4) + k % 4 * warpgroup::NEXT_K<false>),
          of_keys + (k / 4 * (KV_PANEL >> 4) + k % 4 * warpgroup::NEXT_K<false>), k != 0);
    warpgroup::commit();
  };
  // O += P V, not waited for
  const auto issue_values = [&] {
    barrier::wait(values_full + 8 * at_values.stage, at_values.parity);
    const u64 of_values = descriptor_of_values<BN>(values + at_values.stage * V_BYTES);
    pin_tile(acc[0]);
    warpgroup::arrive();
#pragma unroll
    for (int k = 0; k < BN / 16; ++k) wgmma_values(acc[0], weights[k], of_values + k * warpgroup::NEXT_K<true>, 1);
    warpgroup::commit();
  };
  // Both, in this consumer's turn
  const auto issue_both = [&] {
    if constexpr (ORDERED) barrier_sync(turn(consumer), 256);
    issue_scores();
    issue_values();
    if constexpr (ORDERED) barrier_arrive(turn(consumer + 1 == CONSUMERS ? 0 : consumer + 1), 256);
  };
  // Scores of `block` have arrived
  u32 absent = 0;  // PAGED: boxes of the k_block whose pages are missing
  const auto scores_done = [&](const Work& work, int block) {
    pin_tile(s[0]);
    if constexpr (PAGED) {
      absent = load_shared<u32>(absents + 4 * at_keys.stage);
      __syncwarp();
    }
    release(keys_empty + 8 * at_keys.stage);
    at_keys.next();
    if (block == work.begin) release(queries_empty);
  };
  const auto values_done = [&] {
    pin_tile(acc[0]);
    release(values_empty + 8 * at_values.stage);
    at_values.next();
  };
  // The mask's bits, read ahead
  static_assert(!(CHANGES & BITS) || HEADS == 1);
  MaskBits<CHANGES & BITS ? BN : 16> mask;
  const auto read_mask = [&](const Work& work, int block) {
    if constexpr ((CHANGES & BITS) != 0) mask.load(p, work.head, row_of(work), block);
  };
  // Scores become weights; `shrink` are the rows' factors for O. `whole`: keys that every query of the consumer sees.
  const auto weigh = [&](const Work& work, int block, float (&shrink)[1][1][4]) {
    const int own_row = work.row + of_head(consumer * 64),
              own_last = min(own_row + min(64, QUERIES), work.head.rows) - 1;
    const Keys whole{work.band.of(own_last).first, work.band.of(own_row).end};
    const bool edge = work.key(block) < whole.first || work.key(block + 1) > whole.end;
    const int column = work.key(block) + int(lane % 4 * 2);
    if constexpr ((CHANGES & (CAP | BITS)) == CAP) {
      cap_scores(s[0], work.band, units.by, row_of(work), column, edge);
      const Units rest{units.cap, 1.0f, units.unit};
      change_scores<CHANGES & SLOPE, T>(
          s, p, work.head, work.band, rest, work.slope, row_of(work), column, edge, false);
    } else {
      change_scores<ADDED, T>(
          s, p, work.head, work.band, units, work.slope, row_of(work), column, HEADS == 1 && edge, false);
      if (HEADS > 1 && edge) {
        const bool inner = work.key(block) + QUERIES >= whole.first && work.key(block + 1) - QUERIES <= whole.end;
        if (inner) hide_outside<QUERIES>(s[0], work.band, row_of(work), column);
        else hide_outside<BN>(s[0], work.band, row_of(work), column);
      }
    }
    if constexpr ((CHANGES & BITS) != 0) mask.hide(s[0]);
    if (PAGED && absent)
#pragma unroll
      for (int n = 0; n < BN / 8; ++n)
        if (absent >> 8 * n / (BN / (PAGED ? BOXES : 1)) & 1)
#pragma unroll
          for (int e = 0; e < 4; ++e) s[0][n][e] = rows::minus_infinity<float>();
    softmax.follow(s, factor, shrink, [](float (&)[2]) {});
    softmax.weigh(s, factor);
  };
  const auto weigh_first = [&](const Work& work) {
    float shrink[1][1][4] = {};
    softmax = OnlineSoftmax<1>();
    weigh(work, work.end - 1, shrink);
  };
  const auto pack = [&] {
#pragma unroll
    for (int k = 0; k < BN / 16; ++k) pack_weights<T>(weights[k], s[0], k);
  };

  u32 number = take_number();
  Work work = work_of(number);
  bool primed = false;  // the tile's first scores have become weights
#pragma unroll 1
  while (number < count) {
#pragma unroll
    for (int c = 0; c < DV / 8; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[0][c][e] = 0.0f;
    const bool sees = work.begin < work.end;
    if (sees) {
      // 3a. scores of the last k_block
      if (!primed) {
        await_queries();
        issue_scores();
        read_mask(work, work.end - 1);
        warpgroup::wait<0>();
        scores_done(work, work.end - 1);
        weigh_first(work);
        pack();
      }
      // Zeros for values behind the last key that any query of the sequence sees
      const int seen = work.band.of(work.head.rows - 1).end;
      if (seen < min(work.key(work.end), int(p.keys) - Extent(p.starts_k, work.head.batch, p.keys).first)) {
        barrier::wait(values_full + 8 * at_values.stage, at_values.parity);
        const u32 slot = values + at_values.stage * V_BYTES;
        const u32 from = (seen - work.key(work.end - 1)) * PANEL_ROW, chunks = (KV_PANEL - from) / 16;
#pragma unroll 1
        for (u32 i = threadIdx.x - 128; i < DV / 64 * chunks; i += 128 * CONSUMERS)
          store_shared(slot + i / chunks * KV_PANEL + from + i % chunks * 16, Vec<float, 4>{});
        tma::fence_shared();
        barrier_sync(BARRIER_ZEROED, 128 * CONSUMERS);
      }
      // 3b. main loop: scores of `block`, values of block + 1
#pragma unroll 1
      for (int block = work.end - 2; block >= work.begin; --block) {
        issue_both();
        read_mask(work, block);
        warpgroup::wait<1>();
        scores_done(work, block);
        float shrink[1][1][4] = {{{1.0f, 1.0f, 1.0f, 1.0f}}};
        weigh(work, block, shrink);
        warpgroup::wait<0>();
        values_done();
        if (__any_sync(~0u, shrink[0][0][0] != 1.0f || shrink[0][0][2] != 1.0f)) {
#pragma unroll
          for (int c = 0; c < DV / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[0][c][e] *= shrink[0][0][e / 2 * 2];
        }
        pack();
      }
    } else {
      softmax = OnlineSoftmax<1>();
    }

    // 3c. values of the first k_block, with the next tile's first scores
    const u32 following = take_number();
    const Work next = work_of(following);
    primed = AHEAD && sees && following < count && next.begin < next.end;
    OnlineSoftmax<1> sums = softmax;
    if (primed) {
      await_queries();
      issue_both();
      read_mask(next, next.end - 1);
      warpgroup::wait<1>();
      scores_done(next, next.end - 1);
      weigh_first(next);
      warpgroup::wait<0>();
      values_done();
      pack();
    } else if (sees) {
      issue_values();
      warpgroup::wait<0>();
      values_done();
    }

    // 4. epilogue: row sums, 1 / l, lse; rows of O by 16 bytes a thread
    const int row = row_of(work);
    const float sink = sink_of<T, float>(p, work.head);
    const auto exists = [&](int r) { return row + 8 * r < work.head.rows && (HEADS == 1 || row + 8 * r >= 0); };
    float scale[2];
    sums.add_up();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float lse;
      sums.finish(r, factor, sink, scale[r], lse);
      if constexpr (PAGED) scale[r] *= float(scales.v_number);
      if (work.head.lse && lane % 4 == 0 && exists(r))
        work.head.lse[(row + 8 * r) * p.lse_strides.row] = lse;
    }
    const auto store = [&](int r) {
      Out* const to = work.head.out + (row + 8 * r) * p.out_strides.row;
      if constexpr (sizeof(Out) == 2) {
#pragma unroll
        for (int c = 0; c < DV / 8; c += 4) {
          u32 words[4];
#pragma unroll
          for (int i = 0; i < 4; ++i)
            words[i] = round_pair(acc[0][c + i][r * 2] * scale[r], acc[0][c + i][r * 2 + 1] * scale[r], Out{});
          gather_groups(words, lane);
          const u32 column = 8 * (c + lane % 4);
          if (exists(r) && column < p.d_v)
            *reinterpret_cast<Vec<u32, 4>*>(to + column) = Vec<u32, 4>{{words[0], words[1], words[2], words[3]}};
        }
      } else {
#pragma unroll
        for (int c = 0; c < DV / 8; ++c) {
          const u32 column = 8 * c + lane % 4 * 2;
          if (exists(r) && column < p.d_v)
            *reinterpret_cast<Vec<Out, 2>*>(to + column) = Vec<Out, 2>{
                {acc[0][c][r * 2] * scale[r], acc[0][c][r * 2 + 1] * scale[r]}};
        }
      }
    };
    store(0);
    store(1);
    number = following;
    work = next;
  }
  // The last consumer's last turn is taken too, so that no barrier is left half full
  if (ORDERED && consumer == 0) barrier_sync(turn(0), 256);
}

template <class T, class Out, int D, int DV, int BM, int BN, int HEADS, int STAGES, bool ORDERED, bool AHEAD,
    int CHANGES>
__global__ void __launch_bounds__(128 + 2 * BM, 1)
    attention_wgmma(const __grid_constant__ Problem<T, Out, float> p, const __grid_constant__ TensorMap q_map,
        const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map, u32 tiles, u32 section,
        u32 heads, u32 count, u32* counter) {
  forward<T, Out, D, DV, BM, BN, HEADS, STAGES, ORDERED, AHEAD, CHANGES, 0>(
      p, q_map, k_map, v_map, tiles, section, heads, count, counter);
}

template <class T, class Out, int D, int DV, int BM, int BN, int HEADS, int STAGES, bool ORDERED, bool AHEAD,
    int CHANGES, int BOXES>
__global__ void __launch_bounds__(128 + 2 * BM, 1)
    attention_wgmma_paged(const __grid_constant__ Problem<T, Out, float> p, const __grid_constant__ TensorMap q_map,
        const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map, u32 tiles, u32 section,
        u32 heads, u32 count, u32* counter, const __grid_constant__ Cache cache,
        const __grid_constant__ Scales scales) {
  forward<T, Out, D, DV, BM, BN, HEADS, STAGES, ORDERED, AHEAD, CHANGES, BOXES>(
      p, q_map, k_map, v_map, tiles, section, heads, count, counter, cache, scales);
}
