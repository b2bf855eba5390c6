// wgmma: shared-memory descriptors, fences, and register reallocation (PTX ISA 8.7, section 9.7.15). The instruction
// itself is generated text (baracuda_py/ops/gemm/_wgmma/launch.py), since it names every accumulator register:
// wgmma(acc, a, b, accumulate) for m64nN and 32 bytes of K.
#pragma once
#include "ptx/barrier.cuh"

namespace warpgroup {

// Descriptor of an operand tile in the 128-byte swizzle. K-major: one 128-byte row of k per mn. MN-major (16-bit
// types): blocks of 64 k rows of 64 mn, one after the other along MN. The low word holds the address in units of 16
// bytes.
template <bool MN_MAJOR> __device__ __forceinline__ u64 descriptor(u32 address) {
  constexpr u64 LBO = MN_MAJOR ? 64 * 128 : 16, SBO = 1024;
  return u64((address & 0x3ffff) >> 4) | (LBO >> 4) << 16 | (SBO >> 4) << 32 | u64(1) << 62;
}
// Descriptor increments: to the next instruction's k, and to the next 64 of mn.
template <bool MN_MAJOR> constexpr u32 NEXT_K = (MN_MAJOR ? 16 * 128 : 32) >> 4;
constexpr u32 NEXT_64 = 64 * 128 >> 4;

__device__ __forceinline__ void arrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Keeps the compiler from moving accumulators across a fence.
template <int N> __device__ __forceinline__ void pin(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

template <int REGISTERS> __device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> __device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// stmatrix: four 8 x 8 matrices of 16-bit elements, optionally transposed; lane l gives the address of stored row l % 8
// of matrix l / 8.
template <bool TRANSPOSED> __device__ __forceinline__ void store_matrices(u32 address, const u32 (&x)[4]) {
  if constexpr (TRANSPOSED)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
        "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
        : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]),
        "r"(x[1]), "r"(x[2]), "r"(x[3])
        : "memory");
}

}  // namespace warpgroup
