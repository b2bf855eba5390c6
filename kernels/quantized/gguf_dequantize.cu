// Blocks of GGUF formats as f32, f16 or bf16, with the roundings of the `gguf` package: products and differences are rounded each.
//
// A thread takes 32 weights, as eights: of a block of 256 those 32 apart, which share words of codes and the block's scales; of a block
// of 32 with half bytes the two 16 apart, of two blocks; else one of each of four blocks. They are written in accesses of 16 bytes, side
// by side in 64, 32 or 512 bytes; neighbouring threads share a block's bytes through L1. A code becomes a float as the last byte of
// 2^23, which is taken off: no conversion. Where something is taken off at last, the product before is exact, so that an FMA rounds
// as the two do. ALIGN: what every block is aligned to. No shared memory.
// Bound: bandwidth, bytes of blocks read and results written once over 4.6 TB/s: 2.6 bytes a weight of Q4_K as bf16, 8192 x 8192 in
// 37 us, in which 16 issue slots go by for a weight; machine code of sm_90 has 7.7 instructions of Q4_K, 6.1 of Q4_0, 8.1 of Q6_K, 7.9 of Q8_0.
#include "overlap.cuh"
#include "quantized/gguf/format.cuh"

// Eight numbers, STORE an access; halves are rounded and stored as pairs.
template <int STORE, class Out> __device__ __forceinline__ void put(Out* to, const float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i += STORE) {
    if constexpr (sizeof(Out) == 2 && STORE > 1) {
      Vec<u32, STORE / 2> pairs;
#pragma unroll
      for (int k = 0; k < STORE / 2; ++k) pairs.at[k] = round_pair(x[i + 2 * k], x[i + 2 * k + 1], Out{});
      *reinterpret_cast<Vec<u32, STORE / 2>*>(to + i) = pairs;
    } else {
      float some[STORE];
#pragma unroll
      for (int k = 0; k < STORE; ++k) some[k] = x[i + k];
      *reinterpret_cast<Vec<Out, STORE>*>(to + i) = round_to<Out, STORE>(some);
    }
  }
}

template <class F, class Out, int ALIGN, int STORE, int THREADS, class I>
__global__ void __launch_bounds__(THREADS) gguf_dequantize(Out* __restrict__ out, const u8* __restrict__ blocks, I thirty_twos) {
  constexpr int EACH = F::WEIGHTS == 256 ? 4 : F::Codes::IN_HALVES ? 2 : 1, APART = EACH == 4 ? 32 : 16, TIMES = 4 / EACH;
  constexpr u32 UNITS = F::WEIGHTS / (8 * EACH);  // of a block, a thread's at a time
  overlap::wait();
  const I units = thirty_twos * TIMES, begin = I(blockIdx.x) * (THREADS * TIMES) + threadIdx.x;
  if (begin >= units) return;
  const auto within = [](I unit) -> u32 { return EACH == 4 ? u32(unit) % UNITS / 4 * 128 | u32(unit) % 4 * 8 : u32(unit) % UNITS * 8; };

  // All that is read, ahead of what is written
  u32 codes[4][2];
  float scale[4], least[4];
#pragma unroll
  for (int i = 0; i < TIMES; ++i) {
    const I unit = min(begin + i * THREADS, units - 1);
    const u8* block = static_cast<const u8*>(__builtin_assume_aligned(blocks + i64(unit / UNITS) * F::BYTES, ALIGN));
    const typename F::template Scales<ALIGN> scales(block);
#pragma unroll
    for (u32 e = 0; e < EACH; ++e) {
      const u32 eight = within(unit) | e * APART;
      scale[i * EACH + e] = scales.scale(eight / F::SUB);
      least[i * EACH + e] = scales.least(eight / F::SUB);
#pragma unroll
      for (u32 half = 0; half < 2; ++half)
        codes[i * EACH + e][half] = F::Codes::template four<ALIGN>(block, eight & ~15u, (eight & 8) | 4 * half);
    }
  }

  // The bits of 2^23, in a register: a block has one layer, which the compiler does not know
  const u32 shifted = 0x4b000000u + (blockDim.y - 1);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const I unit = begin + i / EACH * THREADS;
    if (unit >= units) return;
    float x[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const u32 four = F::SIGNED ? codes[i][k / 4] ^ 0x80808080u : codes[i][k / 4];
      const float code = __uint_as_float(__byte_perm(four, shifted, 0x7440 | k % 4)) - (8388608.0f + (F::SIGNED ? 128 : F::LESS));
      x[k] = F::LEAST ? fmaf(scale[i], code, -least[i]) : __fmul_rn(scale[i], code);
    }
    put<STORE>(out + i64(unit / UNITS) * F::WEIGHTS + within(unit) + i % EACH * APART, x);
  }
}
