// Blocks of GGUF formats as f32, f16 or bf16, with the roundings of the `gguf` package: products and differences are rounded each.
//
// A thread takes 8 neighbouring weights, whose codes are one to four words of the block, and writes them in accesses of 16 bytes.
// Neighbouring threads share a block's bytes through L1. ALIGN: what every block is aligned to. No shared memory.
// Bound: bandwidth, bytes of blocks read and results written once over 4.6 TB/s: 2.6 bytes a weight of Q4_K as bf16, 8192 x 8192 in
// 37 us; about 6 instructions a weight, where 11 would fit.
#include "overlap.cuh"
#include "quantized/gguf/format.cuh"

template <class F, class Out, int ALIGN, int STORE, int THREADS, class I>
__global__ void __launch_bounds__(THREADS) gguf_dequantize(Out* out, const u8* blocks, I eights) {
  overlap::wait();
  const I eight = I(blockIdx.x) * THREADS + threadIdx.x;
  if (eight >= eights) return;
  const I index = eight / (F::WEIGHTS / 8);
  const u32 first = u32(eight - index * (F::WEIGHTS / 8)) * 8;
  const u8* block = blocks + i64(index) * F::BYTES;
  const typename F::template Scales<ALIGN> scales(block);
  const float scale = scales.scale(first / F::SUB), least = scales.least(first / F::SUB);

  float x[8];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const u32 codes = F::Codes::template four<ALIGN>(block, first & ~15u, (first & 8) + 4 * half);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 byte = codes >> (8 * i) & 0xff;
      const int code = F::SIGNED ? int(i8(byte)) : int(byte) - F::LESS;
      const float scaled = __fmul_rn(scale, float(code));
      x[4 * half + i] = F::LEAST ? __fsub_rn(scaled, least) : scaled;
    }
  }
#pragma unroll
  for (int i = 0; i < 8; i += STORE) {
    float some[STORE];
#pragma unroll
    for (int k = 0; k < STORE; ++k) some[k] = x[i + k];
    *reinterpret_cast<Vec<Out, STORE>*>(out + i64(eight) * 8 + i) = round_to<Out, STORE>(some);
  }
}
