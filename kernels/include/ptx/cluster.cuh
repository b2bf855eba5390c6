// Thread block clusters (sm_90 and later): co-scheduled CTAs with distributed shared memory. PTX ISA 8.7, sections
// 9.7.13.4 and 9.7.9.12. Shared memory is addressed by 32-bit shared-window addresses.
#pragma once
#include "core/shared.cuh"

namespace cluster {

__device__ __forceinline__ u32 rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
// The cluster barrier, over all threads of the cluster that have not exited. `begin` makes initialised mbarriers usable
// by peers: its arrive is relaxed, as the initialisation has been fenced.
__device__ __forceinline__ void arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void await() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void begin() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  await();
}
// The address of the same offset in the shared memory of CTA `rank`.
__device__ __forceinline__ u32 address(u32 here, u32 rank) {
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
  return there;
}

// Loads from the shared memory of any CTA of the cluster.
__device__ __forceinline__ void load_far(Vec<float, 4>& x, u32 there) {
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
      : "=f"(x.at[0]), "=f"(x.at[1]), "=f"(x.at[2]), "=f"(x.at[3])
      : "r"(there)
      : "memory");
}
__device__ __forceinline__ void load_far(Vec<float, 2>& x, u32 there) {
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(x.at[0]), "=f"(x.at[1]) : "r"(there) : "memory");
}

// Sends N floats to another CTA by st.async in groups of four, spaced by 512 floats at the destination (one group per
// thread of a warpgroup). The bytes complete on the destination's mbarrier `bell`.
template <int N> __device__ __forceinline__ void send(const float* x, u32 there, u32 bell) {
#pragma unroll
  for (int i = 0; i < N; i += 4)
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     there + i * 512),
        "f"(x[i]), "f"(x[i + 1]), "f"(x[i + 2]), "f"(x[i + 3]), "r"(bell)
        : "memory");
}

}  // namespace cluster

// Adds N floats from shared memory, in groups of four that are spaced by 512 floats.
template <int N> __device__ __forceinline__ void add_shared(float (&sum)[N], u32 address) {
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    float x[4];
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
        : "r"(address + i * 512)
        : "memory");
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[i + j] += x[j];
  }
}
