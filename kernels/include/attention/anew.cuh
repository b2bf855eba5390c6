#pragma once
#include "dtype.cuh"

namespace attention {

// What is made of the result is made here, not kept in registers across a loop.
__device__ __forceinline__ u32 anew(u32 x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace attention
