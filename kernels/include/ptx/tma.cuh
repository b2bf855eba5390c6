// TMA (tensor memory accelerator): asynchronous copies of tensor boxes between global and shared memory, issued by one
// thread. Coordinates count elements, innermost first; elements outside the tensor are read as zero and not written.
#pragma once
#include "ptx/barrier.cuh"
#include "core/matrix.cuh"

struct alignas(64) TensorMap { u8 opaque[128]; };

namespace tma {

__device__ __forceinline__ void prefetch(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map)); }

// Loads a box of a matrix, or of matrix `b` of a batch of rank 3. MULTICAST: into every CTA in `mask`, at the same
// offset, and the bytes complete on the barrier at the same offset of each.
template <bool BATCHED, bool MULTICAST>
__device__ __forceinline__ void load(
    u32 to, const TensorMap& map, i32 x, i32 y, const BatchIndex& b, u32 full, u16 mask) {
#define LOAD(RANK, COORDINATES, ...)                                                                                       \
  if constexpr (MULTICAST)                                                                                                 \
    asm volatile("cp.async.bulk.tensor." RANK ".shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {" COORDINATES "}], [%2], %3;" \
                 ::"r"(to), "l"(&map), "r"(full), "h"(mask), "r"(x), "r"(y), ##__VA_ARGS__ : "memory");                   \
  else                                                                                                                     \
    asm volatile("cp.async.bulk.tensor." RANK ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" COORDINATES "}], [%2];" \
                 ::"r"(to), "l"(&map), "r"(full), "h"(mask), "r"(x), "r"(y), ##__VA_ARGS__ : "memory");
  if constexpr (BATCHED) {
    LOAD("5d", "%4, %5, %6, %7, %8", "r"(b.at[2]), "r"(b.at[1]), "r"(b.at[0]))
  } else {
    LOAD("2d", "%4, %5")
  }
#undef LOAD
}

template <bool BATCHED>
__device__ __forceinline__ void store(const TensorMap& map, u32 from, i32 x, i32 y, const BatchIndex& b) {
  if constexpr (BATCHED)
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
                 ::"l"(&map), "r"(from), "r"(x), "r"(y), "r"(b.at[2]), "r"(b.at[1]), "r"(b.at[0]) : "memory");
  else
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map), "r"(from),
        "r"(x), "r"(y)
        : "memory");
}
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until all but the last N store groups have read their shared memory.
template <int N> __device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// Makes this thread's writes to shared memory visible to TMA (the async proxy).
__device__ __forceinline__ void fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace tma
