// mma.sync, c += a b, 16 x K by K x 8, and ldmatrix.
//
// Fragments, with g = lane / 4 and t = lane % 4: c[2 h + e] is row g + 8 h, column 2 t + e. K has PARTS parts: a[2 p +
// h] is row g + 8 h and b[p] is column g of part p. A part has 8 k's, of which a register holds 2 t and 2 t + 1 (16-bit
// types), or 4 k's, of which a register holds k = t (tf32, f64).
#pragma once
#include "core/dtype.cuh"

template <class T> struct Mma;

template <> struct Mma<f16> {
  using Acc = float;
  using Reg = u32;
  static constexpr int K = 16, PARTS = 2;
  static __device__ __forceinline__ void run(float (&c)[4], const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

template <> struct Mma<bf16> {
  using Acc = float;
  using Reg = u32;
  static constexpr int K = 16, PARTS = 2;
  static __device__ __forceinline__ void run(float (&c)[4], const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

// f32 as tf32: registers must hold results of round_tf32.
template <> struct Mma<float> {
  using Acc = float;
  using Reg = u32;
  static constexpr int K = 8, PARTS = 2;
  static __device__ __forceinline__ void run(float (&c)[4], const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

template <> struct Mma<double> {
  using Acc = double;
  using Reg = double;
  static constexpr int K = 4, PARTS = 1;
  static __device__ __forceinline__ void run(double (&c)[4], const double* a, const double* b) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3]) : "d"(a[0]), "d"(a[1]), "d"(b[0]));
#else  // m8n8k4 is the only shape in hardware
#pragma unroll
    for (int half = 0; half < 2; ++half)
      asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
          : "+d"(c[2 * half]), "+d"(c[2 * half + 1]) : "d"(a[half]), "d"(b[0]));
#endif
  }
};

// Rounds to the nearest tf32, at most half an ulp (2^-11 relative) off; the tensor core itself would truncate.
__device__ __forceinline__ u32 round_tf32(u32 bits) {
  u32 rounded;
#if __CUDA_ARCH__ >= 900
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
#else
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
#endif
  return rounded;
}

// ldmatrix: four 8 x 8 matrices of 16-bit elements (or 8 x 4 words); lanes 8 i to 8 i + 7 give the row addresses of
// matrix i. Register i of lane (g, t) gets word t of row g; with TRANSPOSE, 16-bit elements of rows 2 t and 2 t + 1 of
// column g.
template <bool TRANSPOSE> __device__ __forceinline__ void load_matrices(u32* to, u32 address) {
  if constexpr (TRANSPOSE)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
}

__device__ __forceinline__ void load_shared(u32& to, u32 address) {
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(to) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_shared(double& to, u32 address) {
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(to) : "r"(address) : "memory");
}
