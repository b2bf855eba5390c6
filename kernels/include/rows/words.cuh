// V adjacent elements in registers, 8- and 16-bit ones as 32-bit words: the compiler splits 16- and 8-bit values that
// live across a branch into one register each and packs them again, two instructions per value; words stay packed.
#pragma once
#include "rows/pack.cuh"

namespace rows {

__device__ __forceinline__ float low_of(u32 pair, bf16) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_of(u32 pair, bf16) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ float low_of(u32 pair, f16) { return convert<float>(f16{u16(pair)}); }
__device__ __forceinline__ float high_of(u32 pair, f16) { return convert<float>(f16{u16(pair >> 16)}); }

// Interface of Pack; widen and round for f16 and bf16 only.
template <class T, int V> struct Words {
  static constexpr int COUNT = V * int(sizeof(T)) / 4;
  Pack<u32, COUNT> pack;

  __device__ __forceinline__ void load(const T* from) { pack.load(reinterpret_cast<const u32*>(from)); }
  __device__ __forceinline__ void store(T* to) const { pack.store(reinterpret_cast<u32*>(to)); }
  __device__ __forceinline__ void widen(float (&x)[V]) const {
    u32 words[COUNT];
    pack.widen(words);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      x[2 * i] = low_of(words[i], T{});
      x[2 * i + 1] = high_of(words[i], T{});
    }
  }
  __device__ __forceinline__ void round(const float (&x)[V]) {
    u32 words[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) words[i] = round_pair(x[2 * i], x[2 * i + 1], T{});
    pack.round(words);
  }
};

// Element k, which the compiler knows.
template <class C, class T, int V> __device__ __forceinline__ C element(const Words<T, V>& held, int k) {
  const u32 word = held.pack.part[k / 2 / held.pack.WIDTH].at[k / 2 % held.pack.WIDTH];
  return C(k % 2 ? high_of(word, T{}) : low_of(word, T{}));
}
template <class C, class T, int V> __device__ __forceinline__ C element(const Pack<T, V>& held, int k) {
  return convert<C>(held.part[k / held.WIDTH].at[k % held.WIDTH]);
}

template <class T, int V, bool WORDS> struct HeldAs { using type = Pack<T, V>; };
template <class T, int V> struct HeldAs<T, V, true> { using type = Words<T, V>; };
template <class T> constexpr bool HALF = Same<T, f16>::value || Same<T, bf16>::value;
// The register type for V elements of T that live across branches.
template <class T, int V> using Held = typename HeldAs<T, V, (sizeof(T) < 4 && V * sizeof(T) % 4 == 0)>::type;

}  // namespace rows
