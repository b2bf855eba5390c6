#pragma once
#include "core/dtype.cuh"

namespace attention {

// opaque(x): the compiler cannot keep values derived from x in registers across a loop; it recomputes
// them here.
__device__ __forceinline__ u32 opaque(u32 x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace attention
