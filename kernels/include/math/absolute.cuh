// |x| of any type.
#pragma once

namespace math {

template <class C> __device__ __forceinline__ C absolute(C x) { return x < C(0) ? C(-x) : x; }
template <> __device__ __forceinline__ float absolute(float x) { return fabsf(x); }
template <> __device__ __forceinline__ double absolute(double x) { return fabs(x); }

}  // namespace math
