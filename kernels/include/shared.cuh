// Shared memory by 32-bit address, 4, 8 or 16 bytes an access. Through pointers ptxas works the window's base out again and again.
#pragma once
#include "dtype.cuh"

template <class Words> __device__ __forceinline__ Words load_shared(u32 at) {
  static_assert(sizeof(Words) == 8 || sizeof(Words) == 16, "two words or four");
  Words x;
  if constexpr (sizeof(Words) == 16) {
    uint4& w = reinterpret_cast<uint4&>(x);
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "r"(at) : "memory");
  } else {
    uint2& w = reinterpret_cast<uint2&>(x);
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(w.x), "=r"(w.y) : "r"(at) : "memory");
  }
  return x;
}

template <class Words> __device__ __forceinline__ void store_shared(u32 at, const Words& x) {
  static_assert(sizeof(Words) == 4 || sizeof(Words) == 8 || sizeof(Words) == 16, "one word, two or four");
  if constexpr (sizeof(Words) == 16) {
    const uint4& w = reinterpret_cast<const uint4&>(x);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w) : "memory");
  } else if constexpr (sizeof(Words) == 8) {
    const uint2& w = reinterpret_cast<const uint2&>(x);
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(w.x), "r"(w.y) : "memory");
  } else {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(reinterpret_cast<const u32&>(x)) : "memory");
  }
}
