// Element types and conversions, in plain CUDA C++ and PTX, without toolkit headers.
#pragma once

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

// The unsigned type for one access of BYTES bytes.
template <int BYTES> struct Word;
template <> struct Word<1> { using type = u8; };
template <> struct Word<2> { using type = u16; };
template <> struct Word<4> { using type = u32; };
template <> struct Word<8> { using type = u64; };
template <> struct Word<16> { using type = uint4; };

template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };

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

// A vector of V elements, loaded and stored by one access.
template <class T, int V> struct alignas(sizeof(T) * V) Vec { T at[V]; };

// Rounds V computed values to the stored type; two 16-bit results take one instruction.
template <class Out, int V, class C> __device__ __forceinline__ Vec<Out, V> round_to(const C (&x)[V]) {
  Vec<Out, V> out;
#pragma unroll
  for (int i = 0; i < V; ++i) out.at[i] = convert<Out>(x[i]);
  return out;
}
__device__ __forceinline__ u32 round_pair(float low, float high, bf16) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ u32 round_pair(float low, float high, f16) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <class Half, int V> __device__ __forceinline__ Vec<Half, V> round_halves(const float (&x)[V]) {
  Vec<Half, V> out;
#pragma unroll
  for (int i = 0; i < V; i += 2) {
    u32 pair = i + 1 < V ? round_pair(x[i], x[i + 1 < V ? i + 1 : i], Half{}) : round_pair(x[i], 0.0f, Half{});
    out.at[i].bits = u16(pair);
    if (i + 1 < V) out.at[i + 1 < V ? i + 1 : i].bits = u16(pair >> 16);
  }
  return out;
}
template <class Out, int V> __device__ __forceinline__ Vec<Out, V> round_to(const float (&x)[V]) {
  if constexpr (sizeof(Out) == 2 && (Same<Out, f16>::value || Same<Out, bf16>::value)) return round_halves<Out, V>(x);
  else return round_to<Out, V, float>(x);
}
