// Shared-memory access by 32-bit address, up to 16 bytes per access. With generic pointers ptxas recomputes the
// window's base at each use.
#pragma once
#include "core/dtype.cuh"

__device__ __forceinline__ u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void load_shared(Vec<float, 4>& x, u32 from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.at[0]), "=f"(x.at[1]), "=f"(x.at[2]), "=f"(x.at[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ void load_shared(Vec<float, 2>& x, u32 from) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.at[0]), "=f"(x.at[1]) : "r"(from) : "memory");
}
__device__ __forceinline__ void load_shared(Vec<double, 2>& x, u32 from) {
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(x.at[0]), "=d"(x.at[1]) : "r"(from) : "memory");
}
__device__ __forceinline__ void load_shared(Vec<i32, 2>& x, u32 from) {
  asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];" : "=r"(x.at[0]), "=r"(x.at[1]) : "r"(from) : "memory");
}

__device__ __forceinline__ void store_shared(u32 to, const Vec<float, 4>& x) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "f"(x.at[0]), "f"(x.at[1]), "f"(x.at[2]), "f"(x.at[3]) : "memory");
}
__device__ __forceinline__ void store_shared(u32 to, const Vec<float, 2>& x) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x.at[0]), "f"(x.at[1]) : "memory");
}
__device__ __forceinline__ void store_shared(u32 to, const Vec<double, 2>& x) {
  asm volatile("st.shared.v2.f64 [%0], {%1, %2};" ::"r"(to), "d"(x.at[0]), "d"(x.at[1]) : "memory");
}
__device__ __forceinline__ void store_shared(u32 to, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void store_shared(u32 to, double x) {
  asm volatile("st.shared.f64 [%0], %1;" ::"r"(to), "d"(x) : "memory");
}
__device__ __forceinline__ void store_shared(u32 to, i32 x) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
