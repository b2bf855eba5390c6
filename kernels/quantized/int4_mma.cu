// out = epilogue(x w) for any number of tokens x and int4 weights w in the tiled layout; one or several weights.
//
// Operands: mma.sync with swap_ab: A is a strip of 16 weight columns, unpacked in registers; B is 8 tokens.
// Tiling:   TOKENS tokens by WARPS 16 STRIPS columns per CTA; a warp has STRIPS strips and 1 / PARTS of the tokens.
//           SHARE groups of WARPS PARTS warps take k_blocks of 128 of K round-robin.
// Pipeline: STAGES cp.async stages, each with one k_block per group; one barrier per stage, ahead of the last mmas of
//           the previous k_block, which hide the first loads of the next.
// Order:    the first group adds the other groups' partial sums in order, through shared memory.
// Grid:     x: token tiles first (concurrent CTAs share weights), then columns; y: splits of K, added by reduce.cu.
// Shared:   STAGES SHARE (WARPS STRIPS 1.1 KB + TOKENS 256 bytes), reused for the partial sums. An mma
//           reads 1024 PARTS / TOKENS + 256 / STRIPS bytes, at 128 per cycle.
// Registers: two sets of 4 STRIPS TOKENS / PARTS / 8 accumulators (group and total).
// Bound:    DRAM for few tokens, then the mma.sync rate (on Hopper about 0.62 of wgmma's).
#include "products/epilogue.cuh"
#include "ptx/overlap.cuh"
#include "quantized/int4_loader.cuh"
#include "quantized/int4_pipeline.cuh"

template <class T, class S, int TOKENS, int STRIPS, int WARPS, int PARTS, int SHARE, int STAGES, int GROUP, bool ZEROS,
    class Epi, int COUNT>
__global__ void __launch_bounds__(WARPS * PARTS * SHARE * 32, WARPS * PARTS * SHARE > 4 ? 1 : 2)
    int4_mma(const T* x, nibbles::Weights<S, Epi, COUNT> weights, u32 pitch, u32 m, u32 k, u32 blocks, u32 groups,
        u32 k_blocks_per_split, u64 split_stride) {
  using StageLayout = nibbles::StageLayout<T, S, STRIPS, TOKENS, GROUP, ZEROS>;
  constexpr u32 TOKENS_AT = WARPS * StageLayout::WEIGHTS, SHARER_BYTES = TOKENS_AT + StageLayout::ACTIVATIONS,
                STAGE = SHARE * SHARER_BYTES;
  constexpr u32 THREADS = WARPS * PARTS * 32, OWN = TOKENS / PARTS, TILES = OWN / 8;  // per group; tokens per warp
  static_assert(OWN % 8 == 0);
  extern __shared__ __align__(128) u8 pool[];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS, part = threadIdx.x / 32 / WARPS % PARTS,
            sharer = SHARE == 1 ? 0 : threadIdx.x / THREADS;
  const u32 tiles = (m + TOKENS - 1) / TOKENS;
  u32 column, token;  // column group; first token of the tile
  const auto find = [&](u32 tile) {
    column = tile / tiles;
    token = (tile - column * tiles) * TOKENS;
  };
  find(blockIdx.x);
  const nibbles::Share<S, Epi> share(weights, column, blocks, k_blocks_per_split);
  const u32 begin = share.begin + sharer, end = share.end;
  const auto first = [&](const nibbles::Weight<S, Epi>& own) { return ((column - own.first) * WARPS + warp) * STRIPS; };
  const nibbles::GlobalLoader<StageLayout, THREADS, PARTS> loader(share, x + u64(token) * pitch, pitch, m - token, k,
      blocks, groups, first(share.own), part, threadIdx.x % THREADS);
  overlap::wait();

  // 1. Pipeline prologue
  u32 coming = begin, free = shared_address(pool) + sharer * SHARER_BYTES;
  const u32 stages = free, past = free + STAGES * STAGE;
  const auto fetch = [&](int part, int parts) {
    constexpr int ALL = decltype(loader)::ALL;
    loader.issue(free + warp * StageLayout::WEIGHTS, free + TOKENS_AT, coming, coming < end, part * ALL / parts,
        (part + 1) * ALL / parts);
    if (part + 1 < parts) return;
    commit_copies();
    coming += SHARE;
    free = free + STAGE == past ? stages : free + STAGE;
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) fetch(0, 1);
  await_copies<STAGES - 2>();
  __syncthreads();

  // 2. Main loop over the group's k_blocks. The last round has no barrier, as some groups may have no k_block in it
  nibbles::Pipeline<StageLayout, TILES> products;
  u32 codes = stages + warp * StageLayout::WEIGHTS, tokens = stages + TOKENS_AT + part * OWN * 64, place = stages;
  if (begin < end) products.prologue(codes, tokens, lane);
#pragma unroll 1
  for (u32 at = share.begin; at < end; at += SHARE)
    if (SHARE == 1 || at + sharer < end)
      products.multiply(codes, tokens, lane, fetch, [&] {
        if (SHARE > 1 && at + SHARE >= end) return;
        await_copies<STAGES - 2>();
        __syncthreads();
        if (at + sharer + SHARE < end) place = place + STAGE == past ? stages : place + STAGE;
        codes = place + warp * StageLayout::WEIGHTS;
        tokens = place + TOKENS_AT + part * OWN * 64;
      });
  overlap::release();
  products.drain();
  auto& acc = products.acc;

  // 3. Reduce over groups through shared memory, one bank per lane
  if constexpr (SHARE > 1) {
    constexpr u32 SUMS = STRIPS * TILES * 4, ALL = WARPS * PARTS * SUMS;
    float* const held = reinterpret_cast<float*>(pool) + threadIdx.x % THREADS / 32 * SUMS * 32 + lane;
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < SUMS; ++i)
      if (sharer > 0) held[((sharer - 1) * ALL + i) * 32] = acc[i / (TILES * 4)][i / 4 % TILES][i % 4];
    __syncthreads();
    if (sharer > 0) return;
#pragma unroll
    for (u32 other = 0; other < SHARE - 1; ++other)
#pragma unroll
      for (u32 i = 0; i < SUMS; ++i) acc[i / (TILES * 4)][i / 4 % TILES][i % 4] += held[(other * ALL + i) * 32];
  }

  // 4. Epilogue of column pairs. The tile is recomputed from ctaid, which saves registers in the main loop
  u32 tile;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(tile));
  find(tile);
  nibbles::Weight<S, Epi> own = weights.of(column);
  own.epilogue.out += blockIdx.y * split_stride;
#pragma unroll
  for (int s = 0; s < STRIPS; ++s) {
    const u32 to = (first(own) + s) * 16 + lane / 4 * 2;
    if (to >= own.n) break;
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const u32 row = token + part * OWN + i * 8 + lane % 4 * 2 + e;
        float pair[2] = {acc[s][i][e] * StageLayout::UNIT, acc[s][i][e + 2] * StageLayout::UNIT};
        if (row < m) own.epilogue.store(pair, row, to, to + 1 < own.n);
      }
  }
}
