// x [M, K] times rows of GGUF blocks [N, K], transposed: every byte of the weights is read once for up to 8 TILES columns. CTAs of
// more rows of x that share weights are neighbours, so that these come from L2.
//
// Weights are the A operand of mma.sync (16 rows, 16 k), activations the B operand (8 columns). Rows of few columns ("tokens") leave
// columns idle, so that these are given to neighbouring sub-blocks, SPREAD of them a token: sub-block s meets activations only in
// columns that are s modulo SPREAD, and zeros in the others. Its sum then ends up in a lane of its own, which alone works out the
// sub-block's scale: at one token a lane scales 2 sub-blocks of 2 rows in 256 weights of 16 rows, not 8. What is taken off codes, and
// minima, are multiplied by the sums of activations, which a second product, by ones, puts where the scales are.
//
// A warp takes 16 rows and, of K, every WARPS_K-th chunk of 256 weights; a CTA is WARPS_N x WARPS_K warps. A chunk of 16 rows comes by
// 16-byte cp.async through STAGES slots of the warp's own; no barrier until the end. Rows whose chunks do not begin on 16 bytes
// (SHIFTED) are staged from the 16 bytes before them on, and read where they then begin. Pitches in shared memory are odd multiples of
// 16 bytes: eight rows and four lanes of words meet no bank twice. Activations come from L1, a group of sub-blocks ahead of use.
// Warps of the same rows meet in shared memory, in order: the result depends on nothing but the configuration.
//
// Bound: bandwidth. Bytes over 4.6 TB/s: Q4_K 0.56 bytes a weight, 512 MiB in 117 us; Q8_0 1.06. At one token about 1.1 instructions
// a weight of Q4_K in f16 (0.4 to take codes apart, 0.5 to widen them, 0.2 for all else) where 3.6 issue slots go by; s8 0.7.
// In flight: 8 warps x (STAGES - 1) x 16 rows x 144 bytes = 37 KB a CTA of Q4_K, three CTAs an SM.
#include "async_copy.cuh"
#include "overlap.cuh"
#include "quantized/gguf/fragments.cuh"

constexpr u32 ROWS = 16, CHUNK = 256;
extern __shared__ uint4 pool[];  // the warps' slots, later their sums

// How a chunk of a row lies in a slot. ALIGN: what every block is aligned to in memory.
template <class F, int ALIGN, bool SHIFTED> struct Slot {
  static constexpr u32 BYTES = CHUNK / F::WEIGHTS * F::BYTES;
  static constexpr u32 PIECES = (BYTES + (SHIFTED ? 16 - ALIGN : 0) + 15) / 16;
  static constexpr u32 PITCH = (PIECES | 1) * 16, SIZE = ROWS * PITCH;
};

// Starts the copies of chunk `chunk` of 16 rows from `first` on; zeros where there is no weight.
template <class S> __device__ __forceinline__ void fetch(u32 slot, const u8* weights, i64 pitch, u32 first, u32 rows, u32 chunk, u32 lane) {
#pragma unroll
  for (u32 i = 0; i < (ROWS * S::PIECES + 31) / 32; ++i) {
    const u32 piece = i * 32 + lane, row = piece / S::PIECES, within = piece % S::PIECES;
    const i64 begin = i64(first + row) * pitch, end = begin + pitch;
    const i64 from = ((begin + i64(chunk) * S::BYTES) & ~i64(15)) + within * 16;
    const bool there = first + row < rows && from < end;
    if (ROWS * S::PIECES % 32 == 0 || row < ROWS)
      copy_async<16>(slot + row * S::PITCH + within * 16, weights + (there ? from : 0), there ? u32(min(i64(16), end - from)) : 0);
  }
  commit_copies();
}

// Lane (g, t)'s part of the activations of a group of SPREAD sub-blocks: those of the column g of every tile.
template <class X, int UNITS, int TILES> struct Group {
  u32 b[TILES][UNITS][X::B];
  float scale[TILES];  // of Q8_1 blocks

  // `token[tile]`: where its row of activations begins; `begin`: the first weight; zeros from `end` on, and where `there` is false.
  __device__ __forceinline__ void load(const u8* const (&token)[TILES], u32 begin, u32 end, u32 t, u32 part, u32 there) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      scale[tile] = 0;
#pragma unroll
      for (int unit = 0; unit < UNITS; ++unit) {
#pragma unroll
        for (int i = 0; i < X::B; ++i) b[tile][unit][i] = 0;
        if ((there >> tile & 1) && begin + unit * 16 < end) X::load(b[tile][unit], token[tile], begin + unit * 16, t, part);
      }
      if constexpr (X::ROUNDED)
        if ((there >> tile & 1) && begin < end) scale[tile] = X::scale(token[tile], begin);
    }
  }
};

template <class F, class X, class Out, int ALIGN, bool SHIFTED, int SPREAD, int TILES, int WARPS_N, int WARPS_K, int STAGES>
__global__ void __launch_bounds__(WARPS_N * WARPS_K * 32)
gguf_product(Out* out, const u8* x, const u8* weights, i64 out_step, i64 x_step, i64 pitch, u32 tokens, u32 rows, u32 k) {
  using S = Slot<F, ALIGN, SHIFTED>;
  constexpr int UNITS = F::SUB / 16, SUBS = CHUNK / F::SUB, GROUPS = SUBS / SPREAD;
  constexpr int OF_TOKEN = X::COLUMNS * SPREAD, TOKENS = 8 * TILES / OF_TOKEN;
  constexpr bool FOLDS = F::LESS != 0 || F::LEAST;
  using Acc = typename X::Acc;
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const u32 first_row = (blockIdx.y * WARPS_N + warp / WARPS_K) * ROWS, first_token = blockIdx.x * TOKENS;
  const u32 chunks = (k + CHUNK - 1) / CHUNK, slots = shared_address(pool) + warp * (STAGES * S::SIZE);

  // The column g of every tile: its token, and its place among the token's columns
  const u8* token[TILES];
  u32 there = 0;
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    const u32 number = first_token + (tile * 8 + g) / OF_TOKEN;
    there |= u32(number < tokens) << tile;
    token[tile] = x + (number < tokens ? number : 0) * x_step;
  }
  const u32 of_group = g % SPREAD, part = g / SPREAD % X::COLUMNS;

  overlap::wait();
  u32 next = warp % WARPS_K;
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage, next += WARPS_K)
    fetch<S>(slots + stage * S::SIZE, weights, pitch, first_row, next < chunks ? rows : 0, next, lane);
  Group<X, UNITS, TILES> ahead;
  ahead.load(token, (warp % WARPS_K * SUBS + of_group) * F::SUB, k, t, part, there);

  float acc[TILES][4] = {};
  u32 stage = 0;
#pragma unroll 1
  for (u32 chunk = warp % WARPS_K; chunk < chunks; chunk += WARPS_K, next += WARPS_K) {
    fetch<S>(slots + (stage + STAGES - 1) % STAGES * S::SIZE, weights, pitch, first_row, next < chunks ? rows : 0, next, lane);
    await_copies<STAGES - 1>();
    __syncwarp();

    // Rows g and g + 8, where their chunks begin
    const u8* chunk_of[2];
#pragma unroll
    for (u32 h = 0; h < 2; ++h) {
      const u32 row = g + 8 * h;
      const u32 shift = SHIFTED ? u32(i64(first_row + row) * pitch + i64(chunk) * S::BYTES) & 15 : 0;
      chunk_of[h] = reinterpret_cast<const u8*>(pool) + (warp * STAGES + stage) * S::SIZE + row * S::PITCH + shift;
    }

#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      const Group<X, UNITS, TILES> own = ahead;
      const u32 after = group + 1 < GROUPS ? chunk * SUBS + (group + 1) * SPREAD : (chunk + WARPS_K) * SUBS;
      ahead.load(token, (after + of_group) * F::SUB, k, t, part, there);

      Acc dots[TILES][4] = {}, sums[TILES][4] = {};
#pragma unroll
      for (int s = 0; s < SPREAD; ++s)
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) {
          constexpr u32 IN_BLOCK = F::WEIGHTS - 1;
          const u32 weight = (group * SPREAD + s) * F::SUB + unit * 16, block = weight / F::WEIGHTS * F::BYTES;
          u32 codes[2], a[X::A], ones[X::A];
#pragma unroll
          for (int h = 0; h < 2; ++h) codes[h] = F::Codes::template four<ALIGN>(chunk_of[h] + block, weight & IN_BLOCK, 4 * t);
          X::template widen<F::SIGNED>(a, codes[0], codes[1]);
#pragma unroll
          for (int i = 0; i < X::A; ++i) ones[i] = X::ONES;
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile) {
            u32 b[X::B];
#pragma unroll
            for (int i = 0; i < X::B; ++i) b[i] = of_group == s ? own.b[tile][unit][i] : 0;
            X::multiply(dots[tile], a, b);
            if constexpr (FOLDS) X::multiply(sums[tile], ones, b);
          }
        }

      // Scaled: this lane's columns are 2 t and 2 t + 1, of one sub-block or of two
#pragma unroll
      for (int e = 0; e < (SPREAD == 1 ? 1 : 2); ++e) {
        const u32 sub = group * SPREAD + (2 * t + e) % SPREAD;
        const u32 block = sub * F::SUB / F::WEIGHTS, in_block = sub - block * (F::WEIGHTS / F::SUB);
        float scale[2], fold[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const typename F::template Scales<ALIGN> scales(chunk_of[h] + block * F::BYTES);
          scale[h] = scales.scale(in_block);
          fold[h] = scales.least(in_block) + scale[h] * F::LESS;
          scale[h] *= X::template INVERSE<F::SIGNED>;
        }
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
          for (int c = e; c < (SPREAD == 1 ? 2 : e + 1); ++c) {
            float of_token = 1;
            if constexpr (X::ROUNDED) of_token = __shfl_sync(~0u, own.scale[tile], (2 * t + c) * 4);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              float& sum = acc[tile][2 * h + c];
              sum = fmaf(scale[h] * of_token, float(dots[tile][2 * h + c]), sum);
              if constexpr (FOLDS) sum = fmaf(-fold[h] * of_token, float(sums[tile][2 * h + c]), sum);
            }
          }
      }
    }
    __syncwarp();
    stage = (stage + 1) % STAGES;
  }
  overlap::release();

  // Sums of warps that share rows meet, and then a token's columns
  await_copies<0>();
  __syncthreads();
  constexpr u32 WIDTH = 8 * TILES;
  float* meeting = reinterpret_cast<float*>(pool);
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) meeting[(warp * WIDTH + tile * 8 + 2 * t + i % 2) * ROWS + g + 8 * (i / 2)] = acc[tile][i];
  __syncthreads();
  for (u32 i = threadIdx.x; i < TOKENS * WARPS_N * ROWS; i += WARPS_N * WARPS_K * 32) {
    const u32 number = i / (WARPS_N * ROWS), row = i % (WARPS_N * ROWS);
    float sum = 0;
#pragma unroll
    for (u32 w = 0; w < WARPS_K; ++w)
#pragma unroll
      for (u32 c = 0; c < OF_TOKEN; ++c)
        sum += meeting[((row / ROWS * WARPS_K + w) * WIDTH + number * OF_TOKEN + c) * ROWS + row % ROWS];
    const u32 at = blockIdx.y * (WARPS_N * ROWS) + row;
    if (at < rows && first_token + number < tokens) out[(first_token + number) * out_step + at] = convert<Out>(sum);
  }
}
