// out = epilogue(x w) of any number of tokens x and int4 weights in the tiled layout; of one weight, or of several that share the
// tokens.
//
// Weights are mma.sync's a operand, unpacked in registers, and tokens its b. A CTA has TOKENS tokens and WARPS 16 STRIPS columns of
// the result; a warp has STRIPS strips of them and all the tokens. SHARE groups of WARPS warps take slabs of 128 of K in turn. Slabs
// come by cp.async through STAGES stages, one of each group in a stage: weights, which only the warp reads that copies them, and
// tokens, which its group reads; one barrier a stage.
// Shared memory: STAGES SHARE (WARPS STRIPS 1.1 KB + TOKENS 256 bytes), later the sums of all groups but the first, which adds them
// to its own in their order. Registers: two sets of sums of 4 STRIPS TOKENS / 8 each, one of a scale's group, one of all.
// Grid: tiles of tokens first, so that those that share weights are in flight together, then columns; splits of K along y, whose
// results lie `slab` elements apart and are added up by reduce.cu.
// Bound: bandwidth for few tokens, then mma.sync's rate (on Hopper about 0.62 of wgmma's).
#include "epilogue.cuh"
#include "overlap.cuh"
#include "quantized/int4_fragment.cuh"
#include "quantized/int4_weight.cuh"

template <class T, class S, int TOKENS, int STRIPS, int WARPS, int SHARE, int STAGES, int GROUP, bool ZEROS, class Epi, int COUNT>
__global__ void __launch_bounds__(WARPS * SHARE * 32, WARPS * SHARE > 4 ? 1 : 2)
int4_mma(const T* x, nibbles::Weights<S, Epi, COUNT> weights, u32 pitch, u32 m, u32 k, u32 blocks, u32 groups, u32 slabs_per_split,
         u64 slab) {
  using Slab = nibbles::Slab<T, S, STRIPS, TOKENS, GROUP, ZEROS>;
  constexpr u32 TURN = WARPS * Slab::WEIGHTS + Slab::ACTIVATIONS, STAGE = SHARE * TURN, TOKENS_AT = WARPS * Slab::WEIGHTS;
  extern __shared__ __align__(128) u8 pool[];
  const u32 warp = threadIdx.x / 32 % WARPS, part = threadIdx.x / 32 / WARPS, lane = threadIdx.x % 32;
  const u32 ring = shared_address(pool) + part * TURN;
  const u32 tiles = (m + TOKENS - 1) / TOKENS, column = blockIdx.x / tiles, token = (blockIdx.x - column * tiles) * TOKENS;
  nibbles::Weight<S, Epi> own = weights.of(column);
  const u32 strips = (own.n + 15) / 16, first = ((column - own.first) * WARPS + warp) * STRIPS;
  const u32 begin = blockIdx.y * slabs_per_split, end = min((blocks + 1) / 2, begin + slabs_per_split);
  x += u64(token) * pitch;
  overlap::wait();

  u32 coming = begin + part;
  const auto fetch = [&](u32 stage) {
    if (coming < end) {
      const u32 to = ring + stage * STAGE;
      Slab::fetch(to + warp * Slab::WEIGHTS, own.codes, own.scales, own.zeros, first, strips, coming, blocks, groups, lane);
      Slab::template fetch_tokens<WARPS * 32>(to + TOKENS_AT, x, pitch, m - token, k, coming, warp * 32 + lane);
    }
    commit_copies();
    coming += SHARE;
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) fetch(stage);

  // Slabs, each while the next are under way
  float acc[STRIPS][Slab::TILES][4] = {};
  u32 stage = 0;
#pragma unroll 1
  for (u32 at = begin; at < end; at += SHARE) {
    await_copies<STAGES - 2>();
    __syncthreads();
    fetch(stage == 0 ? STAGES - 1 : stage - 1);
    const u32 from = ring + stage * STAGE;
    if (SHARE == 1 || at + part < end) Slab::multiply(acc, from + warp * Slab::WEIGHTS, from + TOKENS_AT, lane);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  overlap::release();
  await_copies<0>();

  // The groups' sums meet, those of a lane 32 apart
  if constexpr (SHARE > 1) {
    constexpr u32 SUMS = STRIPS * Slab::TILES * 4;
    float* const held = reinterpret_cast<float*>(pool) + warp * SUMS * 32 + lane;
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < SUMS; ++i)
      if (part > 0) held[((part - 1) * WARPS * SUMS + i) * 32] = acc[i / (Slab::TILES * 4)][i / 4 % Slab::TILES][i % 4];
    __syncthreads();
    if (part > 0) return;
#pragma unroll
    for (u32 other = 0; other < SHARE - 1; ++other)
#pragma unroll
      for (u32 i = 0; i < SUMS; ++i) acc[i / (Slab::TILES * 4)][i / 4 % Slab::TILES][i % 4] += held[(other * WARPS * SUMS + i) * 32];
  }

  // Pairs of columns leave
  own.epilogue.out += blockIdx.y * slab;
#pragma unroll
  for (int s = 0; s < STRIPS; ++s) {
    const u32 to = (first + s) * 16 + lane / 4 * 2;
    if (to >= own.n) break;
#pragma unroll
    for (int tile = 0; tile < Slab::TILES; ++tile)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const u32 row = token + tile * 8 + lane % 4 * 2 + e;
        float pair[2] = {acc[s][tile][e] * Slab::UNIT, acc[s][tile][e + 2] * Slab::UNIT};
        if (row < m) own.epilogue.store(pair, row, to, to + 1 < own.n);
      }
  }
}
