// out[i] = how many elements of a sorted sequence come before values[i]; RIGHT: or equal it. NaN is above all.
//
// Mapping:  one value per thread, in the result's order; a binary search of log2(extent) loads, one after another.
// Shared:   none.   Bound: the latency of those loads, which neighbours with like values share in L1 and L2.
#include "core/dtype.cuh"
#include "core/index.cuh"

constexpr int SEARCH_THREADS = 256;

// Whether a comes before b. Integers are never unequal to themselves.
template <class C> __device__ __forceinline__ bool before(C a, C b) { return a < b || (b != b && a == a); }

// `dims`: the result's axes with byte strides of out, of values, and of the sequence, whose own axis has `step` bytes.
template <class I, class Out, class T, class C, int R, bool RIGHT>
__global__ void __launch_bounds__(SEARCH_THREADS)
searchsorted(u8* out, const u8* sequence, const u8* values, i64 extent, i64 step, I count, Dims<I, R, 3> dims) {
  const I i = I(blockIdx.x) * SEARCH_THREADS + threadIdx.x;
  if (i >= count) return;
  i64 at[3] = {0, 0, 0};
  dims.locate(i, at);
  const C value = convert<C>(*reinterpret_cast<const T*>(values + at[1]));
  const u8* const from = sequence + at[2];
  i64 first = 0;  // elements that come before; those from first + left on do not
  for (i64 left = extent; left > 0;) {
    const i64 half = left / 2;
    const C middle = convert<C>(*reinterpret_cast<const T*>(from + (first + half) * step));
    const bool passed = RIGHT ? !before(value, middle) : before(middle, value);
    if (passed) first += half + 1;
    left = passed ? left - half - 1 : half;
  }
  *reinterpret_cast<Out*>(out + at[0]) = Out(first);
}
