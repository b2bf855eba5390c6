// out = scale * code - least: GGUF blocks to f32, f16 or bf16, with the `gguf` package's separate roundings.
//
// Threads: 32 weights per thread in four runs of eight: at a distance of 32 in a block of 256 (shared code words and
//          scales), 16 in two blocks of 32 with 4-bit codes, otherwise one run in each of four blocks.
// Convert: a code is OR'ed into the mantissa of 2^23, which is then subtracted. Formats with a minimum use one FMA,
//          which rounds like product and difference, as their product is exact.
// Memory:  16-byte stores, contiguous over 64, 32 or 512 bytes; neighbouring threads share a block through L1. ALIGN:
//          alignment of every block.
// Shared:  none.
// Bound:   DRAM: Q4_K to bf16 2.6 bytes per weight, 8192 x 8192 in 37 us at 4.6 TB/s, or 16 issue slots per weight;
//          sm_90 instructions per weight: Q4_K 7.7, Q4_0 6.1, Q6_K 8.1, Q8_0 7.9.
#include "ptx/overlap.cuh"
#include "quantized/gguf/format.cuh"

// Rounds and stores eight values by accesses of STORE elements; 16-bit types are rounded in pairs.
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
__global__ void __launch_bounds__(THREADS)
    gguf_dequantize(Out* __restrict__ out, const u8* __restrict__ blocks, I thirty_twos) {
  constexpr int EACH = F::WEIGHTS == 256 ? 4
      : F::Codes::NIBBLE_HALVES          ? 2
                                         : 1,
                RUN_STEP = EACH == 4 ? 32 : 16, TIMES = 4 / EACH;
  constexpr u32 UNITS = F::WEIGHTS / (8 * EACH);  // units of 8 EACH weights per block
  overlap::wait();
  const I units = thirty_twos * TIMES, begin = I(blockIdx.x) * (THREADS * TIMES) + threadIdx.x;
  if (begin >= units) return;
  const auto within = [](I unit) -> u32 {
    return EACH == 4 ? u32(unit) % UNITS / 4 * 128 | u32(unit) % 4 * 8 : u32(unit) % UNITS * 8;
  };

  // 1. All loads, before any store
  u32 codes[4][2];
  float scale[4], least[4];
#pragma unroll
  for (int i = 0; i < TIMES; ++i) {
    const I unit = min(begin + i * THREADS, units - 1);
    const u8* block = static_cast<const u8*>(__builtin_assume_aligned(blocks + i64(unit / UNITS) * F::BYTES, ALIGN));
    const typename F::template Scales<ALIGN> scales(block);
#pragma unroll
    for (u32 e = 0; e < EACH; ++e) {
      const u32 eight = within(unit) | e * RUN_STEP;
      scale[i * EACH + e] = scales.scale(eight / F::SUB);
      least[i * EACH + e] = scales.least(eight / F::SUB);
#pragma unroll
      for (u32 half = 0; half < 2; ++half)
        codes[i * EACH + e][half] = F::Codes::template four<ALIGN>(block, eight & ~15u, (eight & 8) | 4 * half);
    }
  }

  // 2. Convert and store. The bits of 2^23 are kept in a register: blockDim.y is 1, which the compiler does not know
  const u32 shifted = 0x4b000000u + (blockDim.y - 1);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const I unit = begin + i / EACH * THREADS;
    if (unit >= units) return;
    float x[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const u32 four = F::SIGNED ? codes[i][k / 4] ^ 0x80808080u : codes[i][k / 4];
      const float code = __uint_as_float(__byte_perm(four, shifted, 0x7440 | k % 4)) -
          (8388608.0f + (F::SIGNED ? 128 : F::LESS));
      x[k] = F::LEAST ? fmaf(scale[i], code, -least[i]) : __fmul_rn(scale[i], code);
    }
    put<STORE>(out + i64(unit / UNITS) * F::WEIGHTS + within(unit) + i % EACH * RUN_STEP, x);
  }
}
