// Shared-memory barriers (mbarrier) that count arrivals and bytes, clusters and named barriers. PTX ISA 8.7, section 9.7.13.
// Shared memory is addressed by 32-bit shared-window addresses throughout.
#pragma once
#include "dtype.cuh"

__device__ __forceinline__ u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// One lane of the warp, the same at every call; cheaper to the assembler than threadIdx.x == 0.
__device__ __forceinline__ bool elected() {
  u32 yes;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(yes));
  return yes;
}

namespace barrier {

__device__ __forceinline__ void init(u32 b, u32 arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(arrivals)); }
__device__ __forceinline__ void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// One arrival that also announces `bytes` to come.
__device__ __forceinline__ void expect(u32 b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(u32 b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory"); }
__device__ __forceinline__ void arrive_in_cluster(u32 b, u32 rank) {
  asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [r]; }" ::"r"(b), "r"(rank) : "memory");
}
// An arrival as soon as this thread's cp.async copies so far have come; the barrier's count knows of it.
__device__ __forceinline__ void arrive_after_copies(u32 b) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(b) : "memory"); }

// Waits until the phase of that parity is over. A fresh barrier is in phase 0, and the one before it, of parity 1, is over.
__device__ __forceinline__ void wait(u32 b, u32 parity) {
#ifdef WAIT_LIMIT  // a debug build: a pipeline that hangs is stopped
  for (u32 i = 0; i < WAIT_LIMIT; ++i) {
    u32 over;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(over) : "r"(b), "r"(parity) : "memory");
    if (over) return;
  }
  __trap();
#else
  asm volatile(
      "{ .reg .pred p;\n"
      "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra OVER;\n"
      "bra AGAIN;\n"
      "OVER: }" ::"r"(b), "r"(parity) : "memory");
#endif
}

}  // namespace barrier

namespace cluster {

__device__ __forceinline__ u32 rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
// Every thread of every CTA of the cluster meets.
__device__ __forceinline__ void sync() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same offset in the shared memory of CTA `rank`.
__device__ __forceinline__ u32 address(u32 here, u32 rank) {
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
  return there;
}

// Sends N floats to another CTA in fours, 512 floats apart, and rings its barrier for their bytes.
template <int N> __device__ __forceinline__ void send(const float* x, u32 there, u32 bell) {
#pragma unroll
  for (int i = 0; i < N; i += 4)
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(there + i * 512), "f"(x[i]),
                 "f"(x[i + 1]), "f"(x[i + 2]), "f"(x[i + 3]), "r"(bell) : "memory");
}

}  // namespace cluster

template <class T> __device__ __forceinline__ T load_shared(u32 address) {
  T x;
  if constexpr (sizeof(T) == 2) asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(address) : "memory");
  else if constexpr (Same<T, float>::value) asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  else asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

// Adds N floats that lie in fours, 512 floats apart.
template <int N> __device__ __forceinline__ void add_shared(float (&sum)[N], u32 address) {
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    float x[4];
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(address + i * 512) : "memory");
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[i + j] += x[j];
  }
}

// `threads` threads, those that announce themselves and go on among them, meet at named barrier `id` (0 is __syncthreads).
__device__ __forceinline__ void meet(u32 id, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ __forceinline__ void announce(u32 id, u32 threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
