// What the kernels of scans put together instead of sums: a type whose sum is another associative operation, and whose
// 0 is that of nothing. Op: one of rows/reducers.cuh, with terms of type C.
#pragma once
#include "rows/reducers.cuh"

namespace rows {

template <class C, class Op> struct Scanned {
  typename Op::State state;
  Scanned() = default;
  __device__ __forceinline__ Scanned(int) : state(Op::none()) {}
  __device__ __forceinline__ Scanned& operator+=(const Scanned& other) {
    state = Op::join(state, other.state);
    return *this;
  }
  __device__ __forceinline__ Scanned operator+(const Scanned& other) const {
    Scanned sum = *this;
    return sum += other;
  }
};

// The words of `x`, each moved by a shuffle.
template <class S, class Shuffle> __device__ __forceinline__ S by_words(const S& x, const Shuffle& shuffle) {
  static_assert(sizeof(S) % 4 == 0);
  union Words { S whole; u32 word[sizeof(S) / 4]; __device__ Words() {} } words;
  words.whole = x;
#pragma unroll
  for (int i = 0; i < int(sizeof(S) / 4); ++i) words.word[i] = shuffle(words.word[i]);
  return words.whole;
}
template <class C, class Op> __device__ __forceinline__ Scanned<C, Op> __shfl_up_sync(
    u32 mask, const Scanned<C, Op>& x, u32 step, int width = 32) {
  return by_words(x, [=](u32 word) { return ::__shfl_up_sync(mask, word, step, width); });
}
template <class C, class Op> __device__ __forceinline__ Scanned<C, Op> __shfl_sync(
    u32 mask, const Scanned<C, Op>& x, int from, int width = 32) {
  return by_words(x, [=](u32 word) { return ::__shfl_sync(mask, word, from, width); });
}

}  // namespace rows

template <class C, class Op, class T> struct Convert<rows::Scanned<C, Op>, T> {
  static __device__ __forceinline__ rows::Scanned<C, Op> from(T x) {
    rows::Scanned<C, Op> one = 0;
    const C term[1] = {convert<C>(x)};
    Op::add(one.state, term, 0);
    return one;
  }
};
template <class C, class Op, class T> struct Convert<T, rows::Scanned<C, Op>> {
  static __device__ __forceinline__ T from(const rows::Scanned<C, Op>& x) { return Op::finish(x.state, 0, 0); }
};
template <class C, class Op> struct Convert<rows::Scanned<C, Op>, rows::Scanned<C, Op>> {
  static __device__ __forceinline__ rows::Scanned<C, Op> from(const rows::Scanned<C, Op>& x) { return x; }
};
