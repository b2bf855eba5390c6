// A run-time scalar in the place of one of map.cu's array inputs. The kernel parameter of an input is eight bytes: an
// address, or for a scalar of type T its value, a double that is rounded to T here, or T's own bytes. So a new scalar
// is a new argument, and one kernel serves arrays and scalars.
#pragma once
#include "core/dtype.cuh"
#include "math/odd.cuh"

template <int V, int SPLAT, class... In> struct Inputs;  // of elementwise/map.cu

template <class T> struct Value {
  u8 nothing;

  static __device__ __forceinline__ T of(u64 bits) {
    if constexpr (Same<T, double>::value) return __longlong_as_double(i64(bits));
    else if constexpr (Same<T, float>::value) return float(__longlong_as_double(i64(bits)));
    else if constexpr (Same<T, f16>::value || Same<T, bf16>::value)
      return convert<T>(math::odd(__longlong_as_double(i64(bits))));
    else return T(bits);
  }
};

template <int V, int SPLAT, class T, class... Rest> struct Inputs<V, SPLAT, Value<T>, Rest...> {
  T number;
  Inputs<V, (SPLAT >> 1), Rest...> tail;

  __device__ __forceinline__ void load(const i64* offset, const Value<T>* bits, const Rest*... rest) {
    number = Value<T>::of(reinterpret_cast<u64>(bits));
    tail.load(offset + 1, rest...);
  }
  template <class F, class C, int DIGITS, class... X> __device__ __forceinline__ C apply(int k, X... x) const {
    return tail.template apply<F, C, DIGITS>(k, x..., convert<C>(number));
  }
};
