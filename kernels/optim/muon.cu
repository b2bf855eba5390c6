// The elementwise steps of Muon (K. Jordan et al., 2024), ahead of its Newton-Schulz products and behind them.
//
// muon_momentum:  buffer = lerp(buffer, g, 1 - momentum); x = lerp(g, buffer, momentum) if NESTEROV, else buffer, in
//                 bf16; a sum of its squares per CTA, in f64.
// muon_normalize: x /= max(norm, eps), a bf16 number as torch has it; every CTA adds up all sums, in the same order.
// muon_update:    param = (1 - lr * weight_decay) * param - lr * ratio * x.
// Mapping:        V adjacent elements of every array per thread and turn; no more CTAs than the length fixes.
// Shared:         a sum per warp.   Bound: DRAM.
#include "core/index.cuh"
#include "optim/runs.cuh"
#include "rows/fold.cuh"
#include "rows/group.cuh"

constexpr int THREADS = 256;

using optim::load_run;
using optim::store_run;

// a + weight * (b - a), from the end that is nearer, as torch.lerp.
template <class C> __device__ __forceinline__ C lerp(C a, C b, C weight) {
  return weight < C(0.5) ? a + weight * (b - a) : b - (b - a) * (C(1) - weight);
}

// `each(first element, how many there are, V at most)` for the runs of this thread.
template <int V, class Each> __device__ __forceinline__ void for_each_run(u64 count, const Each& each) {
  const u64 turn = u64(gridDim.x) * THREADS * V;
  for (u64 i = (u64(blockIdx.x) * THREADS + threadIdx.x) * V; i < count; i += turn)
    each(i, count - i < V ? u32(count - i) : u32(V));
}

template <class G, class S, class C, bool NESTEROV, bool ALIGNED, int V>
__global__ void __launch_bounds__(THREADS)
    muon_momentum(u64 count, S* buffer, const G* grad, bf16* x, double momentum, double* sums) {
  const C keep = C(momentum), share = C(1 - momentum);
  double own = 0;
  for_each_run<V>(count, [&](u64 i, u32 left) {
    C held[V], given[V];
    float made[V];
    load_run<ALIGNED>(buffer + i, left, held);
    load_run<ALIGNED>(grad + i, left, given);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const C g = given[v], b = lerp(held[v], g, share);
      const bf16 rounded = convert<bf16>(float(NESTEROV ? lerp(g, b, keep) : b));
      held[v] = b;
      made[v] = convert<float>(rounded);
      own = ::fma(double(made[v]), double(made[v]), own);
    }
    store_run<ALIGNED>(buffer + i, left, held);
    store_run<ALIGNED>(x + i, left, made);
  });
  const double sum = rows::sum<THREADS>(own);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <bool ALIGNED, int V>
__global__ void __launch_bounds__(THREADS)
    muon_normalize(u64 count, bf16* x, const double* sums, u32 ctas, double eps) {
  const double total = rows::sum<THREADS>(rows::fold<4>(threadIdx.x, ctas, THREADS, 0.0,
      [&](u32 i) { return sums[i]; }, [](double a, double b) { return a + b; }));
  const double norm = ::sqrt(total);
  const float divisor = convert<float>(convert<bf16>(float(norm < eps ? eps : norm)));
  for_each_run<V>(count, [&](u64 i, u32 left) {
    float held[V];
    load_run<ALIGNED>(x + i, left, held);
#pragma unroll
    for (int v = 0; v < V; ++v) held[v] /= divisor;
    store_run<ALIGNED>(x + i, left, held);
  });
}

template <class P, class C, bool MASTER, bool ALIGNED, int V>
__global__ void __launch_bounds__(THREADS)
    muon_update(u64 count, P* param, float* master, const bf16* x, const float* learning_rate, double lr,
                double weight_decay, double ratio) {
  const double rate = learning_rate ? double(*learning_rate) : lr;
  const C decay = C(1 - rate * weight_decay), adjusted = C(rate * ratio);
  for_each_run<V>(count, [&](u64 i, u32 left) {
    C p[V], update[V];
    if constexpr (MASTER) load_run<ALIGNED>(master + i, left, p);
    else load_run<ALIGNED>(param + i, left, p);
    load_run<ALIGNED>(x + i, left, update);
#pragma unroll
    for (int v = 0; v < V; ++v) p[v] = decay * p[v] - adjusted * update[v];
    store_run<ALIGNED>(param + i, left, p);
    if constexpr (MASTER) store_run<ALIGNED>(master + i, left, p);
  });
}
