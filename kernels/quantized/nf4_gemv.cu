// out = epilogue(x w^T) of tokens x and NF4 weights w [N, K], every byte of which is read once for TOKENS tokens.
//
// Weights are mma.sync's a operand and tokens its b. A warp has STRIPS strips of 16 rows of w; ACROSS warps side by side share tokens,
// and ALONG such groups take slabs of DEPTH of K in turn, each through a ring of STAGES in shared memory that it fills by cp.async.
// A byte of codes is a pair of values, rounded to T, that is looked up in shared memory (nf4_table.cuh); the sum of 64 of K is
// multiplied with its block's magnitude in f32, which a lane reads a slab ahead. Fewer than 8 tokens leave columns of b free, in which
// other 64s of the same slab are multiplied at the same time.
// Shared memory: 64 KB of tables, then ALONG STAGES (ACROSS STRIPS DEPTH 8 + TOKENS DEPTH 2) bytes, later the sums of all groups, which
// are added in their order.
// Grid: `tiles` of tokens and groups of rows along x, CTAs of the same weights next to each other; splits of K along y, whose results
// lie `slab` elements apart and are added up by reduce.cu. CTAs begin with slabs of their own, or all would wait for the same lines of
// tokens in L2, for up to a quarter of the time of 16.
// Bound: bandwidth, 0.56 bytes a weight over 4.6 TB/s, of N = K = 8192 in 8.2 us; about 2 instructions a weight and lane. Of shared
// memory 1024 weights take 16 cycles for pairs, 8 for codes and, by 8 tokens, 8 / STRIPS, where 32 would take as long as memory.
#include "barrier.cuh"
#include "epilogue.cuh"
#include "mma.cuh"
#include "overlap.cuh"
#include "quantized/nf4_slab.cuh"
#include "quantized/nf4_table.cuh"

template <class T, bool DOUBLE, int TOKENS, int STRIPS, int ACROSS, int ALONG, int STAGES, int DEPTH, class Epi>
__global__ void __launch_bounds__(ACROSS * ALONG * 32, 1)
nf4_gemv(const T* x, const u8* codes, nf4::Magnitudes<DOUBLE> magnitudes, Epi epilogue, u32 pitch, u32 m, u32 n, u32 k, u32 shift,
         u32 slabs_per_split, u32 tiles, u64 slab) {
  using Slab = nf4::Rows<T, STRIPS, TOKENS, ACROSS, DEPTH>;
  using Raw = typename nf4::Magnitudes<DOUBLE>::Raw;
  constexpr u32 ROWS = ACROSS * STRIPS * 16, TILES = Slab::TILES, SPREAD = Slab::SPREAD, CHUNKS = Slab::CHUNKS, WORDS = Slab::WORDS;
  constexpr u32 THREADS = ACROSS * ALONG * 32, CHAINS = STRIPS * TILES < 4 ? 2 : 1;  // sums of a round: products of one wait for each other
  extern __shared__ __align__(256) u8 pool[];
  const u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, side = threadIdx.x / 32 % ACROSS, turn = threadIdx.x / (32 * ACROSS);
  const u32 ring = shared_address(pool) + nf4::LINES + turn * STAGES * Slab::BYTES;
  const u32 group = blockIdx.x / tiles, before = (blockIdx.x - group * tiles) * TOKENS;  // tokens of other tiles
  const u32 first = group * ROWS + side * (STRIPS * 16), chunks = k / nf4::CHUNK;
  const u32 begin = blockIdx.y * slabs_per_split, end = min((k + DEPTH - 1) / DEPTH, begin + slabs_per_split);
  x += u64(before) * pitch;
  m = min(m - before, TOKENS);
  nf4::make_table<T, DOUBLE, THREADS>(pool);  // takes nothing of what others write
  overlap::wait();

  const nf4::Copies<Slab, ACROSS> copies(codes, x, pitch, m, n, k, first, threadIdx.x % (32 * ACROSS));
  // Every CTA begins with another slab, or all would wait for the same lines of L2
  const u32 turned = blockIdx.x * 7 % max(end - min(begin, end), 1u);
  const auto slab_of = [&](u32 at) { return at + turned < end ? at + turned : at + turned - (end - begin); };
  u32 coming = begin + turn;
  const auto fetch = [&](u32 stage) {
    const u32 to = ring + stage * Slab::BYTES;
    if (coming < end) copies.bring(to + side * Slab::CODES, to + ACROSS * Slab::CODES, slab_of(coming));
    commit_copies();
    coming += ALONG;
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) fetch(stage);

  // Magnitudes of a slab: lane (g, t) has those of rows g and g + 8, of the slab's 64 number t
  const float offset = magnitudes.added();
  const float* const map = reinterpret_cast<const float*>(pool + nf4::OF_LINE) + lane;
  Raw next[STRIPS][2] = {};
  u32 blocks[STRIPS][2];  // before the row's first, in 64s
#pragma unroll
  for (u32 i = 0; i < STRIPS * 2; ++i) blocks[i / 2][i % 2] = min(first + i * 8 + g, n - 1) * chunks;
  const auto ask = [&](u32 at) {
    const u32 chunk = min(slab_of(at) * CHUNKS + t % CHUNKS, chunks - 1);
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i) next[i / 2][i % 2] = magnitudes.read((blocks[i / 2][i % 2] + chunk) >> shift);
  };
  if (begin + turn < end) ask(begin + turn);
  __syncthreads();

  // Slabs, each while the next are under way
  float acc[STRIPS][TILES][4] = {};
  uint4 kept[SPREAD == 1 ? 1 : 2][2][TILES] = {};  // of a column that is not a lane's own, zeros for good
  u32 stage = 0;
#pragma unroll 1
  for (u32 at = begin + turn; at < end; at += ALONG) {
    float absmax[STRIPS][2];
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i)
      absmax[i / 2][i % 2] = slab_of(at) * CHUNKS + t % CHUNKS < chunks ? magnitudes.template value<nf4::LINE / 4>(next[i / 2][i % 2], map, offset) : 0.0f;
    if (at + ALONG < end) ask(at + ALONG);
    await_copies<STAGES - 2>();
    if constexpr (ACROSS == 1) __syncwarp();
    else meet(1 + turn, ACROSS * 32);
    fetch(stage == 0 ? STAGES - 1 : stage - 1);
    const u32 from = ring + stage * Slab::BYTES, own = from + side * Slab::CODES, tokens = from + ACROSS * Slab::CODES;
#pragma unroll
    for (u32 round = 0; round < CHUNKS / SPREAD; ++round) {
      float sum[CHAINS][STRIPS][TILES][4] = {};
#pragma unroll
      for (u32 stretch = 0; stretch < Slab::PER_ROUND; ++stretch) {
        const u32 part = round * Slab::PER_ROUND + stretch;
        const bool mine = SPREAD == 1 || g / TOKENS == (stretch * 2 + t / 2) % SPREAD;  // whether the lane's 64 is its column's
        u32 words[STRIPS][2][WORDS];
#pragma unroll
        for (u32 i = 0; i < STRIPS * 2; ++i) Slab::load(words[i / 2][i % 2], own, i * 8 + g, part, t);
#pragma unroll
        for (u32 word = 0; word < WORDS; ++word) {
          uint4 (&b)[TILES] = kept[SPREAD == 1 ? 0 : stretch % 2][word % 2];
#pragma unroll
          for (u32 tile = 0; tile < TILES; ++tile) {
            const u32 at = tokens + (((part * WORDS + word) * TOKENS + tile * 8 + g % (TOKENS < 8 ? TOKENS : 8)) * 4 + t) * 16;
            if constexpr (SPREAD == 1) b[tile] = nf4::load_four(at);
            else nf4::load_four(b[tile], at, mine);
          }
#pragma unroll
          for (u32 step = 0; step < 2; ++step)
#pragma unroll
            for (u32 s = 0; s < STRIPS; ++s) {
              u32 a[4];
#pragma unroll
              for (u32 i = 0; i < 4; ++i)
                a[i] = *reinterpret_cast<const u32*>(pool + nf4::place_of(words[s][i % 2][word], step * 2 + i / 2, lane));
#pragma unroll
              for (u32 tile = 0; tile < TILES; ++tile) {
                const u32 pair[2] = {step ? b[tile].z : b[tile].x, step ? b[tile].w : b[tile].y};
                Mma<T>::run(sum[step % CHAINS][s][tile], a, pair);
              }
            }
        }
      }
      // Column 2 t + e has the round's 64 number (2 t + e) / TOKENS
#pragma unroll
      for (u32 i = 0; i < STRIPS * 2; ++i) {
        float factor[2];
        const auto of = [&](u32 e) { return __shfl_sync(~0u, absmax[i / 2][i % 2], g * 4 + (round * SPREAD + (SPREAD > 1 ? (t * 2 + e) / TOKENS : 0)) % CHUNKS); };
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

  // The groups' sums meet, [group][column][row]; columns begin where four of them are in banks of their own
  constexpr u32 COLUMNS = Slab::COLUMNS, APART = ROWS + 4;
  await_copies<0>();
  __syncthreads();
  const auto sums = reinterpret_cast<float*>(pool + nf4::LINES);
#pragma unroll
  for (u32 i = 0; i < STRIPS * TILES * 4; ++i) {
    const u32 s = i / (TILES * 4), tile = i / 4 % TILES, e = i % 4, column = tile * 8 + t * 2 + e % 2;
    if (column < COLUMNS) sums[(turn * COLUMNS + column) * APART + (side * STRIPS + s) * 16 + e / 2 * 8 + g] = acc[s][tile][e];
  }
  __syncthreads();
  epilogue.out += blockIdx.y * slab;
  for (u32 i = threadIdx.x; i < m * (ROWS / 2); i += THREADS) {
    const u32 token = i / (ROWS / 2), row = i % (ROWS / 2) * 2, to = group * ROWS + row;
    if (to >= n) continue;
    float pair[2] = {};
#pragma unroll
    for (u32 part = 0; part < ALONG * SPREAD; ++part) {
      const Vec<float, 2> own = *reinterpret_cast<const Vec<float, 2>*>(sums + (part * TOKENS + token) * APART + row);
      pair[0] += own.at[0];
      pair[1] += own.at[1];
    }
    epilogue.store(pair, before + token, to, to + 1 < n);
  }
}
