// The gradients of a reduction by index: out[i] = part of grad[p] for an element i that was reduced into place p.
//
// write_terms:    terms[i, :] = the element's terms of a statistic of its place, such as 1 where it is the maximum;
//                 reduce_runs.cu reduces them by place.
// write_gradient: the element's part, by that statistic; 0 for an index out of range.
// Items:          elements that an index sends, or (EVERY) those of the base, each at its own place.
// Grid:           one thread per item.   Shared: none.
// Bound:          DRAM, items, and one gradient, result and statistic at a random place for each.
#include "indexing/within.cuh"
#include "core/dtype.cuh"
#include "core/index.cuh"

constexpr int GRADIENT_THREADS = 256;
constexpr int EVERY = -1;  // a mode in which nothing is indexed

// A reduction: the terms of an element x and of the place's result y, and the part of its gradient.
struct Mean {
  static constexpr int TERMS = 1;
  static constexpr bool READS = false;  // x and y
  template <class C> static __device__ __forceinline__ void terms(C (&of)[1], C, C) { of[0] = C(1); }
  template <class C> static __device__ __forceinline__ C part(C grad, C, C, const C (&count)[1]) {
    return grad / count[0];
  }
};
// Elements that are the extremum, or NaN, share its gradient evenly.
struct Extremum {
  static constexpr int TERMS = 1;
  static constexpr bool READS = true;
  template <class C> static __device__ __forceinline__ bool counts(C x, C y) { return x == y || x != x; }
  template <class C> static __device__ __forceinline__ void terms(C (&of)[1], C x, C y) { of[0] = C(counts(x, y)); }
  template <class C> static __device__ __forceinline__ C part(C grad, C x, C y, const C (&ties)[1]) {
    return counts(x, y) ? grad / ties[0] : C(0);
  }
};
// The product of the other factors: from the product of those that are not 0, and 2 to the power of minus the zeros.
struct Factors {
  static constexpr int TERMS = 2;
  static constexpr bool READS = true;
  template <class C> static __device__ __forceinline__ void terms(C (&of)[2], C x, C) {
    of[0] = x == C(0) ? C(1) : x;
    of[1] = x == C(0) ? C(0.5) : C(1);
  }
  template <class C> static __device__ __forceinline__ C part(C grad, C x, C y, const C (&factors)[2]) {
    if (x == C(0)) return grad * (factors[1] == C(0.5) ? factors[0] : y);  // y: 0, or NaN
    return grad * (factors[1] == C(1) ? factors[0] / x : y);
  }
};

// An item: bytes to its element, and the key of its place if there is one. `dims`: strides of the indices in bytes, of
// keys, and of elements in bytes.
template <class Index, int MODE> struct Item {
  i64 element, line = 0;
  u32 key;

  template <int R>
  __device__ __forceinline__
  Item(const u8* index, i64 extent, u32 key_step, u32 item, const Dims<u32, R, 3>& dims) {
    i64 at[3] = {};
    dims.locate(item, at);
    if constexpr (MODE != EVERY) line = within<MODE>(i64(*reinterpret_cast<const Index*>(index + at[0])), extent);
    key = u32(at[1]) + u32(line) * key_step;
    element = at[2];
  }
};

template <class Op, class T, class C, class Index, int R, int MODE>
__global__ void __launch_bounds__(GRADIENT_THREADS)
write_terms(C* terms, const u8* elements, const T* y, const u8* index, i64 extent, u32 key_step, u32 count,
            Dims<u32, R, 3> dims) {
  const u32 i = blockIdx.x * GRADIENT_THREADS + threadIdx.x;
  if (i >= count) return;
  const Item<Index, MODE> item(index, extent, key_step, i, dims);
  if (item.line < 0) return;
  C x = 0, result = 0, of[Op::TERMS];
  if constexpr (Op::READS) {
    x = convert<C>(*reinterpret_cast<const T*>(elements + item.element));
    result = convert<C>(y[item.key]);
  }
  Op::terms(of, x, result);
#pragma unroll
  for (int t = 0; t < Op::TERMS; ++t) terms[u64(i) * Op::TERMS + t] = of[t];
}

template <class Op, class T, class C, class Index, int R, int RG, int MODE>
__global__ void __launch_bounds__(GRADIENT_THREADS)
write_gradient(T* out, const C* statistics, const u8* grad, const u8* elements, const T* y, const u8* index, i64 extent,
               u32 key_step, u32 count, Dims<u32, R, 3> dims, Dims<u32, RG, 1> grads) {
  const u32 i = blockIdx.x * GRADIENT_THREADS + threadIdx.x;
  if (i >= count) return;
  const Item<Index, MODE> item(index, extent, key_step, i, dims);
  C part = 0;
  if (item.line >= 0) {
    C x = 0, result = 0, of[Op::TERMS];
    i64 at[1] = {};
    grads.locate(item.key, at);
    if constexpr (Op::READS) {
      x = convert<C>(*reinterpret_cast<const T*>(elements + item.element));
      result = convert<C>(y[item.key]);
    }
#pragma unroll
    for (int t = 0; t < Op::TERMS; ++t) of[t] = statistics[u64(item.key) * Op::TERMS + t];
    part = Op::part(convert<C>(*reinterpret_cast<const T*>(grad + at[0])), x, result, of);
  }
  out[i] = convert<T>(part);
}
