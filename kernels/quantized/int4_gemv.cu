// out = epilogue(x w) for at most 32 tokens x and one or several int4 weights w in the tiled layout, read once.
//
// Operands: mma.sync with swap_ab: A is 16 weight columns (a strip), B is 8 tokens; 8, 16, 24 or 32 tokens.
// Tiling:   a CTA has STRIPS strips; its warps take k_blocks of 128 of K round-robin.
// Pipeline: each warp has its own cp.async pipeline of STAGES stages, with __syncwarp only and without load registers.
// Order:    the warps' partial sums are added through shared memory in warp order.
// Grid:     x: groups of strips over all weights; y: splits of K, spaced by `split_stride` elements, added by
//           reduce.cu.
// Shared:   WARPS STAGES (STRIPS 1.1 KB + TOKENS 256 bytes), reused for the partial sums.
// Bound:    DRAM: codes and scales at 4.6 TB/s (H200); about 1.3 instructions per weight and lane.
#include "products/epilogue.cuh"
#include "ptx/overlap.cuh"
#include "quantized/int4_loader.cuh"

template <class T, class S, int TOKENS, int STRIPS, int WARPS, int STAGES, int GROUP, bool ZEROS, class Epi, int COUNT>
__global__ void __launch_bounds__(WARPS * 32, 1) int4_gemv(const T* x, nibbles::Weights<S, Epi, COUNT> weights,
    u32 pitch, u32 m, u32 k, u32 blocks, u32 groups, u32 k_blocks_per_split, u64 split_stride) {
  using StageLayout = nibbles::StageLayout<T, S, STRIPS, TOKENS, GROUP, ZEROS>;
  constexpr u32 STAGE = StageLayout::WEIGHTS + StageLayout::ACTIVATIONS, ROWS = STRIPS * 16,
                WIDTH = StageLayout::TILES * 8;
  extern __shared__ __align__(128) u8 pool[];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, stages = shared_address(pool) + warp * STAGES * STAGE;
  nibbles::Share<S, Epi> share(weights, blockIdx.x, blocks, k_blocks_per_split);
  const u32 first = (blockIdx.x - share.own.first) * STRIPS, end = share.end;
  const nibbles::GlobalLoader<StageLayout, 32, 1> loader(share, x, pitch, m, k, blocks, groups, first, 0, lane);
  overlap::wait();

  // 1. Pipeline prologue
  u32 coming = share.begin + warp;
  const auto fetch = [&](u32 stage) {
    const u32 to = stages + stage * STAGE;
    loader.issue(to, to + StageLayout::WEIGHTS, coming, coming < end);
    commit_copies();
    coming += WARPS;
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) fetch(stage);

  // 2. Main loop over the warp's k_blocks
  float acc[STRIPS][StageLayout::TILES][4] = {};
  u32 stage = 0;
#pragma unroll 1
  for (u32 at = share.begin + warp; at < end; at += WARPS) {
    await_copies<STAGES - 2>();
    __syncwarp();
    fetch(stage == 0 ? STAGES - 1 : stage - 1);
    const u32 from = stages + stage * STAGE;
    StageLayout::multiply(acc, from, from + StageLayout::WEIGHTS, lane);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  overlap::release();

  // 3. Partial sums to shared memory, [warp][token][row]
  await_copies<0>();
  __syncthreads();
  const auto sums = reinterpret_cast<float*>(pool);
#pragma unroll
  for (int s = 0; s < STRIPS; ++s)
#pragma unroll
    for (int tile = 0; tile < StageLayout::TILES; ++tile)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const u32 token = tile * 8 + lane % 4 * 2 + e;
        const Vec<float, 2> pair{{acc[s][tile][e] * StageLayout::UNIT, acc[s][tile][e + 2] * StageLayout::UNIT}};
        if (token < TOKENS)
          *reinterpret_cast<Vec<float, 2>*>(sums + (warp * WIDTH + token) * ROWS + s * 16 + lane / 4 * 2) = pair;
      }
  __syncthreads();
  // 4. Add in warp order, epilogue of column pairs
  share.own.epilogue.out += blockIdx.y * split_stride;
  for (u32 i = threadIdx.x; i < m * (ROWS / 2); i += WARPS * 32) {
    const u32 token = i / (ROWS / 2), row = i % (ROWS / 2) * 2, column = first * 16 + row;
    if (column >= share.own.n) continue;
    float pair[2] = {};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const Vec<float, 2> part = *reinterpret_cast<const Vec<float, 2>*>(sums + (w * WIDTH + token) * ROWS + row);
      pair[0] += part.at[0];
      pair[1] += part.at[1];
    }
    share.own.epilogue.store(pair, token, column, column + 1 < share.own.n);
  }
}
