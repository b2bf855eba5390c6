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
// 16-byte cp.async through STAGES slots of the warp's own; one barrier for 16 WARPS_N rows. Rows whose chunks do not begin on 16 bytes
// (SHIFTED) are staged from the 16 bytes before them on, and read where they then begin. Pitches in shared memory are odd multiples of
// 16 bytes: eight rows and four lanes of words meet no bank twice. Activations come from L1, a group of sub-blocks ahead of use.
// A CTA goes on to further rows, whose first chunks are under way while the sums of warps of the same rows meet in shared memory, in
// order: the result depends on nothing but the configuration.
//
// Bound: bandwidth. Bytes over 4.6 TB/s: Q4_K 0.56 bytes a weight, 512 MiB in 117 us; Q8_0 1.06; where 3.6 issue slots go by for a
// weight of Q4_K, 6.8 of Q8_0. At one token PTX has about 2.7 instructions a weight of Q4_K (codes taken apart 0.55, widened 0.5,
// activations to columns 0.25, products 0.25, scales 0.4), 3.3 of Q8_0, 4.2 of Q6_K, 2.6 with rounded activations; at 8 tokens 4.0 and
// 4.6 of Q4_K, for every column has every sub-block's scale; then about 0.9 for each further 8.
// In flight: 8 warps x (STAGES - 1) x 16 rows x 144 bytes = 37 KB a CTA of Q4_K, two CTAs an SM.
#include "async_copy.cuh"
#include "overlap.cuh"
#include "quantized/gguf/fragments.cuh"

// A product that no compiler turns into a choice: multiplications are not what this kernel has most of.
__device__ __forceinline__ u32 times(u32 x, u32 y) {
  u32 z;
  asm("mul.lo.u32 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
  return z;
}

constexpr u32 ROWS = 16, CHUNK = 256;
extern __shared__ uint4 pool[];  // the warps' slots, later their sums

// How a chunk of a row lies in a slot. ALIGN: what every block is aligned to in memory.
template <class F, int ALIGN, bool SHIFTED_> struct Slot {
  static constexpr bool SHIFTED = SHIFTED_;
  static constexpr u32 BYTES = CHUNK / F::WEIGHTS * F::BYTES;
  static constexpr u32 PIECES = (BYTES + (SHIFTED ? 16 - ALIGN : 0) + 15) / 16;
  static constexpr u32 PITCH = (PIECES | 1) * 16, SIZE = ROWS * PITCH;
};

// Copies of chunks of 16 rows, by one warp. Rows past the last one stand for it, and are not stored.
template <class S> struct Copies {
  static constexpr int COUNT = (ROWS * S::PIECES + 31) / 32;
  const u8* row_of[COUNT];
  u32 to[COUNT];

  __device__ __forceinline__ explicit Copies(u32 lane) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const u32 piece = i * 32 + lane;
      to[i] = piece / S::PIECES * S::PITCH + piece % S::PIECES * 16;
    }
  }
  static __device__ __forceinline__ bool is_one(int i, u32 lane) { return ROWS * S::PIECES % 32 == 0 || i * 32 + lane < ROWS * S::PIECES; }

  __device__ __forceinline__ void enter(const u8* weights, i64 pitch, u32 first, u32 rows) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      row_of[i] = weights + i64(min(first + to[i] / S::PITCH, rows - 1)) * pitch + (S::SHIFTED ? 0 : to[i] % S::PITCH);
  }
  // Chunk `chunk` to `slot`; zeros where the row has ended. The words before a row's chunk, and behind it, are not read.
  __device__ __forceinline__ void start(u32 slot, u32 chunk, i64 pitch, u32 lane) const {
    const i64 begin = i64(chunk) * S::BYTES;
    if (begin + S::PIECES * 16 <= pitch) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i)
        if (is_one(i, lane)) copy_async<16>(slot + to[i], word_of(i, begin), 16);
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; ++i)
        if (is_one(i, lane)) {
          const u8* from = word_of(i, begin);
          const i64 left = pitch - (from - (row_of[i] - (S::SHIFTED ? 0 : to[i] % S::PITCH)));
          copy_async<16>(slot + to[i], left > 0 ? from : row_of[0], left > 0 ? u32(min(left, i64(16))) : 0);
        }
    }
  }

 private:
  __device__ __forceinline__ const u8* word_of(int i, i64 begin) const {
    if constexpr (!S::SHIFTED) return row_of[i] + begin;
    return reinterpret_cast<const u8*>(reinterpret_cast<u64>(row_of[i] + begin) & ~u64(15)) + to[i] % S::PITCH;
  }
};

// Lane (g, t)'s part of the activations of a group of SPREAD sub-blocks: those of the column g of every tile.
template <class X, int UNITS, int TILES, bool WHOLE> struct Group {
  u32 b[TILES][UNITS][X::B];
  float scale[TILES];  // of Q8_1 blocks

  // From `from` + `at` on; `left` numbers are left of the row, which do for all where rows are WHOLE chunks.
  __device__ __forceinline__ void load(const u8* const (&from)[TILES], u32 within, u32 at, u32 part, i32 left) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int unit = 0; unit < UNITS; ++unit) {
        if (WHOLE || unit * 16 < left) {
          X::load(b[tile][unit], from[tile] + (at + within) + unit * (4 * X::LANE), part);
        } else {
#pragma unroll
          for (int i = 0; i < X::B; ++i) b[tile][unit][i] = 0;
        }
      }
      scale[tile] = 0;
      if constexpr (X::ROUNDED)
        if (WHOLE || left > 0) scale[tile] = X::scale(from[tile] + at);
    }
  }
};

template <class F, class X, class Out, int ALIGN, bool SHIFTED, bool WHOLE, int SPREAD, int TILES, int WARPS_N, int WARPS_K, int STAGES, int CTAS>
__global__ void __launch_bounds__(WARPS_N * WARPS_K * 32, CTAS)
gguf_product(Out* out, const u8* x, const u8* weights, i64 out_step, i64 x_step, i64 pitch, u32 tokens, u32 rows, u32 k) {
  using S = Slot<F, ALIGN, SHIFTED>;
  constexpr int UNITS = F::SUB / 16, SUBS = CHUNK / F::SUB, GROUPS = SUBS / SPREAD;
  constexpr int OF_TOKEN = X::COLUMNS * SPREAD, TOKENS = 8 * TILES / OF_TOKEN;
  constexpr bool ROLLED = TILES > 2;  // groups in a loop: registers hold the sums of all tiles, and one group's activations
  constexpr int LESS = F::LESS + X::template MORE<F::SIGNED>;
  constexpr bool FOLDS = LESS != 0 || F::LEAST;
  using Acc = typename X::Acc;
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const u32 own_k = warp % WARPS_K, own_rows = warp / WARPS_K * ROWS, first_token = blockIdx.x * TOKENS;
  const u32 chunks = (k + CHUNK - 1) / CHUNK, slots = shared_address(pool) + warp * (STAGES * S::SIZE);

  // The column g of every tile: where its token begins, and its place among the token's columns. Tokens past the last one stand for
  // it, and are not stored
  const u32 of_group = g % SPREAD, part = g / SPREAD % X::COLUMNS;
  const u32 within = X::at(of_group * F::SUB % 32) - X::at(0) + t * X::LANE;
  const u8* token[TILES];
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
    token[tile] = x + i64(min(first_token + (tile * 8 + g) / OF_TOKEN, tokens - 1)) * x_step + X::at(of_group * F::SUB / 32 * 32);

  // One where a sub-block meets this lane's column, and zero: what products with activations are multiplied by, in another pipe than
  // codes are taken apart
  u32 meets[SPREAD];
#pragma unroll
  for (int s = 0; s < SPREAD; ++s) meets[s] = of_group == s;

  // What is copied next: chunks of the CTA's rows, and then of the rows that are its next
  constexpr u32 WIDE = WARPS_N * ROWS;
  Copies<S> copies(lane);
  u32 next_rows = own_k < chunks ? blockIdx.y * WIDE : rows, next = own_k;
  copies.enter(weights, pitch, next_rows + own_rows, rows);
  const auto fetch = [&](u32 slot) {
    if (next_rows < rows) {
      copies.start(slots + slot * S::SIZE, next, pitch, lane);
      next += WARPS_K;
      if (next >= chunks) {
        next = own_k;
        next_rows += gridDim.y * WIDE;
        copies.enter(weights, pitch, next_rows + own_rows, rows);
      }
    }
    commit_copies();
  };

  overlap::wait();
#pragma unroll
  for (int slot = 0; slot < STAGES - 1; ++slot) fetch(slot);
  // Group `group` of a chunk, or of the last one
  const auto ask = [&](Group<X, UNITS, TILES, WHOLE>& some, u32 chunk, u32 group) {
    const u32 begin = (WHOLE ? min(chunk, chunks - 1) : chunk) * CHUNK + group * (SPREAD * F::SUB);
    some.load(token, within + (SPREAD * F::SUB % 32 ? group % 2 * (4 * X::LANE) : 0), X::at(begin / 32 * 32) - X::at(0), part,
              i32(k) - i32(begin + of_group * F::SUB));
  };
  Group<X, UNITS, TILES, WHOLE> ahead;
  if constexpr (!ROLLED) ask(ahead, own_k, 0);

  u32 stage = 0, parity = 0;
#pragma unroll 1
  for (u32 cta_rows = blockIdx.y * WIDE; cta_rows < rows; cta_rows += gridDim.y * WIDE) {
    float acc[TILES][4] = {};
#pragma unroll 1
    for (u32 chunk = own_k; chunk < chunks; chunk += WARPS_K) {
      fetch((stage + STAGES - 1) % STAGES);
      await_copies<STAGES - 1>();
      __syncwarp();

      // Rows g and g + 8, where their chunks begin
      const u8* chunk_of[2];
#pragma unroll
      for (u32 h = 0; h < 2; ++h) {
        const u32 row = g + 8 * h;
        const u32 shift = SHIFTED ? (min(cta_rows + own_rows + row, rows - 1) * u32(pitch) + chunk * S::BYTES) & 15 : 0;
        chunk_of[h] = reinterpret_cast<const u8*>(pool) + (warp * STAGES + stage) * S::SIZE + row * S::PITCH + shift;
      }

      // The scales of sub-blocks 8 i + 2 t + e, for all four lanes of a row
      float own_scale[SUBS / 8][2][2], own_fold[SUBS / 8][2][2];
#pragma unroll
      for (int i = 0; i < (ROLLED ? 0 : SUBS / 8); ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const u32 weight = (8 * i + 2 * t + e) * F::SUB, block = weight / F::WEIGHTS;
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const typename F::template Scales<ALIGN> scales(chunk_of[h] + block * F::BYTES);
            const u32 in_block = (weight - block * F::WEIGHTS) / F::SUB;
            const float scale = scales.scale(in_block);
            own_fold[i][e][h] = scales.least(in_block) + scale * LESS;
            own_scale[i][e][h] = scale * X::template INVERSE<F::SIGNED>;
          }
        }

#pragma unroll(ROLLED ? 1 : GROUPS)
      for (int group = 0; group < GROUPS; ++group) {
        // Loads of further groups stay behind, or registers would not hold them; two groups may share words of codes
        if (SPREAD == 1 && !ROLLED && group % 2 == 0) asm volatile("" ::: "memory");
        Group<X, UNITS, TILES, WHOLE> own;
        if constexpr (ROLLED) ask(own, chunk, group);
        else own = ahead;
        if constexpr (!ROLLED) ask(ahead, group + 1 < GROUPS ? chunk : chunk + WARPS_K < chunks ? chunk + WARPS_K : own_k, (group + 1) % GROUPS);

        Acc dots[TILES][4], sums[TILES][4];
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
          for (int i = 0; i < 4; ++i) dots[tile][i] = sums[tile][i] = X::START;
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
              for (int i = 0; i < X::B; ++i) b[i] = SPREAD == 1 ? own.b[tile][unit][i] : times(own.b[tile][unit][i], meets[s]);
              X::multiply(dots[tile], a, b);
              if constexpr (FOLDS) X::multiply(sums[tile], ones, b);
            }
          }

        // Scaled: this lane's columns are 2 t and 2 t + 1, of one sub-block or of two
#pragma unroll
        for (int e = 0; e < (SPREAD == 1 ? 1 : 2); ++e) {
          const u32 eight = group * SPREAD / 8, odd = SPREAD == 1 ? group & 1 : e;
          const u32 from = (lane & ~3u) + (group * SPREAD % 8u >> 1) + (SPREAD == 4 ? t & 1 : 0);
          float scale[2], fold[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            if constexpr (ROLLED) {
              const u32 block = group * F::SUB / F::WEIGHTS, in_block = group - block * (F::WEIGHTS / F::SUB);
              const typename F::template Scales<ALIGN> scales(chunk_of[h] + block * F::BYTES);
              scale[h] = scales.scale(in_block);
              fold[h] = scales.least(in_block) + scale[h] * LESS;
              scale[h] *= X::template INVERSE<F::SIGNED>;
            } else {
              scale[h] = SPREAD == 8 ? own_scale[eight][odd][h] : __shfl_sync(~0u, own_scale[eight][odd][h], from);
              if constexpr (FOLDS) fold[h] = SPREAD == 8 ? own_fold[eight][odd][h] : __shfl_sync(~0u, own_fold[eight][odd][h], from);
            }
          }
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int c = e; c < (SPREAD == 1 ? 2 : e + 1); ++c) {
              float of_token = 1, sum = 0;
              if constexpr (X::ROUNDED) of_token = __shfl_sync(~0u, own.scale[tile], (2 * t + c) * 4);
              if constexpr (FOLDS) sum = X::number(sums[tile][c]);  // the same in every row
#pragma unroll
              for (int h = 0; h < 2; ++h) {
                float x = X::number(dots[tile][2 * h + c]), &to = acc[tile][2 * h + c];
                if constexpr (X::ROUNDED) {
                  x *= scale[h];
                  if constexpr (FOLDS) x = fmaf(-fold[h], sum, x);
                  to = fmaf(of_token, x, to);
                } else {
                  to = fmaf(scale[h], x, to);
                  if constexpr (FOLDS) to = fmaf(-fold[h], sum, to);
                }
              }
            }
        }
      }
      __syncwarp();
      stage = (stage + 1) % STAGES;
    }

    // Sums of warps that share rows meet, and then a token's columns; the next rows' sums have a place of their own
    constexpr u32 WIDTH = 8 * TILES;
    float* meeting = reinterpret_cast<float*>(pool) + (WARPS_N * WARPS_K * STAGES * S::SIZE) / 4 + parity * (WARPS_N * WARPS_K * WIDTH * ROWS);
    parity ^= 1;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) meeting[(warp * WIDTH + tile * 8 + 2 * t + i % 2) * ROWS + g + 8 * (i / 2)] = acc[tile][i];
    __syncthreads();
    for (u32 i = threadIdx.x; i < TOKENS * WIDE; i += WARPS_N * WARPS_K * 32) {
      const u32 number = i / WIDE, row = i % WIDE;
      float sum = 0;
#pragma unroll
      for (u32 w = 0; w < WARPS_K; ++w)
#pragma unroll
        for (u32 c = 0; c < OF_TOKEN; ++c)
          sum += meeting[((row / ROWS * WARPS_K + w) * WIDTH + number * OF_TOKEN + c) * ROWS + row % ROWS];
      if (cta_rows + row < rows && first_token + number < tokens)
        out[(first_token + number) * out_step + cta_rows + row] = convert<Out>(sum);
    }
  }
  overlap::release();
}
