// out = epilogue(x w^T) for tokens x and NF4 weights w [N, K], read once per TOKENS tokens.
//
// Operands: mma.sync with swap_ab: A is 16 weight rows (a strip), B is 8 tokens. A byte of codes gives a pair of values
//           from a shared-memory table (nf4_table.cuh). Fewer than 8 tokens: SPREAD blocks of 64 of K in separate
//           columns.
// Tiling:   a warp has STRIPS strips; ACROSS warps share tokens; ALONG such groups take k_blocks (DEPTH of K)
//           round-robin.
// Scales:   the sum over 64 of K times the block's absmax, in f32; absmax is loaded one k_block ahead.
// Pipeline: STAGES cp.async stages per group. Each CTA starts at another k_block, as otherwise all wait for
//           the same token lines in L2 (up to a quarter of the time at 16 tokens).
// Grid:     x: token `tiles` fastest, then row groups (neighbours share weights); y: splits of K, added by reduce.cu.
// Shared:   64 KB of tables, ALONG STAGES (ACROSS STRIPS DEPTH 8 + TOKENS DEPTH 2) bytes, reused for the partial sums.
//           1024 weights take 16 cycles for pairs, 8 for codes, 8 / STRIPS per 8 tokens; 32 would equal the DRAM time.
// Bound:    DRAM: 0.56 bytes per weight, N = K = 8192 in 8.2 us at 4.6 TB/s; about 2 instructions per weight and lane.
#include "ptx/barrier.cuh"
#include "products/epilogue.cuh"
#include "ptx/mma.cuh"
#include "ptx/overlap.cuh"
#include "quantized/nf4_stage.cuh"
#include "quantized/nf4_table.cuh"

template <class T, bool DOUBLE, int TOKENS, int STRIPS, int ACROSS, int ALONG, int STAGES, int DEPTH, class Epi>
__global__ void __launch_bounds__(ACROSS * ALONG * 32, 1)
    nf4_gemv(const T* x, const u8* codes, nf4::Magnitudes<DOUBLE> magnitudes, Epi epilogue, u32 pitch, u32 m, u32 n,
        u32 k, u32 shift, u32 k_blocks_per_split, u32 tiles, u64 split_stride) {
  using StageLayout = nf4::Rows<T, STRIPS, TOKENS, ACROSS, DEPTH>;
  using Raw = typename nf4::Magnitudes<DOUBLE>::Raw;
  constexpr u32 ROWS = ACROSS * STRIPS * 16, TILES = StageLayout::TILES, SPREAD = StageLayout::SPREAD,
                CHUNKS = StageLayout::CHUNKS, WORDS = StageLayout::WORDS;
  constexpr u32 THREADS = ACROSS * ALONG * 32, CHAINS = STRIPS * TILES < 4 ? 2 : 1;  // independent mma chains
  extern __shared__ __align__(256) u8 pool[];
  const u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, side = threadIdx.x / 32 % ACROSS,
            k_group = threadIdx.x / (32 * ACROSS);
  const u32 stages = shared_address(pool) + nf4::LINES + k_group * STAGES * StageLayout::BYTES;
  const u32 group = blockIdx.x / tiles, first_token = (blockIdx.x - group * tiles) * TOKENS;  // first token
  const u32 first = group * ROWS + side * (STRIPS * 16), chunks = k / nf4::CHUNK;
  const u32 begin = blockIdx.y * k_blocks_per_split, end = min((k + DEPTH - 1) / DEPTH, begin + k_blocks_per_split);
  x += u64(first_token) * pitch;
  m = min(m - first_token, TOKENS);
  // 1. Lookup tables, before the PDL wait: they need no operand
  nf4::make_table<T, DOUBLE, THREADS>(pool);
  overlap::wait();

  // 2. Pipeline prologue
  const nf4::Copies<StageLayout, ACROSS> copies(codes, x, pitch, m, n, k, first, threadIdx.x % (32 * ACROSS));
  // Rotate the order of k_blocks by CTA, against contention for the same L2 lines
  const u32 start_offset = blockIdx.x * 7 % max(end - min(begin, end), 1u);
  const auto k_block_of = [&](u32 at) {
    return at + start_offset < end ? at + start_offset : at + start_offset - (end - begin);
  };
  u32 coming = begin + k_group;
  const auto fetch = [&](u32 stage) {
    const u32 to = stages + stage * StageLayout::BYTES;
    if (coming < end)
      copies.issue(to + side * StageLayout::CODES, to + ACROSS * StageLayout::CODES, k_block_of(coming));
    commit_copies();
    coming += ALONG;
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) fetch(stage);

  // 3. absmax of a k_block: lane (g, t) holds those of rows g and g + 8 for block t of 64 of K
  const float offset = magnitudes.added();
  const float* const map = reinterpret_cast<const float*>(pool + nf4::OF_LINE) + lane;
  Raw next[STRIPS][2] = {};
  u32 blocks[STRIPS][2];  // index of the row's first block of 64
#pragma unroll
  for (u32 i = 0; i < STRIPS * 2; ++i) blocks[i / 2][i % 2] = min(first + i * 8 + g, n - 1) * chunks;
  const auto load_absmax = [&](u32 at) {
    const u32 chunk = min(k_block_of(at) * CHUNKS + t % CHUNKS, chunks - 1);
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i) next[i / 2][i % 2] = magnitudes.read((blocks[i / 2][i % 2] + chunk) >> shift);
  };
  if (begin + k_group < end) load_absmax(begin + k_group);
  __syncthreads();

  // 4. Main loop over the group's k_blocks: decode absmax, prefetch the next, wait for the stage, refill, multiply
  float acc[STRIPS][TILES][4] = {};
  uint4 kept[SPREAD == 1 ? 1 : 2][2][TILES] = {};  // stay zero for other columns
  u32 stage = 0;
#pragma unroll 1
  for (u32 at = begin + k_group; at < end; at += ALONG) {
    float absmax[STRIPS][2];
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i)
      absmax[i / 2][i % 2] = k_block_of(at) * CHUNKS + t % CHUNKS < chunks
          ? magnitudes.template value<nf4::LINE / 4>(next[i / 2][i % 2], map, offset)
          : 0.0f;
    if (at + ALONG < end) load_absmax(at + ALONG);
    await_copies<STAGES - 2>();
    if constexpr (ACROSS == 1) __syncwarp();
    else barrier_sync(1 + k_group, ACROSS * 32);
    fetch(stage == 0 ? STAGES - 1 : stage - 1);
    const u32 from = stages + stage * StageLayout::BYTES, own = from + side * StageLayout::CODES,
              tokens = from + ACROSS * StageLayout::CODES;
#pragma unroll
    for (u32 round = 0; round < CHUNKS / SPREAD; ++round) {
      float sum[CHAINS][STRIPS][TILES][4] = {};
#pragma unroll
      for (u32 stretch = 0; stretch < StageLayout::PER_ROUND; ++stretch) {
        const u32 part = round * StageLayout::PER_ROUND + stretch;
        const bool active = SPREAD == 1 || g / TOKENS == (stretch * 2 + t / 2) % SPREAD;  // the column's block of 64
        u32 words[STRIPS][2][WORDS];
#pragma unroll
        for (u32 i = 0; i < STRIPS * 2; ++i) StageLayout::load(words[i / 2][i % 2], own, i * 8 + g, part, t);
#pragma unroll
        for (u32 word = 0; word < WORDS; ++word) {
          uint4 (&b)[TILES] = kept[SPREAD == 1 ? 0 : stretch % 2][word % 2];
#pragma unroll
          for (u32 tile = 0; tile < TILES; ++tile) {
            const u32 at = tokens +
                (((part * WORDS + word) * TOKENS + tile * 8 + g % (TOKENS < 8 ? TOKENS : 8)) * 4 + t) * 16;
            if constexpr (SPREAD == 1) b[tile] = nf4::load_four(at);
            else nf4::load_four(b[tile], at, active);
          }
#pragma unroll
          for (u32 step = 0; step < 2; ++step)
#pragma unroll
            for (u32 s = 0; s < STRIPS; ++s) {
              u32 a[4];
#pragma unroll
              for (u32 i = 0; i < 4; ++i)
                a[i] = *reinterpret_cast<const u32*>(
                    pool + nf4::index_of(words[s][i % 2][word], step * 2 + i / 2, lane));
#pragma unroll
              for (u32 tile = 0; tile < TILES; ++tile) {
                const u32 pair[2] = {step ? b[tile].z : b[tile].x, step ? b[tile].w : b[tile].y};
                Mma<T>::run(sum[step % CHAINS][s][tile], a, pair);
              }
            }
        }
      }
      // Scale by absmax: column 2 t + e holds block (2 t + e) / TOKENS of the round
#pragma unroll
      for (u32 i = 0; i < STRIPS * 2; ++i) {
        float factor[2];
        const auto of = [&](u32 e) {
          return __shfl_sync(
              ~0u, absmax[i / 2][i % 2], g * 4 + (round * SPREAD + (SPREAD > 1 ? (t * 2 + e) / TOKENS : 0)) % CHUNKS);
        };
        factor[0] = of(0);
        factor[1] = TOKENS == 1 && SPREAD > 1 ? of(1) : factor[0];
#pragma unroll
        for (u32 j = 0; j < TILES * 2; ++j) {
          const u32 e = i % 2 * 2 + j % 2;
          float& all = acc[i / 2][j / 2][e];
          float both = sum[0][i / 2][j / 2][e];
          if constexpr (CHAINS > 1) both += sum[1][i / 2][j / 2][e];
          all = __fmaf_rn(factor[j % 2], both, all);
        }
      }
    }
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  overlap::release();

  // 5. Partial sums to shared memory, [group][column][row]; the padding puts four columns in different banks
  constexpr u32 COLUMNS = StageLayout::COLUMNS, ROW_PITCH = ROWS + 4;
  await_copies<0>();
  __syncthreads();
  const auto sums = reinterpret_cast<float*>(pool + nf4::LINES);
#pragma unroll
  for (u32 i = 0; i < STRIPS * TILES * 4; ++i) {
    const u32 s = i / (TILES * 4), tile = i / 4 % TILES, e = i % 4, column = tile * 8 + t * 2 + e % 2;
    if (column < COLUMNS)
      sums[(k_group * COLUMNS + column) * ROW_PITCH + (side * STRIPS + s) * 16 + e / 2 * 8 + g] = acc[s][tile][e];
  }
  __syncthreads();
  // 6. Add in order, epilogue of row pairs
  epilogue.out += blockIdx.y * split_stride;
  for (u32 i = threadIdx.x; i < m * (ROWS / 2); i += THREADS) {
    const u32 token = i / (ROWS / 2), row = i % (ROWS / 2) * 2, to = group * ROWS + row;
    if (to >= n) continue;
    float pair[2] = {};
#pragma unroll
    for (u32 part = 0; part < ALONG * SPREAD; ++part) {
      const Vec<float, 2> own = *reinterpret_cast<const Vec<float, 2>*>(
          sums + (part * TOKENS + token) * ROW_PITCH + row);
      pair[0] += own.at[0];
      pair[1] += own.at[1];
    }
    epilogue.store(pair, first_token + token, to, to + 1 < n);
  }
}
