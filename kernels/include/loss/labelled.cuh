// Labels of rows, each a class, the label that is ignored, or out of range.
#pragma once
#include "core/dtype.cuh"

template <class C> __device__ __forceinline__ C not_a_number() { return C(__uint_as_float(0x7fc00000)); }

// What a label says of its row.
template <class C> struct Labelled {
  i64 label;
  bool counts;
  C weight;  // of the label; 0 of an ignored one, NaN out of range

  template <class L, class Weigh>
  __device__ __forceinline__ Labelled(const L* from, i64 ignore, i64 classes, const Weigh& weigh) {
    label = from ? i64(*from) : ignore;
    counts = label != ignore;
    weight = !counts ? C(0) : label < 0 || label >= classes ? not_a_number<C>() : weigh(label);
  }
  __device__ __forceinline__ bool wrong(i64 classes) const { return counts && (label < 0 || label >= classes); }
};
