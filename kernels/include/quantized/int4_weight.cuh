// Kernel arguments per int4 weight: one weight, or several that share the tokens (QKV projections). A CTA has columns
// of one.
#pragma once
#include "core/dtype.cuh"

namespace nibbles {

// A weight in the tiled layout, its epilogue, its extent n, and its first column group.
template <class S, class Epi> struct Weight {
  const u32* codes;
  const S* scales;
  const u8* zeros;
  Epi epilogue;
  u32 n, first;
};

template <class S, class Epi, int COUNT> struct Weights {
  Weight<S, Epi> at[COUNT];

  // The weight that owns column group `column`.
  __device__ __forceinline__ Weight<S, Epi> of(u32 column) const {
    Weight<S, Epi> own = at[0];
#pragma unroll
    for (int i = 1; i < COUNT; ++i)
      if (column >= at[i].first) own = at[i];
    return own;
  }
};

}  // namespace nibbles
