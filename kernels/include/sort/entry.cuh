// Elements as unsigned keys of the same order, and distinct entries (key, index): ties go to the lower index.
#pragma once
#include "ptx/barrier.cuh"
#include "core/dtype.cuh"

namespace sort {

template <int BYTES> struct Unsigned { using type = u32; };
template <> struct Unsigned<8> { using type = u64; };

enum class Form { UNSIGNED, SIGNED, FLOAT };
template <class T> struct FormOf { static constexpr Form value = T(-1) < T(0) ? Form::SIGNED : Form::UNSIGNED; };
template <> struct FormOf<f16> { static constexpr Form value = Form::FLOAT; };
template <> struct FormOf<bf16> { static constexpr Form value = Form::FLOAT; };
template <> struct FormOf<float> { static constexpr Form value = Form::FLOAT; };
template <> struct FormOf<double> { static constexpr Form value = Form::FLOAT; };
template <class T> struct Infinity;
template <> struct Infinity<f16> { static constexpr u32 bits = 0x7c00; };
template <> struct Infinity<bf16> { static constexpr u32 bits = 0x7f80; };
template <> struct Infinity<float> { static constexpr u32 bits = 0x7f800000; };
template <> struct Infinity<double> { static constexpr u64 bits = 0x7ff0000000000000; };

// Key of an element's bits: a greater element has a greater key. -0 equals +0; NaN is above all.
template <class T> struct Order {
  static constexpr int BITS = 8 * int(sizeof(T));
  using Word = typename ::Word<int(sizeof(T))>::type;
  using Key = typename Unsigned<int(sizeof(T))>::type;
  static constexpr Key SIGN = Key(1) << (BITS - 1), ALL = SIGN | (SIGN - 1);

  static __device__ __forceinline__ Key key(Word word) {
    const Key bits = word;
    if constexpr (FormOf<T>::value == Form::UNSIGNED) return bits;
    if constexpr (FormOf<T>::value == Form::SIGNED) return bits ^ SIGN;
    if constexpr (FormOf<T>::value == Form::FLOAT) {
      const Key magnitude = bits & ~SIGN;
      if (magnitude > Infinity<T>::bits) return ALL;
      return magnitude && (bits & SIGN) ? ~bits & ALL : bits | SIGN;
    }
  }
};

// Keys of V adjacent elements ^ `flip`, those of 16 bits two at a time. Floats of at most 32 bits are added to zero
// first, which makes a +0 of -0; min.NaN makes the canonical NaN of every one: all bits but the sign, so that its key
// is ALL.
template <class T, int V>
__device__ __forceinline__ void keys_of(
    const Vec<typename Order<T>::Word, V>& x, typename Order<T>::Key flip, typename Order<T>::Key (&keys)[V]) {
  if constexpr (FormOf<T>::value == Form::FLOAT && sizeof(T) == 2) {
#pragma unroll
    for (int v = 0; v < V; v += 2) {
      u32 pair = u32(x.at[v]) | (v + 1 < V ? u32(x.at[v + 1 < V ? v + 1 : v]) << 16 : 0);
      if constexpr (Same<T, f16>::value)
        asm("fma.rn.f16x2 %0, %0, %1, %2;\n\tmin.NaN.f16x2 %0, %0, %0;" : "+r"(pair) : "r"(0x3c003c00), "r"(0));
      else asm("fma.rn.bf16x2 %0, %0, %1, %2;\n\tmin.NaN.bf16x2 %0, %0, %0;" : "+r"(pair) : "r"(0x3f803f80), "r"(0));
      u32 signs;  // of each half, in all its bits
      asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(signs) : "r"(pair));
      pair ^= signs | 0x80008000;
      pair ^= flip | flip << 16;
      keys[v] = pair & 0xffff;
      if (v + 1 < V) keys[v + 1 < V ? v + 1 : v] = pair >> 16;
    }
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if constexpr (Same<T, float>::value) {
        float sum = __fadd_rn(__uint_as_float(x.at[v]), 0.0f);
        asm("min.NaN.f32 %0, %0, %0;" : "+f"(sum));
        const u32 bits = __float_as_uint(sum);
        keys[v] = bits ^ (u32(i32(bits) >> 31) | Order<T>::SIGN) ^ flip;
      } else {
        keys[v] = Order<T>::key(x.at[v]) ^ flip;
      }
    }
  }
}

// A greater entry comes first. No entry is zero; zero means empty.
struct Pair {
  u64 key, rest;
  __device__ __forceinline__ bool operator<(const Pair& other) const {
    return key < other.key || (key == other.key && rest < other.rest);
  }
};
template <class Key> struct EntryOf { using type = u64; };
template <> struct EntryOf<u64> { using type = Pair; };

__device__ __forceinline__ u64 entry(u32 key, u32 place) { return u64(key) << 32 | u32(~place); }
__device__ __forceinline__ Pair entry(u64 key, u32 place) { return {key, u32(~place)}; }
__device__ __forceinline__ u32 index_of(u64 x) { return ~u32(x); }
__device__ __forceinline__ u32 index_of(const Pair& x) { return ~u32(x.rest); }
__device__ __forceinline__ u32 key_of(u64 x) { return u32(x >> 32); }
__device__ __forceinline__ u64 key_of(const Pair& x) { return x.key; }

// Bank swizzle of entries in shared memory: adjacent threads that access four entries at any power-of-two distance use
// distinct banks. For distances whose bits a place lacks, swizzled(a + b) == swizzled(a) ^ swizzled(b).
__device__ __forceinline__ u32 swizzled(u32 place) { return place ^ (place >> 4 & 3) * 5; }
template <class E> struct Entries {
  E* all;
  __device__ __forceinline__ E& operator[](u32 place) const { return all[swizzled(place)]; }
};

template <class E> __device__ __forceinline__ void exchange(E& a, E& b, bool falling) {
  if ((a < b) == falling) {
    const E swapped = a;
    a = b, b = swapped;
  }
}

// Bitonic sort of each block of `length` entries (a power of two), descending (K. E. Batcher, "Sorting networks and
// their applications", AFIPS 1968); `total` is a power of two >= 4. Of THREADS threads, those with four entries work;
// CTA barriers before and after.
template <int THREADS, class E>
__device__ __forceinline__ void sort_blocks(const Entries<E>& entries, u32 total, u32 length) {
  const u32 workers = total / 4 > THREADS ? THREADS : total / 4 < 32 ? 32 : total / 4;
  __syncthreads();
  if (threadIdx.x < workers) {
    bool crosses_warps = false;  // whether the next step reads entries of other warps
    for (u32 size = 2; size <= length; size *= 2) {
      // Two network steps at a time on four entries whose indices differ in two bits; or the last step alone.
      for (u32 step = size / 2; step; step /= 4) {
        const u32 near = step > 1 ? step / 2 : 1, far = 2 * near;
        if (crosses_warps || far > 64) barrier_sync(1, workers);
        else __syncwarp();
        crosses_warps = far > 64;
        const u32 to_near = swizzled(near), to_far = swizzled(far);
        for (u32 i = threadIdx.x; i < total / 4; i += THREADS) {
          const u32 low = 4 * i - 3 * (i & (near - 1)), first = swizzled(low);
          E& a = entries.all[first];
          E& b = entries.all[first ^ to_near];
          E& c = entries.all[first ^ to_far];
          E& d = entries.all[first ^ to_near ^ to_far];
          E four[4] = {a, b, c, d};
          const bool falling = size == length || !(low & size), then = size == length || !((low + far) & size);
          if (step > 1) exchange(four[0], four[2], falling), exchange(four[1], four[3], falling);
          exchange(four[0], four[1], falling), exchange(four[2], four[3], then);
          a = four[0], b = four[1], c = four[2], d = four[3];
        }
      }
    }
  }
  __syncthreads();
}

}  // namespace sort
