// out = softmax(changed(scale q k^T)) v of a few tokens a sequence against the keys and values it has so far, for f16 and bf16; lse
// on request.
//
// Tiling: a CTA has a split of the keys of one key head, 16 BLOCKS of the rows that share it (token by token, a row for each query
// head of the group) and DV columns of the values. Threads: WARPS warps, each of which takes every WARPS-th block of 16 keys all by
// itself, from copy to weighted values, with no barrier between them; their results meet once at the end.
// Shared memory: the queries, and STAGES blocks of keys and values for each warp, by cp.async; then the warps' results.
// E, what caches hold: T, or 8 bits. A lane then gets four neighbouring columns of keys at once, so queries lie in that order, too;
// of values it gets pairs of columns, which lie apart in its sums. SCALED: each key and value has a scale.
// PAGED: rows lie where the table says; a lane knows the page of one key, looked up a block ahead. The first CTAs, one a sequence,
// look whether its pages are there.
// Splits leave (out, lse) for merge.cu, one alone writes the result.
// Bound: bandwidth; STAGES - 1 blocks a warp are under way.
#include "attention/bytes.cuh"
#include "attention/cache.cuh"
#include "attention/panels.cuh"
#include "attention/softmax.cuh"
#include "overlap.cuh"

using namespace attention;

// 0: all pages of a sequence are there; 1: some are not; 2: its length is not one that the table has room for; 3, for all: `starts`
// decrease or reach outside of the `rows` queries.
template <int THREADS> __device__ __forceinline__ void check(const Cache& cache, const i32* starts, u32 rows, u32 sequence) {
  const i64 length = cache.lengths ? cache.lengths[sequence] : i64(cache.capacity);
  const int used = (cache.length(sequence) + int(cache.page_keys) - 1) / int(cache.page_keys);
  bool wrong = false, broken = starts && (starts[0] < 0 || starts[cache.sequences] > i64(rows));
  for (u32 at = threadIdx.x; starts && at < cache.sequences; at += THREADS) broken |= starts[at] > starts[at + 1];
  for (int at = threadIdx.x; at < used; at += THREADS) wrong |= u32(cache.table[sequence * cache.table_step + at]) >= cache.pages;
  __shared__ bool found[2][THREADS / 32];
  wrong = __any_sync(~0u, wrong);
  broken = __any_sync(~0u, broken);
  if (threadIdx.x % 32 == 0) found[0][threadIdx.x / 32] = wrong, found[1][threadIdx.x / 32] = broken;
  __syncthreads();
  for (int warp = 0; warp < THREADS / 32; ++warp) wrong |= found[0][warp], broken |= found[1][warp];
  if (threadIdx.x == 0) cache.status[sequence] = broken ? 3 : length < 0 || length > cache.capacity ? 2 : wrong;
}

// A warp's copies of the rows of the 16 keys of `block`, those before `end` that are in a page; the rest is zero. `page`: that of
// the lane's key.
template <class Rows, bool PAGED, class E>
__device__ __forceinline__ void copy_block(u32 to, const E* from, const Walk& walk, const Cache& cache, u32 sequence, int page, int block,
                                           int end, int columns) {
  constexpr int EACH = 16 / sizeof(E);
  const int lane = threadIdx.x % 32, slot = PAGED ? (block * 16 + lane % 16) % int(cache.page_keys) : 0;
#pragma unroll
  for (int i = 0; i < 16 * Rows::CHUNKS / 32; ++i) {
    const int at = lane + i * 32, line = at / Rows::CHUNKS, chunk = at % Rows::CHUNKS, key = block * 16 + line;
    const int in_page = PAGED ? __shfl_sync(~0u, page, line) : 0, row = PAGED ? __shfl_sync(~0u, slot, line) : key;
    const bool there = key < end && chunk * EACH < columns && (!PAGED || u32(in_page) < cache.pages);
    const i64 place = (PAGED ? in_page : i64(sequence)) * walk.batch + row * walk.row + chunk * EACH;
    copy_async<16>(to + Rows::offset(line, chunk), there ? from + place : from, there ? 16 : 0);
  }
}

// Scores or weights of 16 keys, as mma's accumulators have them, each column by a number from `from` on, 8 bytes a lane of a quad.
template <int BLOCKS> __device__ __forceinline__ void scale_columns(float (&s)[BLOCKS][2][4], u32 from) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    Vec<float, 2> by;
    load_shared(by, from + n * 32);
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[b][n][e] *= by.at[e % 2];
  }
}

template <class T, class E, class Out, int D, int DV, int BLOCKS, int WARPS, int STAGES, int RESIDENT, bool CHANGED, bool PAGED, bool SCALED>
__global__ void __launch_bounds__(32 * WARPS, RESIDENT)
attention_decode(Problem<T, Out, float> p, Cache cache, Scales scales, Splits splits, u32 tiles, u32 chunks) {
  constexpr int ROWS = 16 * BLOCKS, THREADS = 32 * WARPS, OWN = 2 * BLOCKS;
  using Queries = Panels<ROWS, D>;
  constexpr bool NARROW = sizeof(E) == 1;
  using Keys_ = Panels<16, D * sizeof(E) / 2>;
  using Values = Panels<16, DV * sizeof(E) / 2>;
  constexpr int ROWS_BYTES = Keys_::BYTES + Values::BYTES, STAGE = ROWS_BYTES + (SCALED ? 128 : 0), PITCH = DV + 8;
  constexpr bool HELD = BLOCKS * D <= 128;  // queries in registers
  extern __shared__ __align__(1024) u8 memory[];
  __shared__ float reached[WARPS][ROWS], sums[WARPS][ROWS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 queries = shared_address(memory), ring = queries + Queries::BYTES + warp * (STAGES * STAGE);
  overlap::wait();
  overlap::release();

  // Which split of which rows and columns of which head
  u32 flat = blockIdx.x;
  if constexpr (PAGED) {
    if (flat < cache.sequences) return check<THREADS>(cache, p.starts_q, p.rows, flat);
    flat -= cache.sequences;
  }
  const u32 chunk = flat % chunks, tile = flat / chunks % tiles, split = flat / (chunks * tiles) % splits.count;
  const u32 kv_heads = p.heads / p.group, sequence = flat / (chunks * tiles * splits.count) / kv_heads;
  const u32 kv_head = flat / (chunks * tiles * splits.count) % kv_heads;
  const Extent tokens(p.starts_q, sequence, p.rows);
  const int length = cache.length(sequence), rows = tokens.count * int(p.group), first_row = tile * ROWS;
  const int first_column = chunk * DV, columns = int(p.d_v) - first_column;
  if (first_row >= rows) return;
  const auto standing = [&](int row) {
    return Standing{length, p.offset_given ? p.offset : i64(length) - tokens.count, sequence, kv_head * p.group + row % p.group};
  };
  const auto token_of = [&](int row) { return row / int(p.group); };

  // Its blocks of keys: those that some of its rows see
  const Standing any = standing(0);
  const int last_row = min(first_row + ROWS, rows) - 1;
  const int begin = keys_of(p, any, token_of(first_row)).first, end = keys_of(p, any, token_of(last_row)).end;
  const int whole_begin = keys_of(p, any, token_of(last_row)).first, whole_end = keys_of(p, any, token_of(first_row)).end;
  const int2 range = begin < end ? splits.range(split, begin, end, WARPS) : int2{0, 0};
  if (split && range.x >= range.y) {  // nothing is left for it
    const i64 lines = (p.starts_q ? 0 : i64(sequence)) * p.heads;
    for (int row = first_row + int(threadIdx.x); row <= last_row && chunk == 0; row += THREADS)
      splits.lse[((lines + standing(row).head) * p.rows + tokens.first + token_of(row)) * splits.count + split] = rows::minus_infinity<float>();
    return;
  }
  int block = range.x + warp;
  while (block * 16 + 16 <= begin) block += WARPS;

  // Queries; a negative scale is theirs, so that the highest product has the highest score
  const float whole_scale = float(p.scale) * scales.of_keys(kv_head);
  const u32 negative = whole_scale < 0 ? 0x80008000u : 0;
  for (int at = threadIdx.x; at < ROWS * Queries::CHUNKS; at += THREADS) {
    const int line = at / Queries::CHUNKS, part = at % Queries::CHUNKS, row = first_row + line;
    uint4 words = {0, 0, 0, 0};
    if (row < rows && part * 8 < int(p.d)) {
      const i64 from = sequence * p.q_walk.batch + (kv_head * p.group + row % p.group) * p.q_walk.head;
      words = *reinterpret_cast<const uint4*>(p.q + from + (tokens.first + token_of(row)) * p.q_walk.row + part * 8);
    }
    words = {words.x ^ negative, words.y ^ negative, words.z ^ negative, words.w ^ negative};
    if constexpr (NARROW) {
      const u32 even = queries + part % 2 * 8 + Queries::offset(line, part / 2 * 2), odd = queries + part % 2 * 8 + Queries::offset(line, part / 2 * 2 + 1);
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(even), "r"(words.x), "r"(words.z) : "memory");
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(odd), "r"(words.y), "r"(words.w) : "memory");
    } else {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(queries + Queries::offset(line, part)),
                   "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w) : "memory");
    }
  }

  // Copies of a block's rows; lane's key of the next block is in `page`
  int page = -1;
  const auto look_up = [&](int next) {
    const int key = next * 16 + lane % 16;
    if constexpr (PAGED) page = next < range.y && key < end ? cache.table[sequence * cache.table_step + key / int(cache.page_keys)] : -1;
  };
  const auto bring = [&](int stage, int next) {
    if (next < range.y) {
      const u32 to = ring + stage * STAGE;
      const E *k = reinterpret_cast<const E*>(p.k) + kv_head * p.k_walk.head, *v = reinterpret_cast<const E*>(p.v) + kv_head * p.v_walk.head;
      copy_block<Keys_, PAGED>(to, k, p.k_walk, cache, sequence, page, next, end, int(p.d));
      copy_block<Values, PAGED>(to + Keys_::BYTES, v + first_column, p.v_walk, cache, sequence, page, next, end, columns);
      if constexpr (SCALED) {  // a lane's: half the warp has keys', half values'
        const bool first = lane < 16;
        const float* from = first ? scales.k : scales.v;
        const Walk walk = {first ? scales.k_walk.batch : scales.v_walk.batch, first ? scales.k_walk.head : scales.v_walk.head,
                           first ? scales.k_walk.row : scales.v_walk.row};
        const int key = next * 16 + lane % 16;
        const bool there = (first ? scales.k_each : scales.v_each) && key < end && (!PAGED || u32(page) < cache.pages);
        const i64 place = PAGED ? page * walk.batch + key % int(cache.page_keys) * walk.row : sequence * walk.batch + key * walk.row;
        copy_async<4>(to + ROWS_BYTES + lane * 4, there ? from + kv_head * walk.head + place : reinterpret_cast<const float*>(p.q), there ? 4 : 0);
      }
      look_up(next + WARPS);
    }
    commit_copies();
  };
  look_up(block);
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) bring(s, block + s * WARPS);
  __syncthreads();

  const u32 at_queries = queries + Queries::template enter<true>(lane);
  u32 held[HELD ? D / 16 : 1][BLOCKS][4];
  if constexpr (HELD)
#pragma unroll
    for (int step = 0; step < D / 16; ++step)
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) load_matrices<false>(held[step][b], Queries::at(at_queries, b, step));

  const float scale = fabsf(whole_scale) < 1e-30f ? 1e-30f : fabsf(whole_scale);  // NaN stays
  const float factor = CHANGED ? math::LOG2E : scale * math::LOG2E;
  Keys seen[OWN];
  float slope[OWN];
#pragma unroll
  for (int r = 0; r < OWN; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    const Standing head = standing(row);
    seen[r] = row < rows ? keys_of(p, head, token_of(row)) : Keys{0, 0};
    slope[r] = CHANGED && row < rows ? slope_of(p, head) : 0.0f;
  }
  OnlineSoftmax<BLOCKS> softmax;
  float acc[BLOCKS][DV / 8][4] = {};

  int stage = 0;
  for (; block < range.y; block += WARPS) {
    await_copies<STAGES - 2>();
    __syncwarp();
    bring(stage == 0 ? STAGES - 1 : stage - 1, block + (STAGES - 1) * WARPS);

    // Scores
    const u32 at_keys = ring + stage * STAGE + Keys_::template enter<false>(lane);
    float s[BLOCKS][2][4] = {};
    const auto score = [&](int step, const u32* low, const u32* high) {
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) {
        u32 loaded[4];
        if constexpr (!HELD) load_matrices<false>(loaded, Queries::at(at_queries, b, step));
        const u32* a = HELD ? held[HELD ? step : 0][b] : loaded;
        Mma<T>::run(s[b][0], a, low);
        Mma<T>::run(s[b][1], a, high);
      }
    };
#pragma unroll
    for (int step = 0; step < D * int(sizeof(E)) / 32; ++step) {
      u32 keys[4];
      load_matrices<false>(keys, Keys_::at(at_keys, 0, step));
      if constexpr (NARROW) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          u32 low[2], high[2];
          widen<T>(keys[half], low, E{});
          widen<T>(keys[2 + half], high, E{});
          score(2 * step + half, low, high);
        }
      } else {
        score(step, keys, keys + 2);
      }
    }
    const u32 at_scales = ring + stage * STAGE + ROWS_BYTES + lane % 4 * 8;
    if constexpr (SCALED)
      if (scales.k_each) scale_columns(s, at_scales);

    // Which count, and as what
    if (CHANGED || block * 16 < whole_begin || block * 16 + 16 > whole_end) {
#pragma unroll
      for (int r = 0; r < OWN; ++r) {
        const int row = first_row + lane / 4 + 8 * r;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int key = block * 16 + 8 * n + lane % 4 * 2 + e;
            float& score = s[r / 2][n][r % 2 * 2 + e];
            const bool counts = key >= seen[r].first && key < seen[r].end;
            if constexpr (CHANGED) score = counts ? changed<T>(p, any, score * scale, token_of(row), key, slope[r]) : rows::minus_infinity<float>();
            else score = counts ? score : rows::minus_infinity<float>();
          }
      }
    }
    softmax.follow(s, factor, acc, [](float(&)[OWN]) {});
    softmax.weigh(s, factor);

    // Weighted values
    const u32 at_values = ring + stage * STAGE + Keys_::BYTES + Values::template enter<true>(lane);
    if constexpr (SCALED)
      if (scales.v_each) scale_columns(s, at_scales + 64);
    u32 a[BLOCKS][4];
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b) pack_weights<T>(a[b], s[b], 0);
    const auto add = [&](int c, const u32* low, const u32* high) {
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) {
        Mma<T>::run(acc[b][2 * c], a[b], low);
        Mma<T>::run(acc[b][2 * c + 1], a[b], high);
      }
    };
#pragma unroll
    for (int c = 0; c < DV * int(sizeof(E)) / 32; ++c) {
      u32 values[4];
      load_matrices<true>(values, Values::at(at_values, 0, c));
      if constexpr (NARROW) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // columns 2 g and 2 g + 1 of two keys in a word
          u32 first[2], second[2];
          widen<T>(__byte_perm(values[2 * half], 0, 0x3120), first, E{});
          widen<T>(__byte_perm(values[2 * half + 1], 0, 0x3120), second, E{});
          const u32 even[2] = {first[0], second[0]}, odd[2] = {first[1], second[1]};
          add(2 * c + half, even, odd);
        }
      } else {
        add(c, values, values + 2);
      }
    }
    stage = stage == STAGES - 1 ? 0 : stage + 1;
  }
  await_copies<0>();
  __syncthreads();

  // The warps' results, side by side
  softmax.add_up();
#pragma unroll
  for (int r = 0; r < OWN; ++r) {
    const int line = lane / 4 + 8 * r;
    if (lane % 4 == 0) reached[warp][line] = softmax.base[r] * factor, sums[warp][line] = softmax.sum[r];
    const u32 to = queries + (warp * ROWS + line) * PITCH * 4;
#pragma unroll
    for (int c = 0; c < DV / 16; ++c) {
      const float *first = acc[r / 2][2 * c] + r % 2 * 2, *second = acc[r / 2][2 * c + 1] + r % 2 * 2;
      if constexpr (NARROW) {
        store_shared(to + (16 * c + lane % 4 * 4) * 4, Vec<float, 4>{{first[0], second[0], first[1], second[1]}});
      } else {
        store_shared(to + (16 * c + lane % 4 * 2) * 4, Vec<float, 2>{{first[0], first[1]}});
        store_shared(to + (16 * c + 8 + lane % 4 * 2) * 4, Vec<float, 2>{{second[0], second[1]}});
      }
    }
  }
  __syncthreads();

  // Their sum, eight columns a thread, with the sink's term in the first split
  for (int at = threadIdx.x; at < ROWS * (DV / 8); at += THREADS) {
    const int line = at / (DV / 8), column = at % (DV / 8) * 8, row = first_row + line, token = token_of(row);
    if (row >= rows || column >= columns) continue;
    const Standing head = standing(row);
    const float sink = split == 0 ? sink_of<T, float>(p, head) * math::LOG2E : rows::minus_infinity<float>();
    float most = sink;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) most = fmaxf(most, reached[w][line]);
    most = OnlineSoftmax<BLOCKS>::shift(most);
    float whole = math::ex2_ftz(sink - most), x[8] = {};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float weight = math::ex2_ftz(reached[w][line] - most);
      whole += sums[w][line] * weight;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Vec<float, 4> part;
        load_shared(part, queries + ((w * ROWS + line) * PITCH + column + 4 * half) * 4);
#pragma unroll
        for (int e = 0; e < 4; ++e) x[4 * half + e] += part.at[e] * weight;
      }
    }
    const float division = whole == 0.0f ? 0.0f : scales.of_values(kv_head) / whole;
    const float lse = whole == 0.0f ? rows::minus_infinity<float>() : most * math::LN2 + ::logf(whole);
#pragma unroll
    for (int e = 0; e < 8; ++e) x[e] *= division;
    if (splits.out) {
      const i64 place = (((p.starts_q ? 0 : i64(sequence)) * p.heads + head.head) * p.rows + tokens.first + token) * splits.count + split;
      if (column == 0 && chunk == 0) splits.lse[place] = lse;
      if (whole == 0.0f) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<Vec<float, 4>*>(splits.out + place * p.d_v + first_column + column + 4 * half) =
            Vec<float, 4>{{x[4 * half], x[4 * half + 1], x[4 * half + 2], x[4 * half + 3]}};
    } else {
      const i64 to = sequence * p.out_walk.batch + head.head * p.out_walk.head + (tokens.first + token) * p.out_walk.row;
      *reinterpret_cast<Vec<Out, 8>*>(p.out + to + first_column + column) = round_to<Out>(x);
      if (p.lse && column == 0 && chunk == 0)
        p.lse[sequence * p.lse_walk.batch + head.head * p.lse_walk.head + (tokens.first + token) * p.lse_walk.row] = lse;
    }
  }
}
