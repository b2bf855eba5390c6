// Whole numbers near x. An integer is one already.
#pragma once

namespace math {

template <class C> __device__ __forceinline__ C floor(C x) { return x; }
template <> __device__ __forceinline__ float floor(float x) { return ::floorf(x); }
template <> __device__ __forceinline__ double floor(double x) { return ::floor(x); }

template <class C> __device__ __forceinline__ C ceil(C x) { return x; }
template <> __device__ __forceinline__ float ceil(float x) { return ::ceilf(x); }
template <> __device__ __forceinline__ double ceil(double x) { return ::ceil(x); }

template <class C> __device__ __forceinline__ C trunc(C x) { return x; }
template <> __device__ __forceinline__ float trunc(float x) { return ::truncf(x); }
template <> __device__ __forceinline__ double trunc(double x) { return ::trunc(x); }

// The even one of two that are equally near.
template <class C> __device__ __forceinline__ C round(C x) { return x; }
template <> __device__ __forceinline__ float round(float x) { return ::rintf(x); }
template <> __device__ __forceinline__ double round(double x) { return ::rint(x); }

}  // namespace math
