// cp.async: copies from global to shared memory without registers, and their commit groups. Shared addresses are
// 32-bit.
#pragma once
#include "core/shared.cuh"

// Copies BYTES (4, 8 or 16) to `to`: `valid` bytes from `from`, then zeros. Nothing is read if `valid` is 0. BYTES == 2
// has no cp.async and goes through a register.
template <int BYTES> __device__ __forceinline__ void copy_async(u32 to, const void* from, u32 valid) {
  if constexpr (BYTES == 16)  // bypasses L1, which the tiles would only evict
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
  else if constexpr (BYTES >= 4)
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(valid)
        : "memory");
  else
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(valid ? *static_cast<const u16*>(from) : u16(0)) : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's commit groups are in flight.
template <int PENDING> __device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
