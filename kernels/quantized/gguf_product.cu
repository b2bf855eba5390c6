// out[m, n] = sum over k of x[m, k] * weight[n, k], weights in GGUF blocks [N, K], few rows of x ("tokens").
//
// Operands:  mma.sync, A: 16 weight rows, B: TILES x 8 activation columns. One pass over the weights per TOKENS tokens.
//            X (fragments.cuh): x as f16 or bf16, f32 as three bf16 terms, or in Q8_1 blocks (ROUNDED: int8 mma).
// Tiling:    a warp has 16 weight rows and every WARPS_K-th chunk (PARTS x 256 weights) of K; a CTA of WARPS_N x
//            WARPS_K warps loops over row blocks (grid y). Token blocks (grid x) are neighbours and share weights in
//            L2. Rows and tokens past the end are clamped to the last one and not stored; K past the end is zeros.
// Columns:   a token fills SPREAD columns of B (f32: x 4), one per sub-block (F::SUB weights, one scale) of a group.
//            One mma chain per sub-block over all columns; a lane keeps those that hold that sub-block's activations.
// Scales:    lane (g, t) = (lane / 4, lane % 4) decodes those of sub-blocks t and t + 4 of rows g and g + 8, for itself
//            (SPREAD == 8) or for the row's lanes. Code offsets and minima multiply activation sums (mma with ones).
// Pipeline:  weights by cp.async through STAGES warp-private stages; activations to registers, PREFETCHED groups ahead.
// Order:     warps of the same rows are summed in warp order: the result depends on the configuration only.
// Shared:    stages, two buffers of row sums, scale tables; BOOK: 32 KB of value pairs by code byte, a copy per bank.
// Bound:     DRAM (Q4_K: 0.56 B per weight, 512 MiB in 117 us at 4.6 TB/s), if the issue slots suffice: see the kernel.
#include "ptx/overlap.cuh"
#include "quantized/gguf/fragments.cuh"
#include "quantized/gguf/staging.cuh"

using gguf::kept, gguf::PART, gguf::ROWS;
extern __shared__ uint4 pool[];  // stages of all warps, row sums, scale tables, value pairs (BOOK)

// Layout of a warp's scale table: (scale, fold) of each sub-block of 256 weights; PITCH is floats per row. A
// sub-block adds scale * (codes . activations) - fold * (sum of activations): fold holds minimum and code offset.
template <class F> struct Table { static constexpr u32 PITCH = PART / F::SUB * 2 + 4; };

__device__ __forceinline__ u32 shared_word(u32 at) {
  u32 x;
  asm("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at));
  return x;
}

// The B fragments of lane (g, t) for one group of SPREAD sub-blocks: column g of each of the TILES tiles.
template <class X, int UNITS, int TILES, bool WHOLE, bool STRIDED_PAIRS> struct Group {
  u32 b[TILES][UNITS][X::B];
  float scale[TILES];  // scales of Q8_1 activation blocks

  // Loads from `from` + `at` + `within`, of an f32 its bf16 term `part`; `left` elements are left in the row (unused if
  // rows are WHOLE chunks). STRIDED_PAIRS: pair order of the codes, see fragments.cuh.
  __device__ __forceinline__ void load(const u8* const (&from)[TILES], u32 within, u32 at, u32 part, i32 left) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int unit = 0; unit < UNITS; ++unit) {
        if (WHOLE || unit * 16 < left) {
          X::template load<STRIDED_PAIRS>(b[tile][unit], from[tile] + (at + within) + unit * (4 * X::LANE), part);
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
  // Pairs elements at a distance of 16, which is the order of the two codes in a byte (BOOK).
  __device__ __forceinline__ void pair_units() {
    static_assert(UNITS == 2 && X::B == 2);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      const u32 low[2] = {b[tile][0][0], b[tile][0][1]}, high[2] = {b[tile][1][0], b[tile][1][1]};
#pragma unroll
      for (int i = 0; i < 4; ++i) b[tile][i / 2][i % 2] = __byte_perm(low[i / 2], high[i / 2], i % 2 ? 0x7632 : 0x5410);
    }
  }
};

// Issue budget of a warp's step, 256 weights of 16 rows. Cycles that a scheduler has for it at 4.6 TB/s: Q4_K 465, Q8_0
// 908, Q6_K 693, Q2_K 277, Q3_K 363. Shifts, logic and PRMT take two cycles, a shared-memory wavefront four; IMAD, with
// an idle pipe, joins half words. sm_90 instructions at one bf16 token, copies excluded (of them two-cycle ones): Q4_K
// 248 (148), Q4_0 242 (135), Q5_0 385 (211), Q8_0 397 (192), Q6_K 387 (202), Q2_K 267 (144), Q3_K 373 (227), MXFP4 430
// (172), IQ4_NL 310 (105) and 100 wavefronts with BOOK, 468 (357) without. Q4_K at 2, 4, 8 tokens: 267, 296, 395.
template <class F, class X, class Out, int ALIGN, bool SHIFTED, bool WHOLE, int SPREAD, int TILES, int CHUNK,
    int WARPS_N, int WARPS_K, int STAGES, int CTAS, bool BOOK, int PREFETCHED>
__global__ void __launch_bounds__(WARPS_N * WARPS_K * 32, CTAS) gguf_product(
    Out* out, const u8* x, const u8* weights, i64 out_step, i64 x_step, i64 pitch, u32 tokens, u32 rows, u32 k) {
  using S = gguf::Slot<F, ALIGN, SHIFTED, CHUNK>;
  constexpr int UNITS = F::SUB / 16, SUBS = PART / F::SUB, GROUPS = SUBS / SPREAD, PARTS = CHUNK / PART;
  constexpr int OF_TOKEN = X::COLUMNS * SPREAD, TOKENS = 8 * TILES / OF_TOKEN;
  constexpr bool ROLLED = TILES > 2;  // loop over groups not unrolled, no prefetch: the accumulators need the registers
  static_assert(GROUPS % PREFETCHED == 0);
  // Offset of the multiplied codes, to be subtracted: the format's (weight = scale * (code - LESS) - least, format.cuh)
  // and what the widening of codes adds (MORE, fragments.cuh). FOLDS: an offset or a minimum remains, times a sum of
  // activations
  constexpr int LESS = F::LESS + X::template MORE<F::SIGNED>;
  constexpr bool FOLDS = LESS != 0 || F::LEAST;
  // IN_PLACE: codes stay at their bit position in the byte, which multiplies them by a power of two; the scale is
  //           divided
  // by it. fold takes the divided scale too: right for the offset of the widening (MORE), and not for one of the
  // format, but all formats with such codes have F::LESS == 0
  constexpr int BITS = F::Codes::Only::BITS;
  constexpr bool IN_PLACE = SPREAD > 1 && X::template IN_PLACE<BITS>;
  constexpr bool LOOKED = F::Codes::LOOKED && !X::ROUNDED;  // a codebook maps codes to floats
  static_assert(!BOOK || (LOOKED && UNITS == 2 && F::Codes::NIBBLE_HALVES), "a byte holds codes of both units");
  using Place = typename X::template Place<BITS ? BITS : 4>;
  constexpr bool STRIDED_PAIRS = IN_PLACE ||
      (LOOKED ? !BOOK && F::Codes::STRIDED_PAIRS : X::template STRIDED_PAIRS<F::SIGNED>);
  using Activations = Group<X, UNITS, TILES, WHOLE, STRIDED_PAIRS>;
  using Acc = typename X::Acc;
  const u32 warp = threadIdx.x / 32, lane = kept(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  const u32 own_k = warp % WARPS_K, own_rows = warp / WARPS_K * ROWS, first_token = blockIdx.x * TOKENS;
  const u32 chunks = (k + CHUNK - 1) / CHUNK, slots = shared_address(pool) + warp * (STAGES * S::SIZE);
  // k >> 30 is 0, which the compiler cannot know (kept): the constant stays in a register, as an instruction holds only
  // one immediate
  constexpr u32 EXPONENTS = IN_PLACE ? Place::EXPONENTS : X::template EXPONENTS<F::SIGNED>;
  const u32 exponents = EXPONENTS && ((F::SIGNED && !LOOKED) || IN_PLACE) ? kept(EXPONENTS + (k >> 30)) : EXPONENTS;
  const u32 own_row = kept(warp * (STAGES * S::SIZE) + g * S::PITCH);
  float* const sums_of_rows = reinterpret_cast<float*>(pool) + WARPS_N * WARPS_K * STAGES * S::SIZE / 4;
  float* const table = sums_of_rows + WARPS_N * WARPS_K * (2 * TOKENS * ROWS) + warp * (ROWS * Table<F>::PITCH);

  // 1. BOOK: write the table from code bytes to value pairs, one copy per lane and bank
  const u32 book = shared_address(
      sums_of_rows + WARPS_N * WARPS_K * (2 * TOKENS * ROWS + (SPREAD == 8 ? 0 : ROWS * Table<F>::PITCH)));
  const u32 own_page = book + lane * 4, page = BOOK ? kept(128 + (k >> 30)) : 0;
  if constexpr (BOOK) {
    F::Codes::template write<typename X::Number>(
        pool + (book - shared_address(pool)) / 16, threadIdx.x, WARPS_N * WARPS_K * 32);
    __syncthreads();
  }

  // 2. Column g of each tile: its sub-block in the group, its token's address, and its part of an f32 token (three bf16
  // terms). Out-of-range tokens are clamped to the last one and not stored
  const u32 of_group = SPREAD == 8 ? g / 2 + g % 2 * 4 : g % SPREAD, part = g / SPREAD % X::COLUMNS;
  const u32 within = X::at(of_group * F::SUB % 32) - X::at(0) + t * X::LANE;
  const u8* token[TILES];
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
    token[tile] = x + i64(min(first_token + (tile * 8 + g) / OF_TOKEN, tokens - 1)) * x_step +
        X::at(of_group * F::SUB / 32 * 32);

  // 3. Weight loader: cp.async of the next chunk of the CTA's rows, continuing into its next row block
  constexpr u32 WIDE = WARPS_N * ROWS;
  gguf::WarpCopies<S, WHOLE, WARPS_K, SPREAD == 8 && PARTS == 1> copies(slots, lane);
  u32 next_rows = own_k < chunks ? blockIdx.y * WIDE : rows, next = own_k;
  copies.prologue(weights, pitch, next_rows + own_rows, rows, own_k, lane);
  const auto fetch = [&](u32 slot) {
    if (next_rows < rows) {
      copies.start(slot * S::SIZE, next, pitch, lane);
      next += WARPS_K;
      if (next >= chunks) {
        next = own_k;
        next_rows += gridDim.y * WIDE;
        copies.prologue(weights, pitch, next_rows + own_rows, rows, own_k, lane);
      }
    }
    commit_copies();
  };

  // Inverse of the power of two that IN_PLACE leaves on the codes of sub-blocks t and t + 4
  float place[2] = {1, 1};
  if constexpr (IN_PLACE) {
#pragma unroll
    for (int e = 0; e < 2; ++e)
      place[e] = __uint_as_float((127 - Place::place(F::Codes::Only::P::above((t + 4 * e) * F::SUB))) << 23);
  }

  // 4. Pipeline prologue: STAGES - 1 chunks of weights, PREFETCHED groups of activations
  overlap::wait();
#pragma unroll
  for (int slot = 0; slot < STAGES - 1; ++slot) fetch(slot);
  // Loads the activations of group `group` of the 256 weights at `first`. Addresses step by 32 elements, a Q8_1 block;
  // a group of 16 (SUB == 16, SPREAD == 1) adds half a block
  const auto load_group = [&](Activations& some, u32 first, u32 group) {
    const u32 begin = (WHOLE ? min(first, k - PART) : first) + group * (SPREAD * F::SUB);
    some.load(token, within + (SPREAD * F::SUB % 32 ? group % 2 * (4 * X::LANE) : 0), X::at(begin / 32 * 32) - X::at(0),
        part, i32(k) - i32(begin + of_group * F::SUB));
  };
  Activations prefetched[PREFETCHED];
  if constexpr (!ROLLED) {
#pragma unroll
    for (int group = 0; group < PREFETCHED; ++group) load_group(prefetched[group], own_k * CHUNK, group);
  }

  u32 stage = 0, parity = 0;
#pragma unroll 1
  for (u32 cta_rows = blockIdx.y * WIDE; cta_rows < rows; cta_rows += gridDim.y * WIDE) {
    float acc[TILES][4] = {};
#pragma unroll 1
    for (u32 chunk = own_k; chunk < chunks; chunk += WARPS_K) {
      // 5. Refill a stage, wait for the chunk
      fetch((stage + STAGES - 1) % STAGES);
      await_copies<STAGES - 1>();
      __syncwarp();

      // Start of the chunk of rows g and g + 8 in shared memory
      const u8* chunk_of[2];
#pragma unroll
      for (u32 h = 0; h < 2; ++h) {
        const u32 row = g + 8 * h;
        const u32 shift = SHIFTED ? (min(cta_rows + own_rows + row, rows - 1) * u32(pitch) + chunk * S::BYTES) & 15 : 0;
        chunk_of[h] = reinterpret_cast<const u8*>(pool) + own_row + stage * S::SIZE + 8 * h * S::PITCH + shift;
      }

#pragma unroll 1
      for (u32 of_chunk = 0; of_chunk < PARTS; ++of_chunk) {
        const u32 first = chunk * CHUNK + of_chunk * PART,
                  after = (chunk + WARPS_K < chunks ? chunk + WARPS_K : own_k) * CHUNK;

        // 6. Decode scales and minima of sub-blocks 8 i + t + 4 e; share them in the row's table unless SPREAD == 8
        float own_scale[SUBS / 8][2][2], own_fold[SUBS / 8][2][2];
#pragma unroll
        for (u32 h = 0; h < 2; ++h)
#pragma unroll
          for (int i = 0; i < SUBS / 8; ++i) {
            float scale[2], least[2];
            gguf::TwoScales<F, ALIGN>::of(scale, least, chunk_of[h], 8 * i, t);
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              if constexpr (IN_PLACE) scale[e] *= place[e];
              own_fold[i][e][h] = least[e] + scale[e] * LESS;
              own_scale[i][e][h] = scale[e] * X::template INVERSE<F::SIGNED>;
              if constexpr (SPREAD != 8) {
                float* to = table + (g + 8 * h) * Table<F>::PITCH + (8 * i + t + 4 * e) * 2;
                *reinterpret_cast<Vec<float, 2>*>(to) = {own_scale[i][e][h], own_fold[i][e][h]};
              }
            }
          }
        if constexpr (SPREAD != 8) __syncwarp();

#pragma unroll(ROLLED ? 1 : GROUPS)
        for (int group = 0; group < GROUPS; ++group) {
          // Compiler fence: later groups' loads hoisted above it would spill; two groups may share words of codes
          if (SPREAD < 8 && !ROLLED && group * SPREAD % 2 == 0) asm volatile("" ::: "memory");
          Activations own;
          if constexpr (ROLLED) load_group(own, first, group);
          else own = prefetched[group % PREFETCHED];
          if constexpr (BOOK) own.pair_units();
          if constexpr (!ROLLED)
            load_group(prefetched[group % PREFETCHED],
                group + PREFETCHED < GROUPS ? first
                    : of_chunk + 1 < PARTS  ? first + PART
                                            : after,
                (group + PREFETCHED) % GROUPS);

          // 7. Sums of activations by an mma with ones (the same in every row)
          Acc dots[TILES][4], sums[TILES][4];
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[tile][i] = X::START;
#pragma unroll
            for (int unit = 0; unit < (FOLDS ? UNITS : 0); ++unit) {
              u32 ones[X::A];
#pragma unroll
              for (int i = 0; i < X::A; ++i) ones[i] = X::ONES;
              X::multiply(sums[tile], ones, own.b[tile][unit]);
            }
          }
          // 8. Dot products per sub-block; BOOK: load the code bytes before the table lookups
          [[maybe_unused]] u32 bytes[SPREAD][2];
          if constexpr (BOOK) {
#pragma unroll
            for (int s = 0; s < SPREAD; ++s) {
              const u32 weight = (group * SPREAD + s) * F::SUB;
#pragma unroll
              for (int h = 0; h < 2; ++h)
                bytes[s][h] = F::Codes::Plane::template bytes_of<ALIGN>(chunk_of[h] + weight / F::WEIGHTS * F::BYTES,
                                                                        weight & (F::WEIGHTS - 1), 4 * t);
            }
          }
#pragma unroll
          for (int s = 0; s < SPREAD; ++s) {
            Acc all[TILES][4];
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
              for (int i = 0; i < 4; ++i) all[tile][i] = X::START;
#pragma unroll
            for (int unit = 0; unit < UNITS; ++unit) {
              constexpr u32 IN_BLOCK = F::WEIGHTS - 1;
              const u32 weight = (group * SPREAD + s) * F::SUB + unit * 16, block = weight / F::WEIGHTS * F::BYTES;
              u32 codes[2], a[X::A];
              if constexpr (IN_PLACE) {
                using Plane = typename F::Codes::Only::P;
#pragma unroll
                for (int h = 0; h < 2; ++h)
                  codes[h] = Plane::template bytes_of<ALIGN>(chunk_of[h] + block, weight & IN_BLOCK, 4 * t);
#pragma unroll
                for (int i = 0; i < X::A; ++i)
                  a[i] = Place::pair(codes[i % 2], i / 2, Plane::above(weight & IN_BLOCK), exponents);
              } else if constexpr (BOOK) {
#pragma unroll
                for (int i = 0; i < X::A; ++i)
                  a[i] = shared_word(__byte_perm(bytes[s][i % 2], 0, 0x4440 + 2 * unit + i / 2) * page + own_page);
              } else if constexpr (LOOKED) {
                X::template look_up<typename F::Codes, ALIGN>(
                    a, chunk_of[0] + block, chunk_of[1] + block, weight & IN_BLOCK, 4 * t);
              } else {
#pragma unroll
                for (int h = 0; h < 2; ++h)
                  codes[h] = F::Codes::template four<ALIGN>(chunk_of[h] + block, weight & IN_BLOCK, 4 * t);
                X::template widen<F::SIGNED>(a, codes[0], codes[1], exponents);
              }
#pragma unroll
              for (int tile = 0; tile < TILES; ++tile) X::multiply(all[tile], a, own.b[tile][unit]);
            }
            // Keep the columns that hold this sub-block's activations; pair 0 initialises all lanes' columns
            constexpr int PAIRS = SPREAD > 2 ? SPREAD / 2 : 1;
            const int pair = SPREAD == 8 ? s % 4 : s / 2;
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
              for (int c = 0; c < 4; ++c)
                if (SPREAD == 1 || c % 2 == (SPREAD == 8 ? s / 4 : s % 2))
                  dots[tile][c] = pair == 0 || t % PAIRS == pair ? all[tile][c] : dots[tile][c];
          }

          // 9. Scale into the f32 accumulator: this lane has columns 2 t and 2 t + 1, of one or two sub-blocks
          float scale[2][2], fold[2][2];
#pragma unroll
          for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              if constexpr (SPREAD == 8) {
                scale[e][h] = own_scale[group][e][h];
                fold[e][h] = own_fold[group][e][h];
              } else {
                const u32 sub = group * SPREAD + (2 * t + e) % SPREAD;
                const Vec<float, 2> both = *reinterpret_cast<const Vec<float, 2>*>(
                    table + (g + 8 * h) * Table<F>::PITCH + sub * 2);
                scale[e][h] = both.at[0];
                fold[e][h] = both.at[1];
              }
            }
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              float of_token = 1, sum = 0;
              if constexpr (X::ROUNDED) of_token = __shfl_sync(~0u, own.scale[tile], (2 * t + e) * 4);
              if constexpr (FOLDS) sum = X::number(sums[tile][e], of_token);
#pragma unroll
              for (int h = 0; h < 2; ++h) {
                float& to = acc[tile][2 * h + e];
                to = fmaf(scale[e][h], X::number(dots[tile][2 * h + e], of_token), to);
                if constexpr (FOLDS) to = fmaf(-fold[e][h], sum, to);
              }
            }
        }
#pragma unroll
        for (u32 h = 0; h < 2; ++h) chunk_of[h] += PART / F::WEIGHTS * F::BYTES;
        if constexpr (SPREAD != 8 && PARTS > 1) __syncwarp();
      }
      __syncwarp();
      stage = (stage + 1) % STAGES;
    }

    // 10. Epilogue: add a token's columns by shuffles, then the WARPS_K warps of a row through shared memory, in warp
    // order. The buffer alternates between row blocks, so that one barrier is enough
    constexpr u32 LANES = OF_TOKEN > 1 ? OF_TOKEN / 2 : 1, EACH = 8 / OF_TOKEN;
    float* meeting = sums_of_rows + parity * (WARPS_N * WARPS_K * TOKENS * ROWS);
    parity ^= 1;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float* to = meeting + (warp * TOKENS + tile * EACH) * ROWS + g + 8 * h;
        if constexpr (OF_TOKEN == 1) {
#pragma unroll
          for (int e = 0; e < 2; ++e) to[(2 * t + e) * ROWS] = acc[tile][2 * h + e];
        } else {
          float sum = acc[tile][2 * h] + acc[tile][2 * h + 1];
#pragma unroll
          for (u32 lanes = 1; lanes < LANES; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
          if (t % LANES == 0) to[t / LANES * ROWS] = sum;
        }
      }
    __syncthreads();
    for (u32 i = threadIdx.x; i < TOKENS * WIDE; i += WARPS_N * WARPS_K * 32) {
      const u32 number = i / WIDE, row = i % WIDE;
      float sum = 0;
#pragma unroll
      for (u32 w = 0; w < WARPS_K; ++w)
        sum += meeting[((row / ROWS * WARPS_K + w) * TOKENS + number) * ROWS + row % ROWS];
      if (cta_rows + row < rows && first_token + number < tokens)
        out[(first_token + number) * out_step + cta_rows + row] = convert<Out>(sum);
    }
  }
  overlap::release();
}
