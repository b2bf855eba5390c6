// x of few rows ("tokens") times rows of Q4_K blocks [N, K], transposed: codes go from memory to registers, and are not scaled there.
//
// The A operand of mma.sync has 16 rows: four rows of weights, of each the four 32-byte groups of codes of a block. Low nibbles of group
// c are sub-block 2 c, high ones 2 c + 1: products by themselves. The B operand has the groups of activations as columns, of two tokens
// (of one twice, where it is ALONE): what counts is where both groups are the same. Rows 4 to 7 of a step have their groups in the order
// 2 3 0 1, so that with them every lane has sums of one pair of sub-blocks, 2 c and 2 c + 1: it scales these, of one row if ALONE and else
// of two. Minima, and what is added to codes, are multiplied by the sums of activations: one product by ones, for all 8 rows.
//
// A warp takes 8 rows and every WARPS-th block of them; the CTA's warps meet in shared memory, in order, and go on to further rows.
// Blocks are asked for DEPTH steps ahead, into registers; neighbouring warps read neighbouring blocks, so that sectors of 32 bytes that
// blocks of 144 share come from L1, as activations do.
//
// Nibbles become f16 by masks alone: subnormals, n 2^-24 and 16 n 2^-24, which tensor cores multiply exactly. As bf16 they are 128 + n.
// Every sum is f32: a sub-block's by tensor cores, then an FMA for it, and one for what is taken off.
//
// Bound: bandwidth: 0.56 bytes a weight, 512 MiB of weights as Q4_K in 65 us at 4.6 TB/s, where 3.6 issue slots go by for a weight.
// PTX has, a weight, about 2.4 instructions at one token (codes 0.9, products 0.2, scales 0.8, loads and addresses 0.4), 3.2 at two,
// 4.0 at four, 5.2 at eight; machine code has fewer, for and and or are one.
// In flight: 16 warps an SM x DEPTH x 8 rows x 144 bytes = 55 KB at a DEPTH of 3. Shared memory: 64 bytes a warp and token.
#include "mma.cuh"
#include "overlap.cuh"

namespace {

constexpr u32 ROWS = 8, BYTES = 144, WEIGHTS = 256;

// Pairs of four codes as 16-bit floats, and of the activations they meet. Sums have to be `inverse` times as large, but for what was
// ADDED to codes. As f16 a pair is bytes 0 and 2, or 1 and 3; as bf16, neighbours.
template <class X> struct Nibbles;
template <> struct Nibbles<f16> {
  static constexpr u32 ONES = 0x3c003c00u;
  static constexpr int ADDED = 0;
  static __device__ __forceinline__ float inverse(bool high) { return high ? 1048576.0f : 16777216.0f; }
  static __device__ __forceinline__ u32 pair(u32 codes, int i, bool high) {
    return codes >> (8 * i) & (high ? 0x00f000f0u : 0x000f000fu);
  }
  static __device__ __forceinline__ u32 met(u32 first, u32 second, int i) { return __byte_perm(first, second, i ? 0x7632 : 0x5410); }
};
template <> struct Nibbles<bf16> {
  static constexpr u32 ONES = 0x3f803f80u;
  static constexpr int ADDED = 128;
  static __device__ __forceinline__ float inverse(bool) { return 1.0f; }
  static __device__ __forceinline__ u32 pair(u32 codes, int i, bool high) {
    return __byte_perm((high ? codes >> 4 : codes) & 0x0f0f0f0fu, 0x43434343u, i ? 0x4342 : 0x4140);
  }
  static __device__ __forceinline__ u32 met(u32 first, u32 second, int i) { return i ? second : first; }
};

using Eight = Vec<u32, 2>;
using Sixteen = Vec<u32, 4>;

// What a lane reads of a block of 8 rows: codes of rows 4 q + 2 h + g / 4, and what scales of HEADS rows are made of.
template <int HEADS> struct Step {
  Eight codes[2][2];
  Sixteen head[HEADS];
};

// A choice that no compiler turns into branches.
__device__ __forceinline__ float either(u32 which, float yes, float no) {
  float x;
  asm("{ .reg .pred p; setp.ne.u32 p, %3, 0; selp.f32 %0, %1, %2, p; }" : "=f"(x) : "f"(yes), "f"(no), "r"(which));
  return x;
}

// The scales and minima of sub-blocks 2 c and 2 c + 1.
struct Scales {
  float scale[2], least[2];
  __device__ __forceinline__ Scales(const Sixteen& head, u32 c) {
    const u32 by = c % 2 * 16, first = head.at[1] >> by, second = head.at[2] >> by, last = head.at[3] >> by;
    const u32 low = c < 2 ? 0x3f3fu : 0x0f0fu, high = c < 2 ? 0u : 0x3030u;
    const u32 scales = ((c < 2 ? first : last) & low) | (first >> 2 & high);
    const u32 minima = ((c < 2 ? second : last >> 4) & low) | (second >> 2 & high);
    const float d = convert<float>(f16{u16(head.at[0])}), m = convert<float>(f16{u16(head.at[0] >> 16)});
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scale[i] = __fmul_rn(d, float(scales >> (8 * i) & 0xff));
      least[i] = __fmul_rn(m, float(minima >> (8 * i) & 0xff));
    }
  }
};

}  // namespace

template <class X, class Out, int PAIRS, bool ALONE, int WARPS, int DEPTH, int CTAS>
__global__ void __launch_bounds__(WARPS * 32, CTAS)
gguf_gemv(Out* out, const X* x, const u8* weights, i64 out_step, i64 x_step, u32 tokens, u32 rows, u32 blocks) {
  constexpr int TOKENS = ALONE ? 1 : 2 * PAIRS, HEADS = ALONE ? 1 : 2;
  __shared__ float meeting[2][WARPS][TOKENS][ROWS];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const i64 pitch = i64(blocks) * BYTES;

  // What this lane scales: the group c, of rows 4 `four` + 2 h + g / 4, and of which token of two, or at one token which h
  const u32 odd = g % 2, c = t % 2 * 2 + odd, four = t % 2 ^ g / 2 % 2, half = t / 2;

  // Column g of the activations: its token, and its group
  const X* column[PAIRS];
#pragma unroll
  for (int p = 0; p < PAIRS; ++p) column[p] = x + i64(min(ALONE ? 0 : 2 * p + g / 4, tokens - 1)) * x_step + g % 4 * 64 + t * 8;

  // What is read next. Rows past the last one stand for it, and are not stored
  u32 next_row = blockIdx.x * ROWS, next = warp;
  const u8 *codes_of[2][2], *head_of[HEADS];
  const auto enter = [&] {
    const auto row_of = [&](u32 row) { return weights + i64(min(next_row + row + g / 4, rows - 1)) * pitch; };
#pragma unroll
    for (u32 h = 0; h < 2; ++h) {
#pragma unroll
      for (u32 q = 0; q < 2; ++q) codes_of[q][h] = row_of(4 * q + 2 * h) + 16 + (g % 4 ^ 2 * q) * 32 + t * 8;
      if (h < HEADS) head_of[h] = row_of(4 * four + 2 * (ALONE ? half : h));
    }
  };
  const auto ask = [&](Step<HEADS>& step) {
    if (next_row >= rows) return;
    const u32 at = next * BYTES;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int q = 0; q < 2; ++q) step.codes[q][h] = *reinterpret_cast<const Eight*>(codes_of[q][h] + at);
      if (h < HEADS) step.head[h] = *reinterpret_cast<const Sixteen*>(head_of[h] + at);
    }
    next += WARPS;
    if (next >= blocks) {
      next = warp;
      next_row += gridDim.x * ROWS;
      enter();
    }
  };

  overlap::wait();
  enter();
  Step<HEADS> steps[DEPTH];
#pragma unroll
  for (int i = 0; i < DEPTH; ++i) ask(steps[i]);

  u32 block = warp, parity = 0;
  float acc[PAIRS][HEADS] = {};
#pragma unroll 1
  for (u32 row = blockIdx.x * ROWS; row < rows;) {
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) {
      if (row >= rows) break;
      Step<HEADS>& step = steps[i];

      // Products of low nibbles, and of high ones
      float dots[PAIRS][2][2][4] = {}, sums[PAIRS][2][4] = {};
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        u32 b[PAIRS][2][2];
#pragma unroll
        for (int p = 0; p < PAIRS; ++p) {
          const Sixteen eight = *reinterpret_cast<const Sixteen*>(column[p] + block * WEIGHTS + 32 * high);
#pragma unroll
          for (int w = 0; w < 2; ++w) {
#pragma unroll
            for (int j = 0; j < 2; ++j) b[p][w][j] = Nibbles<X>::met(eight.at[2 * w], eight.at[2 * w + 1], j);
            const u32 ones[4] = {Nibbles<X>::ONES, Nibbles<X>::ONES, Nibbles<X>::ONES, Nibbles<X>::ONES};
            Mma<X>::run(sums[p][high], ones, b[p][w]);
          }
        }
#pragma unroll
        for (int q = 0; q < 2; ++q)
#pragma unroll
          for (int w = 0; w < 2; ++w) {
            u32 a[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) a[j] = Nibbles<X>::pair(step.codes[q][j % 2].at[w], j / 2, high);
#pragma unroll
            for (int p = 0; p < PAIRS; ++p) Mma<X>::run(dots[p][q][high], a, b[p][w]);
          }
      }

      // Scaled: this lane's own of them
#pragma unroll
      for (int r = 0; r < HEADS; ++r) {
        const Scales scales(step.head[r], c);
#pragma unroll
        for (int high = 0; high < 2; ++high) {
          const float scale = scales.scale[high] * Nibbles<X>::inverse(high);
          const float fold = scales.least[high] + scales.scale[high] * Nibbles<X>::ADDED;
#pragma unroll
          for (int p = 0; p < PAIRS; ++p) {
            const auto of = [&](int q, int h) { return either(odd, dots[p][q][high][2 * h + 1], dots[p][q][high][2 * h]); };
            const auto own = [&](int h) { return either(four, of(1, h), of(0, h)); };
            const float dot = ALONE ? either(half, own(1), own(0)) : own(r);
            acc[p][r] = fmaf(scale, dot, acc[p][r]);
            acc[p][r] = fmaf(-fold, either(odd, sums[p][high][1], sums[p][high][0]), acc[p][r]);
          }
        }
      }
      ask(step);

      // Lanes of a row, and then warps; the next rows' sums have a place of their own
      block += WARPS;
      if (block >= blocks) {
#pragma unroll
        for (int p = 0; p < PAIRS; ++p)
#pragma unroll
          for (int r = 0; r < HEADS; ++r) {
            float sum = acc[p][r];
            sum += __shfl_xor_sync(~0u, sum, 4);
            sum += __shfl_xor_sync(~0u, sum, 9);
            acc[p][r] = 0;
            if (odd == 0 && t % 2 == 0) meeting[parity][warp][ALONE ? 0 : 2 * p + half][4 * four + 2 * (ALONE ? half : r) + g / 4] = sum;
          }
        __syncthreads();
        for (u32 j = threadIdx.x; j < TOKENS * ROWS; j += WARPS * 32) {
          const u32 token = j / ROWS, of = row + j % ROWS;
          float sum = 0;
#pragma unroll
          for (int w = 0; w < WARPS; ++w) sum += meeting[parity][w][token][j % ROWS];
          if (token < tokens && of < rows) out[token * out_step + of] = convert<Out>(sum);
        }
        parity ^= 1;
        block = warp;
        row += gridDim.x * ROWS;
      }
    }
  }
  overlap::release();
}
