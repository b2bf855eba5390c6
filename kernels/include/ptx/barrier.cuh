// mbarriers in shared memory, which count arrivals and bytes, and named barriers. PTX ISA 8.7, section 9.7.13.
// Shared memory is addressed by 32-bit shared-window addresses throughout.
#pragma once
#include "core/shared.cuh"

// True in one lane of the warp, the same at every call (elect.sync); cheaper code than threadIdx.x == 0.
__device__ __forceinline__ bool elected() {
  u32 yes;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(yes));
  return yes;
}

namespace barrier {

__device__ __forceinline__ void init(u32 b, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(arrivals));
}
__device__ __forceinline__ void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// One arrival that also adds `bytes` to the expected transaction count.
__device__ __forceinline__ void expect(u32 b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(u32 b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory");
}
__device__ __forceinline__ void arrive_in_cluster(u32 b, u32 rank) {
  asm volatile(
      "{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [r]; }" ::"r"(b),
      "r"(rank)
      : "memory");
}

// Waits until the phase with that parity has completed. A new barrier is in phase 0; the phase before it, parity 1,
// counts as completed.
__device__ __forceinline__ void wait(u32 b, u32 parity) {
#ifdef WAIT_LIMIT  // debug build: trap instead of hanging
  for (u32 i = 0; i < WAIT_LIMIT; ++i) {
    u32 over;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(over)
        : "r"(b), "r"(parity)
        : "memory");
    if (over) return;
  }
  __trap();
#else
  asm volatile(
      "{ .reg .pred p;\n"
      "RETRY: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra OVER;\n"
      "bra RETRY;\n"
      "OVER: }" ::"r"(b), "r"(parity) : "memory");
#endif
}

}  // namespace barrier

template <class T> __device__ __forceinline__ T load_shared(u32 address) {
  T x;
  if constexpr (sizeof(T) == 2) asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(address) : "memory");
  else if constexpr (Same<T, float>::value) asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  else asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

// Named barrier `id` (0 is __syncthreads) of `threads` threads: `barrier_sync` arrives and waits, `barrier_arrive`
// arrives only.
__device__ __forceinline__ void barrier_sync(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 id, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Pipeline state: the current stage, and the parity of its barriers' phase.
template <int STAGES> struct Cursor {
  u32 stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  __device__ __forceinline__ void skip(u32 blocks) {
    const u32 to = stage + blocks;
    parity ^= to / STAGES & 1;
    stage = to % STAGES;
  }
};
