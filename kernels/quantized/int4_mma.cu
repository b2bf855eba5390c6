// out = epilogue(x w) of any number of tokens x and int4 weights in the tiled layout; of one weight, or of several that share the
// tokens.
//
// Weights are mma.sync's a operand, unpacked in registers, and tokens its b. A CTA has TOKENS tokens and WARPS 16 STRIPS columns of
// the result; a warp has STRIPS strips of them and one of PARTS equal parts of the tokens. SHARE groups of WARPS PARTS warps take
// slabs of 128 of K in turn. Slabs come by cp.async through STAGES stages, one of each group in a stage, for all warps of the group;
// one barrier a stage, before the products of the slab ahead are over, so that they hide what the next begins with.
// Shared memory: STAGES SHARE (WARPS STRIPS 1.1 KB + TOKENS 256 bytes), later the sums of all groups but the first, which adds them
// to its own in their order. Registers: two sets of sums of 4 STRIPS TOKENS / PARTS / 8 each, one of a scale's group, one of all.
// A product reads 1024 PARTS / TOKENS + 256 / STRIPS bytes of shared memory, which has 128 a cycle, while mma.sync takes 0.61.
// Grid: tiles of tokens first, so that those that share weights are in flight together, then columns; splits of K along y, whose
// results lie `slab` elements apart and are added up by reduce.cu.
// Bound: bandwidth for few tokens, then mma.sync's rate (on Hopper about 0.62 of wgmma's).
#include "epilogue.cuh"
#include "overlap.cuh"
#include "quantized/int4_feed.cuh"
#include "quantized/int4_pipeline.cuh"

template <class T, class S, int TOKENS, int STRIPS, int WARPS, int PARTS, int SHARE, int STAGES, int GROUP, bool ZEROS, class Epi, int COUNT>
__global__ void __launch_bounds__(WARPS * PARTS * SHARE * 32, WARPS * PARTS * SHARE > 4 ? 1 : 2)
int4_mma(const T* x, nibbles::Weights<S, Epi, COUNT> weights, u32 pitch, u32 m, u32 k, u32 blocks, u32 groups, u32 slabs_per_split,
         u64 slab) {
  using Slab = nibbles::Slab<T, S, STRIPS, TOKENS, GROUP, ZEROS>;
  constexpr u32 TOKENS_AT = WARPS * Slab::WEIGHTS, TURN = TOKENS_AT + Slab::ACTIVATIONS, STAGE = SHARE * TURN;
  constexpr u32 THREADS = WARPS * PARTS * 32, OWN = TOKENS / PARTS, TILES = OWN / 8;  // of a group of warps; a warp's tokens
  static_assert(OWN % 8 == 0);
  extern __shared__ __align__(128) u8 pool[];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS, part = threadIdx.x / 32 / WARPS % PARTS, turn = SHARE == 1 ? 0 : threadIdx.x / THREADS;
  const u32 tiles = (m + TOKENS - 1) / TOKENS;
  u32 column, token;  // of groups of columns, of x
  const auto find = [&](u32 tile) {
    column = tile / tiles;
    token = (tile - column * tiles) * TOKENS;
  };
  find(blockIdx.x);
  const nibbles::Share<S, Epi> share(weights, column, blocks, slabs_per_split);
  const u32 begin = share.begin + turn, end = share.end;
  const auto first = [&](const nibbles::Weight<S, Epi>& own) { return ((column - own.first) * WARPS + warp) * STRIPS; };
  const nibbles::Feed<Slab, THREADS, PARTS> feed(share, x + u64(token) * pitch, pitch, m - token, k, blocks, groups, first(share.own),
                                                 part, threadIdx.x % THREADS);
  overlap::wait();

  u32 coming = begin, free = shared_address(pool) + turn * TURN;
  const u32 ring = free, past = free + STAGES * STAGE;
  const auto fetch = [&](int part, int parts) {
    constexpr int ALL = decltype(feed)::ALL;
    feed.bring(free + warp * Slab::WEIGHTS, free + TOKENS_AT, coming, coming < end, part * ALL / parts, (part + 1) * ALL / parts);
    if (part + 1 < parts) return;
    commit_copies();
    coming += SHARE;
    free = free + STAGE == past ? ring : free + STAGE;
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) fetch(0, 1);
  await_copies<STAGES - 2>();
  __syncthreads();

  // Slabs, each while the next are under way
  nibbles::Pipeline<Slab, TILES> products;
  u32 codes = ring + warp * Slab::WEIGHTS, tokens = ring + TOKENS_AT + part * OWN * 64, place = ring;
  if (begin < end) products.enter(codes, tokens, lane);
#pragma unroll 1
  for (u32 at = share.begin; at < end; at += SHARE)
    if (SHARE == 1 || at + turn < end)
      products.multiply(codes, tokens, lane, fetch, [&] {
        if (SHARE > 1 && at + SHARE >= end) return;
        await_copies<STAGES - 2>();
        __syncthreads();
        if (at + turn + SHARE < end) place = place + STAGE == past ? ring : place + STAGE;
        codes = place + warp * Slab::WEIGHTS;
        tokens = place + TOKENS_AT + part * OWN * 64;
      });
  overlap::release();
  products.leave();
  auto& acc = products.acc;

  // The groups' sums meet, those of a lane 32 apart
  if constexpr (SHARE > 1) {
    constexpr u32 SUMS = STRIPS * TILES * 4, ALL = WARPS * PARTS * SUMS;
    float* const held = reinterpret_cast<float*>(pool) + threadIdx.x % THREADS / 32 * SUMS * 32 + lane;
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < SUMS; ++i)
      if (turn > 0) held[((turn - 1) * ALL + i) * 32] = acc[i / (TILES * 4)][i / 4 % TILES][i % 4];
    __syncthreads();
    if (turn > 0) return;
#pragma unroll
    for (u32 other = 0; other < SHARE - 1; ++other)
#pragma unroll
      for (u32 i = 0; i < SUMS; ++i) acc[i / (TILES * 4)][i / 4 % TILES][i % 4] += held[(other * ALL + i) * 32];
  }

  // Pairs of columns leave. Where they go is found again: kept over the products it would take registers
  u32 tile;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(tile));
  find(tile);
  nibbles::Weight<S, Epi> own = weights.of(column);
  own.epilogue.out += blockIdx.y * slab;
#pragma unroll
  for (int s = 0; s < STRIPS; ++s) {
    const u32 to = (first(own) + s) * 16 + lane / 4 * 2;
    if (to >= own.n) break;
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const u32 row = token + part * OWN + i * 8 + lane % 4 * 2 + e;
        float pair[2] = {acc[s][i][e] * Slab::UNIT, acc[s][i][e + 2] * Slab::UNIT};
        if (row < m) own.epilogue.store(pair, row, to, to + 1 < own.n);
      }
  }
}
