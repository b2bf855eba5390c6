// V adjacent elements of a row in registers, in their storage type.
#pragma once
#include "core/shift.cuh"

namespace rows {

// Loaded and stored by accesses of at most 16 bytes, each aligned to its size.
template <class T, int V> struct Pack {
  static constexpr int WIDTH = V * int(sizeof(T)) > 16 ? 16 / int(sizeof(T)) : V;
  using Part = Vec<T, WIDTH>;
  Part part[V / WIDTH];

  __device__ __forceinline__ void load(const T* from) {
#pragma unroll
    for (int i = 0; i < V / WIDTH; ++i) part[i] = reinterpret_cast<const Part*>(from)[i];
  }
  __device__ __forceinline__ void store(T* to) const {
#pragma unroll
    for (int i = 0; i < V / WIDTH; ++i) reinterpret_cast<Part*>(to)[i] = part[i];
  }
  template <class C> __device__ __forceinline__ void widen(C (&x)[V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = convert<C>(part[i / WIDTH].at[i % WIDTH]);
  }
  template <class C> __device__ __forceinline__ void round(const C (&x)[V]) {
#pragma unroll
    for (int i = 0; i < V / WIDTH; ++i) {
      C some[WIDTH];
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) some[k] = x[i * WIDTH + k];
      part[i] = round_to<T, WIDTH>(some);
    }
  }
};

template <class T, int V> __device__ __forceinline__ Pack<T, V> loaded(const T* from) {
  Pack<T, V> pack;
  pack.load(from);
  return pack;
}
// Widens as Pack::widen does, bf16 by words: an instruction an element.
template <class T, int V, class C> __device__ __forceinline__ void widen_words(const Pack<T, V>& pack, C (&x)[V]) {
  if constexpr (Same<T, bf16>::value && Same<C, float>::value && V % 2 == 0) {
    union Both { Pack<T, V> pack; u32 word[V / 2]; __device__ Both() {} } both;
    both.pack = pack;
#pragma unroll
    for (int v = 0; v < V; v += 2)
      x[v] = __uint_as_float(both.word[v / 2] << 16), x[v + 1] = __uint_as_float(both.word[v / 2] & 0xffff0000);
  } else {
    pack.widen(x);
  }
}
// UnalignedVec: the vector at `from`, which is column `index` of a row of `length`. UNALIGNED: loaded as the two
//               aligned
// 16-byte words that contain it and funnel shifted; at the row's ends, where a word would exceed the row, by elements,
// but INSIDE memory that holds whole words. Columns ignore the alignment.
template <class T, int V, bool UNALIGNED> struct UnalignedVec {
  Pack<T, V> pack;
  template <class I> __device__ __forceinline__ void load(const T* from, I, I) { pack.load(from); }
  template <class I> __device__ __forceinline__ Pack<T, V> whole(const T*, I, I) const { return pack; }
};
template <class T, int V> struct UnalignedVec<T, V, true> {
  static_assert(V * sizeof(T) == 16);
  uint4 low, high;

  // Elements between the start of the word that holds the first element and that.
  static __device__ __forceinline__ u32 behind(const T* from) {
    return u32(reinterpret_cast<u64>(from)) % 16 / u32(sizeof(T));
  }
  static __device__ __forceinline__ const uint4* word(const T* from) {
    return reinterpret_cast<const uint4*>(from - behind(from));
  }

  // From the word, of which the vector begins `late` elements behind the start.
  template <bool INSIDE, class I> __device__ __forceinline__ void load(const uint4* word, u32 late, I index, I length) {
    if constexpr (!INSIDE) low = high = make_uint4(0, 0, 0, 0);
    if (INSIDE || index >= late) low = word[0];
    if (late && (INSIDE || index + 2 * V <= length + late)) high = word[1];
  }
  template <bool INSIDE, class I>
  __device__ __forceinline__ Pack<T, V> whole(const T* row, u32 late, I index, I length) const {
    union Both { uint4 word; Pack<T, V> pack; __device__ Both() {} } both;
    both.word = low;
    if (late) both.word = shifted(low, high, late * u32(sizeof(T)));
    if (!INSIDE && late && (index < late || index + 2 * V > length + late))
#pragma unroll
      for (int v = 0; v < V; ++v) both.pack.part[0].at[v] = row[index + v];
    return both.pack;
  }
  template <class I> __device__ __forceinline__ void load(const T* from, I index, I length) {
    load<false>(word(from), behind(from), index, length);
  }
  template <class I> __device__ __forceinline__ Pack<T, V> whole(const T* from, I index, I length) const {
    return whole<false>(from - index, behind(from), index, length);
  }
};

// x + y computed in C, rounded.
template <class C, class T, int V> __device__ __forceinline__ void add_rounded(Pack<T, V>& x, const Pack<T, V>& y) {
  C a[V], b[V];
  x.widen(a);
  y.widen(b);
#pragma unroll
  for (int v = 0; v < V; ++v) a[v] += b[v];
  x.round(a);
}
// Load and widen.
template <class T, class C, int V> __device__ __forceinline__ void fetch(C (&x)[V], const T* from) {
  loaded<T, V>(from).widen(x);
}
// Round and store.
template <class T, class C, int V> __device__ __forceinline__ void put(T* to, const C (&x)[V]) {
  Pack<T, V> pack;
  pack.round(x);
  pack.store(to);
}

}  // namespace rows
