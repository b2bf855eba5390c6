// Elements as unsigned keys in the same order, and entries of a key and its place that are all different: ties go to the lower
// place.
#pragma once
#include "dtype.cuh"

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

// The key of the element with these bits: the greater the element the greater the key. Zeros are alike; NaN is above all.
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

// An entry is greater the earlier it comes. None is zero, which stands for no entry.
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
__device__ __forceinline__ u32 place_of(u64 x) { return ~u32(x); }
__device__ __forceinline__ u32 place_of(const Pair& x) { return ~u32(x.rest); }

// Sorts each of the blocks of `length` entries, a power of two, in shared memory, the greatest first (K. E. Batcher, "Sorting
// networks and their applications", AFIPS 1968). All THREADS take part; a barrier comes before and behind.
template <int THREADS, class E> __device__ __forceinline__ void sort_blocks(E* entries, u32 total, u32 length) {
  for (u32 size = 2; size <= length; size *= 2) {
    for (u32 step = size / 2; step; step /= 2) {
      __syncthreads();
      for (u32 i = threadIdx.x; i < total / 2; i += THREADS) {
        const u32 low = 2 * i - (i & (step - 1)), high = low + step;
        const bool falling = size == length || !(low & size);
        const E a = entries[low], b = entries[high];
        if ((a < b) == falling) entries[low] = b, entries[high] = a;
      }
    }
  }
  __syncthreads();
}

}  // namespace sort
