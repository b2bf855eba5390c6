// One step of an optimizer, in place, on one array of parameters or on a list of arrays: two launches.
//
// optim_step:   one thread counts the step and computes what all elements share, unless the gradients overflowed.
// optim_update: a CTA per chunk of elements; V elements of every array per thread and turn, in accesses of 16 bytes
//            where a chunk's arrays are aligned to that, else one by one.
// Lists:     a row of `table` per chunk: its elements, the number of its first one, and, per array, where it begins in
//            bytes from that array's base.
// Arrays:    parameter, gradient, the rule's states, and the parameter in f32 (MASTER), of which the other is a copy.
// CHANCE:    bf16 parameters are rounded by 16 random bits each, at its position in the list, of the stream
//            (seed, step).
// Shared:    none.   Bound: DRAM, every array read, and all but the gradient written, once.
#include "core/index.cuh"
#include "optim/pieces.cuh"
#include "optim/rules.cuh"

constexpr int THREADS = 256;
constexpr int MOST = 6;  // arrays

using optim::ElementRun;
using optim::StepScalars;

struct ArrayBases { u64 of[MOST]; };

template <class Rule, class C>
__global__ void __launch_bounds__(1)
    optim_step(StepScalars<C>* scalars, float* count, const float* learning_rate, const float* grad_scale,
         const float* found_inf, double lr, double h0, double h1, double h2, double h3, double h4, u32 maximize) {
  const bool skip = found_inf && *found_inf != 0;
  StepScalars<C> own;
  own.skip = skip;
  if (!skip) {
    const float counted = *count + 1;
    *count = counted;
    const double hyper[5] = {h0, h1, h2, h3, h4};
    double factor[optim::FACTORS] = {};
    Rule::prepare(learning_rate ? double(*learning_rate) : lr, hyper, double(counted), factor);
    own.step = C(counted);
    own.scale = C((maximize ? -1.0 : 1.0) / (grad_scale ? double(*grad_scale) : 1.0));
#pragma unroll
    for (int i = 0; i < optim::FACTORS; ++i) own.factor[i] = C(factor[i]);
  }
  *scalars = own;
}

// W elements, `place` on in every array; the first of these is at `position` of the list.
template <class Rule, class P, class G, class S, class C, bool MASTER, bool CHANCE, int W>
__device__ __forceinline__ void advance(
    const u64 (&begin)[MOST], u64 place, const StepScalars<C>& shared, u64 seed, u64 position) {
  constexpr int STATES = Rule::STATES;
  const u64 at_master = begin[2 + STATES] + place * sizeof(float);
  ElementRun<P, W> parameter;
  ElementRun<float, W> master;
  ElementRun<G, W> gradient;
  ElementRun<S, W> states[STATES + 1];
  if constexpr (MASTER) master.load(at_master);
  else parameter.load(begin[0] + place * sizeof(P));
  gradient.load(begin[1] + place * sizeof(G));
#pragma unroll
  for (int k = 0; k < STATES; ++k) states[k].load(begin[2 + k] + place * sizeof(S));

  C p[W], next[STATES + 1][W];
#pragma unroll
  for (int i = 0; i < W; ++i) {
    C state[optim::MOST_STATES];
#pragma unroll
    for (int k = 0; k < STATES; ++k) state[k] = convert<C>(states[k].at(i));
    if constexpr (MASTER) p[i] = convert<C>(master.at(i));
    else p[i] = convert<C>(parameter.at(i));
    p[i] = Rule::update(p[i], convert<C>(gradient.at(i)) * shared.scale, state, shared.factor);
#pragma unroll
    for (int k = 0; k < STATES; ++k) next[k][i] = state[k];
  }
  if constexpr (CHANCE) optim::round_by_chance(p, seed, position, u64(shared.step));

  ElementRun<P, W>::store(begin[0] + place * sizeof(P), p);
#pragma unroll
  for (int k = 0; k < STATES; ++k) ElementRun<S, W>::store(begin[2 + k] + place * sizeof(S), next[k]);
  if constexpr (MASTER) ElementRun<float, W>::store(at_master, p);
}

template <class Rule, class P, class G, class S, class C, bool MASTER, bool LISTED, bool CHANCE, int V>
__global__ void __launch_bounds__(THREADS)
    optim_update(const __grid_constant__ ArrayBases bases, const i64* table, u64 count, u32 chunk,
           const StepScalars<C>* scalars, u64 seed) {
  constexpr int STATES = Rule::STATES, ARRAYS = 2 + STATES + MASTER;
  const StepScalars<C> shared = *scalars;
  if (shared.skip != C(0)) return;
  // 1. The chunk
  u64 begin[MOST], first = u64(blockIdx.x) * chunk;
  u32 own = count - first < chunk ? u32(count - first) : chunk;
  const i64* row = table + i64(blockIdx.x) * (2 + ARRAYS);
  u64 position = first;
  if constexpr (LISTED) {
    own = u32(row[0]);
    position = u64(row[1]);
  }
  u32 unaligned = 0;
#pragma unroll
  for (int k = 0; k < ARRAYS; ++k) {
    const bool is_master = k == 2 + STATES;
    const u32 size = k == 0 ? sizeof(P) : k == 1 ? sizeof(G) : is_master ? sizeof(float) : sizeof(S);
    const u32 align = k == 0   ? ElementRun<P, V>::ALIGN
                      : k == 1 ? ElementRun<G, V>::ALIGN
                      : is_master ? ElementRun<float, V>::ALIGN
                                  : ElementRun<S, V>::ALIGN;
    begin[k] = bases.of[k] + (LISTED ? u64(row[2 + k]) : first * size);
    unaligned |= u32(begin[k]) & (align - 1);
  }
  // 2. Its elements
  for (u32 i = threadIdx.x * V; i < own; i += THREADS * V) {
    if (!unaligned && i + V <= own) {
      advance<Rule, P, G, S, C, MASTER, CHANCE, V>(begin, i, shared, seed, position + i);
      continue;
    }
    for (u32 one = i; one < own && one < i + V; ++one)
      advance<Rule, P, G, S, C, MASTER, CHANCE, 1>(begin, one, shared, seed, position + one);
  }
}
