// A cheap filter: whether a vector may hold a key >= some bound; one comparison per element, in the storage type.
#pragma once
#include "sort/entry.cuh"

namespace sort {

// V elements in storage type, in groups of at most one word.
template <class T, int V> struct alignas(sizeof(T) * V) Stored {
  using Word = typename Order<T>::Word;
  static constexpr int PER = sizeof(T) < 4 ? 4 / int(sizeof(T)) : 1, BITS = PER > 1 ? 8 * int(sizeof(T)) : 0;
  using Group = typename Unsigned<int(sizeof(T)) * PER>::type;
  static_assert(V % PER == 0);
  Group group[V / PER];
  __device__ __forceinline__ Word get(int v) const { return Word(group[v / PER] >> (v % PER * BITS)); }
  __device__ __forceinline__ void put(int v, Word word) { group[v / PER] |= Group(word) << (v % PER * BITS); }
};

template <class T> struct ComparedAs { using type = T; };
template <> struct ComparedAs<f16> { using type = float; };
template <> struct ComparedAs<bf16> { using type = float; };

// Whether an element may have a key >= bound. No false negatives; false positives: NaN where small elements are wanted,
// zeros at a bound of zero.
template <class T> struct Probe {
  using Key = typename Order<T>::Key;
  using Word = typename Order<T>::Word;
  using C = typename ComparedAs<T>::type;
  C least;
  Word flip_mask;  // XOR for smallest-k: the sign of floats, all bits of integers

  __device__ __forceinline__ Probe(Key bound, Key flip)
      : least(value(Word(stored(bound)))),
        flip_mask(Word(FormOf<T>::value == Form::FLOAT ? flip & Order<T>::SIGN : flip)) {}
  static __device__ __forceinline__ C value(Word word) { return convert<C>(*reinterpret_cast<const T*>(&word)); }
  // The element with this key; NaN for keys above infinity's, so that everything passes.
  static __device__ __forceinline__ Key stored(Key key) {
    if constexpr (FormOf<T>::value == Form::UNSIGNED) return key;
    if constexpr (FormOf<T>::value == Form::SIGNED) return key ^ Order<T>::SIGN;
    if constexpr (FormOf<T>::value == Form::FLOAT)
      return key & Order<T>::SIGN ? key ^ Order<T>::SIGN : ~key & Order<T>::ALL;
  }
  template <int V> __device__ __forceinline__ bool passes(Stored<T, V> vector) const {
    Stored<T, V> flip_masks = {};
#pragma unroll
    for (int v = 0; v < V; ++v) flip_masks.put(v, flip_mask);
#pragma unroll
    for (int g = 0; g < V / Stored<T, V>::PER; ++g) vector.group[g] ^= flip_masks.group[g];
    bool any = false;
#pragma unroll
    for (int v = 0; v < V; ++v) any |= !(value(vector.get(v)) < least);
    return any;
  }
};

}  // namespace sort
