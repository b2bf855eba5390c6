// What a kernel of int4 products has for each weight that shares its tokens: one, or the three projections of attention. A CTA has
// columns of one of them.
#pragma once
#include "dtype.cuh"

namespace nibbles {

// A weight in the tiled layout, where its columns go, and the first of the groups of columns that are its own.
template <class S, class Epi> struct Weight {
  const u32* codes;
  const S* scales;
  const u8* zeros;
  Epi epilogue;
  u32 n, first;
};

template <class S, class Epi, int COUNT> struct Weights {
  Weight<S, Epi> at[COUNT];

  // The weight of a group of columns, counted over all.
  __device__ __forceinline__ Weight<S, Epi> of(u32 column) const {
    Weight<S, Epi> own = at[0];
#pragma unroll
    for (int i = 1; i < COUNT; ++i)
      if (column >= at[i].first) own = at[i];
    return own;
  }
};

}  // namespace nibbles
