// out = value[code] absmax, in f32, rounded to f32, f16 or bf16.
//
// Threads: a word of eight codes per thread and round, ROUNDS rounds; 8192 consecutive values per CTA; stores of STORE
//          elements. ALIGN: alignment of the words of codes.
// Lookup:  each lane keeps one of the sixteen values; others come by shuffle.
// Shared:  with DOUBLE, the absmax map (1 KB).
// Bound:   DRAM: 0.56 bytes per value read plus the result: 8192 x 8192 to bf16 in 37 us at 4.6 TB/s; about 5
//          instructions per value, of 11 that fit.
#include "ptx/overlap.cuh"
#include "quantized/nf4.cuh"

constexpr int THREADS = 256, ROUNDS = 4;

template <class Out, bool DOUBLE, int ALIGN, int STORE, class I>
__global__ void __launch_bounds__(THREADS)
nf4_dequantize(Out* out, const u8* codes, nf4::Magnitudes<DOUBLE> magnitudes, u32 shift, I eights) {
  __shared__ float map[DOUBLE ? THREADS : 1];
  if constexpr (DOUBLE) {
    map[threadIdx.x] = nf4::mapped(threadIdx.x);
    __syncthreads();
  }
  const float own = nf4::VALUES[threadIdx.x % 16];
  overlap::wait();

  // 1. All loads before the first use
  const float offset = magnitudes.added();
  const I first = I(blockIdx.x) * (THREADS * ROUNDS) + threadIdx.x;
  typename nf4::Magnitudes<DOUBLE>::Raw raw[ROUNDS] = {};
  u32 words[ROUNDS] = {};
#pragma unroll
  for (int round = 0; round < ROUNDS; ++round) {
    const I eight = first + round * THREADS;
    if (eight >= eights) break;
    raw[round] = magnitudes.read(u32(eight >> shift));
#pragma unroll
    for (int i = 0; i < 4 / ALIGN; ++i)
      words[round] |= u32(*reinterpret_cast<const typename Word<ALIGN>::type*>(codes + eight * 4 + i * ALIGN))
          << i * 8 * ALIGN % 32;
  }

  // 2. Look up (whole warps, for the shuffles), scale, store
#pragma unroll
  for (int round = 0; round < ROUNDS; ++round) {
    const I eight = first + round * THREADS;
    const float absmax = magnitudes.value(raw[round], map, offset);
    float x[8];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) x[i] = __fmul_rn(__shfl_sync(~0u, own, words[round] >> nf4::place(i) & 15), absmax);
    if (eight >= eights) continue;
#pragma unroll
    for (int i = 0; i < 8; i += STORE) {
      float some[STORE];
#pragma unroll
      for (int k = 0; k < STORE; ++k) some[k] = x[i + k];
      *reinterpret_cast<Vec<Out, STORE>*>(out + eight * 8 + i) = round_to<Out, STORE>(some);
    }
  }
}
