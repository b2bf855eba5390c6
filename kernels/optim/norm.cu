// The norm of gradients, of an array or a list of them, and gradients scaled to a norm at most: two launches or three.
//
// optim_squares: a CTA per chunk adds up its squares in f64.
// optim_total:   one CTA adds up the chunks' sums, and makes of them the norm, what an optimizer divides gradients by,
//                whether the norm is no number, and what gradients are multiplied by.
// optim_scaled:  a CTA per chunk multiplies its elements.
// Order:         elements and chunks alone fix it, not the grid, the device or alignment.
// Lists:         as in update.cu.
// Shared:        a sum per warp.   Bound: DRAM.
#include "core/index.cuh"
#include "optim/pieces.cuh"
#include "rows/fold.cuh"
#include "rows/group.cuh"

constexpr int THREADS = 256, TOTAL_THREADS = 512;
constexpr double CLEARANCE = 1e-6;  // added to the norm, as torch does, that a quotient is finite

using optim::ElementRun;

// The elements of this CTA: of one array, or of the row of a table.
struct OwnElements {
  u64 begin;
  u32 count;

  __device__ __forceinline__ OwnElements(u64 base, const i64* table, u64 whole, u32 chunk, u32 size) {
    const u64 first = u64(blockIdx.x) * chunk;
    begin = base + (table ? u64(table[3 * i64(blockIdx.x) + 2]) : first * size);
    count = table ? u32(table[3 * i64(blockIdx.x)]) : whole - first < chunk ? u32(whole - first) : chunk;
  }
};

// `each.run<V>(address)` for runs of V elements, and of one where V do not fit or are not aligned.
template <class T, int V, class Each> __device__ __forceinline__ void for_each_run(const OwnElements& own, Each& each) {
  const bool aligned = (own.begin & (ElementRun<T, V>::ALIGN - 1)) == 0;
  for (u32 i = threadIdx.x * V; i < own.count; i += THREADS * V) {
    if (aligned && i + V <= own.count) {
      each.template run<V>(own.begin + u64(i) * sizeof(T));
      continue;
    }
    for (u32 one = i; one < own.count && one < i + V; ++one)
      each.template run<1>(own.begin + u64(one) * sizeof(T));
  }
}

template <class T> struct AddSquares {
  double sum;

  template <int W> __device__ __forceinline__ void run(u64 at) {
    ElementRun<T, W> held;
    held.load(at);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const double x = convert<double>(held.at(i));
      sum = ::fma(x, x, sum);
    }
  }
};

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    optim_squares(double* sums, u64 base, const i64* table, u64 whole, u32 chunk) {
  AddSquares<T> own{0.0};
  for_each_run<T, V>(OwnElements(base, table, whole, chunk, sizeof(T)), own);
  const double sum = rows::sum<THREADS>(own.sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <class C>
__global__ void __launch_bounds__(TOTAL_THREADS, 1)
    optim_total(const double* sums, u32 count, C* norm, float* scale, float* found_inf, const float* grad_scale,
                double max_norm, C* factor) {
  const auto plus = [](double a, double b) { return a + b; };
  const double sum = rows::sum<TOTAL_THREADS>(
      rows::fold<4>(threadIdx.x, count, TOTAL_THREADS, 0.0, [&](u32 i) { return sums[i]; }, plus));
  if (threadIdx.x != 0) return;
  const double divisor = grad_scale ? double(*grad_scale) : 1.0;
  const double own = ::sqrt(sum) / divisor;
  *norm = C(own);
  if (factor) {
    const double share = max_norm / (own + CLEARANCE);
    *factor = share >= 1 ? C(1) : C(share);
  } else {
    const double over = (own + CLEARANCE) / max_norm;
    *scale = float(over <= 1 ? divisor : divisor * over);
    *found_inf = isfinite(C(own)) ? 0.0f : 1.0f;
  }
}

template <class T, class C> struct MultiplyBy {
  C factor;

  template <int W> __device__ __forceinline__ void run(u64 at) {
    ElementRun<T, W> held;
    held.load(at);
    C x[W];
#pragma unroll
    for (int i = 0; i < W; ++i) x[i] = convert<C>(held.at(i)) * factor;
    ElementRun<T, W>::store(at, x);
  }
};

template <class T, class C, int V>
__global__ void __launch_bounds__(THREADS)
    optim_scaled(u64 base, const i64* table, u64 whole, u32 chunk, const C* factor) {
  MultiplyBy<T, C> own{*factor};
  for_each_run<T, V>(OwnElements(base, table, whole, chunk, sizeof(T)), own);
}
