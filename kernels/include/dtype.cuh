// Element types and conversions, in plain CUDA C++ and PTX: no header of the toolkit is needed.
#pragma once

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

struct f16 { u16 bits; };
struct bf16 { u16 bits; };

template <class To, class From> struct Convert {
  static __device__ __forceinline__ To from(From x) { return static_cast<To>(x); }
};
template <> struct Convert<float, f16> {
  static __device__ __forceinline__ float from(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
  }
};
template <> struct Convert<float, bf16> {
  static __device__ __forceinline__ float from(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
};
template <> struct Convert<double, f16> {
  static __device__ __forceinline__ double from(f16 x) { return Convert<float, f16>::from(x); }
};
template <> struct Convert<double, bf16> {
  static __device__ __forceinline__ double from(bf16 x) { return Convert<float, bf16>::from(x); }
};
template <> struct Convert<f16, float> {
  static __device__ __forceinline__ f16 from(float x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  }
};
template <> struct Convert<bf16, float> {
  static __device__ __forceinline__ bf16 from(float x) {
    u32 pair;  // sm_80 has only the paired form
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
    return bf16{u16(pair)};
  }
};

template <class To, class From> __device__ __forceinline__ To convert(From x) { return Convert<To, From>::from(x); }

// V elements moved as one access.
template <class T, int V> struct alignas(sizeof(T) * V) Vec { T at[V]; };

// Rounds V computed values to the stored type; pairs of 16-bit results take one instruction.
template <class Out, class C, int V> __device__ __forceinline__ Vec<Out, V> pack(const C (&x)[V]) {
  Vec<Out, V> out;
#pragma unroll
  for (int i = 0; i < V; ++i) out.at[i] = convert<Out>(x[i]);
  return out;
}
template <int V> __device__ __forceinline__ void pack_pairs(const float (&x)[V], u32* out, bf16) {
#pragma unroll
  for (int i = 0; i < V; i += 2) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out[i / 2]) : "f"(x[i + 1]), "f"(x[i]));
}
template <int V> __device__ __forceinline__ void pack_pairs(const float (&x)[V], u32* out, f16) {
#pragma unroll
  for (int i = 0; i < V; i += 2) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out[i / 2]) : "f"(x[i + 1]), "f"(x[i]));
}
