// One step of an optimizer, in place, on one array of parameters or on a list of arrays: two launches, or four.
//
// optim_step:   one thread counts the step and computes what all elements share, unless the gradients overflowed.
// optim_update: a CTA per chunk of elements; V elements of every array per thread and turn, in accesses of 16 bytes
//            where a chunk's arrays are aligned to that, else one by one.
// optim_norms, optim_step_sizes, between these for a rule with norms (NORMED): a CTA per chunk adds up the squares of
//            its parameters and of their update in f64, and a CTA per array makes its step size of the chunks' sums, in
//            an order that the lengths fix. optim_update computes the update again: arrays are read twice.
// Lists:     a row of `table` per chunk: its elements, the number of its first one, per array where it begins in bytes
//            from that array's base, and, NORMED, the rows of its array if it is the first of these, else 0.
// Arrays:    parameter, gradient, the rule's states, and the parameter in f32 (MASTER), of which the other is a copy.
// CHANCE:    bf16 parameters are rounded by 16 random bits each, at its position in the list, of the stream
//            (seed, step).
// Shared:    a sum per warp (NORMED).   Bound: DRAM, every array read, and all but the gradient written, once.
#include "core/index.cuh"
#include "optim/normed_rules.cuh"
#include "optim/pieces.cuh"
#include "optim/rules.cuh"
#include "rows/fold.cuh"
#include "rows/group.cuh"

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

// W elements of every array.
template <class Rule, class P, class G, class S, class C, bool MASTER, int W> struct Elements {
  static constexpr int STATES = Rule::STATES;
  ElementRun<P, W> parameter;
  ElementRun<float, W> master;
  ElementRun<G, W> gradient;
  ElementRun<S, W> states[STATES + 1];

  __device__ __forceinline__ void load(const u64 (&begin)[MOST], u64 place) {
    if constexpr (MASTER) master.load(begin[2 + STATES] + place * sizeof(float));
    else parameter.load(begin[0] + place * sizeof(P));
    gradient.load(begin[1] + place * sizeof(G));
#pragma unroll
    for (int k = 0; k < STATES; ++k) states[k].load(begin[2 + k] + place * sizeof(S));
  }
  __device__ __forceinline__ C parameter_at(int i) const {
    if constexpr (MASTER) return convert<C>(master.at(i));
    else return convert<C>(parameter.at(i));
  }
  __device__ __forceinline__ void states_at(int i, C (&state)[optim::MOST_STATES]) const {
#pragma unroll
    for (int k = 0; k < STATES; ++k) state[k] = convert<C>(states[k].at(i));
  }
};

// The elements of a CTA.
template <class Rule, class P, class G, class S, bool MASTER, bool LISTED, bool NORMED, int V> struct Chunk {
  static constexpr int STATES = Rule::STATES, ARRAYS = 2 + STATES + MASTER;
  u64 begin[MOST], position;
  u32 count, unaligned;

  __device__ __forceinline__ Chunk(const ArrayBases& bases, const i64* table, u64 whole, u32 chunk) {
    const u64 first = u64(blockIdx.x) * chunk;
    const i64* row = table + i64(blockIdx.x) * (2 + ARRAYS + NORMED);
    count = whole - first < chunk ? u32(whole - first) : chunk;
    position = first;
    if constexpr (LISTED) {
      count = u32(row[0]);
      position = u64(row[1]);
    }
    unaligned = 0;
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
  }
  // `each.run<W>(*this, i)` for the W elements from i on.
  template <class Each> __device__ __forceinline__ void for_each_run(Each& each) const {
    for (u32 i = threadIdx.x * V; i < count; i += THREADS * V) {
      if (!unaligned && i + V <= count) {
        each.template run<V>(*this, i);
        continue;
      }
      for (u32 one = i; one < count && one < i + V; ++one) each.template run<1>(*this, one);
    }
  }
};

template <class Rule, class P, class G, class S, class C, bool MASTER, bool CHANCE> struct Advance {
  const StepScalars<C>& shared;
  u64 seed;

  template <int W, class Own> __device__ __forceinline__ void run(const Own& own, u64 place) const {
    constexpr int STATES = Rule::STATES;
    Elements<Rule, P, G, S, C, MASTER, W> held;
    held.load(own.begin, place);
    C p[W], next[STATES + 1][W];
#pragma unroll
    for (int i = 0; i < W; ++i) {
      C state[optim::MOST_STATES];
      held.states_at(i, state);
      const C g = convert<C>(held.gradient.at(i)) * shared.scale;
      p[i] = Rule::update(held.parameter_at(i), g, state, shared.factor);
#pragma unroll
      for (int k = 0; k < STATES; ++k) next[k][i] = state[k];
    }
    if constexpr (CHANCE) optim::round_by_chance(p, seed, own.position + place, u64(shared.step));

    ElementRun<P, W>::store(own.begin[0] + place * sizeof(P), p);
#pragma unroll
    for (int k = 0; k < STATES; ++k) ElementRun<S, W>::store(own.begin[2 + k] + place * sizeof(S), next[k]);
    if constexpr (MASTER) ElementRun<float, W>::store(own.begin[2 + STATES] + place * sizeof(float), p);
  }
};

template <class Rule, class P, class G, class S, class C, bool MASTER, bool LISTED, bool CHANCE, bool NORMED, int V>
__global__ void __launch_bounds__(THREADS)
    optim_update(const __grid_constant__ ArrayBases bases, const i64* table, u64 count, u32 chunk,
           const StepScalars<C>* scalars, const C* step_sizes, u64 seed) {
  StepScalars<C> shared = *scalars;
  if (shared.skip != C(0)) return;
  if constexpr (NORMED) shared.factor[optim::STEP_SIZE] = step_sizes[blockIdx.x];
  Advance<Rule, P, G, S, C, MASTER, CHANCE> advance{shared, seed};
  Chunk<Rule, P, G, S, MASTER, LISTED, NORMED, V>(bases, table, count, chunk).for_each_run(advance);
}

// Sums of squares: of parameters, and of their update.
struct Squares {
  double of_parameter, of_update;

  __device__ __forceinline__ Squares operator+(const Squares& other) const {
    return {of_parameter + other.of_parameter, of_update + other.of_update};
  }
};

template <class Rule, class P, class G, class S, class C, bool MASTER> struct AddNorms {
  const StepScalars<C>& shared;
  Squares sum;

  template <int W, class Own> __device__ __forceinline__ void run(const Own& own, u64 place) {
    Elements<Rule, P, G, S, C, MASTER, W> held;
    held.load(own.begin, place);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      C state[optim::MOST_STATES];
      held.states_at(i, state);
      const C g = convert<C>(held.gradient.at(i)) * shared.scale, p = held.parameter_at(i);
      const double x = double(p), y = double(Rule::direction(p, g, state, shared.factor));
      sum.of_parameter = ::fma(x, x, sum.of_parameter);
      sum.of_update = ::fma(y, y, sum.of_update);
    }
  }
};

template <class Rule, class P, class G, class S, class C, bool MASTER, bool LISTED, int V>
__global__ void __launch_bounds__(THREADS)
    optim_norms(const __grid_constant__ ArrayBases bases, const i64* table, u64 count, u32 chunk,
          const StepScalars<C>* scalars, Squares* sums) {
  const StepScalars<C> shared = *scalars;
  if (shared.skip != C(0)) return;
  AddNorms<Rule, P, G, S, C, MASTER> added{shared, {0.0, 0.0}};
  Chunk<Rule, P, G, S, MASTER, LISTED, true, V>(bases, table, count, chunk).for_each_run(added);
  const Squares sum = rows::sum<THREADS>(added.sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// The CTA of an array's first row adds up those of all its rows, and gives each of them the array's step size.
template <class Rule, class C>
__global__ void __launch_bounds__(THREADS)
    optim_step_sizes(const Squares* sums, const i64* table, u32 columns, u32 chunks, const StepScalars<C>* scalars,
               C* step_sizes) {
  const u32 first = blockIdx.x, most = chunks - first;
  const u64 given = table ? u64(table[(i64(first) + 1) * columns - 1]) : most;
  const u32 rows_of_array = given < most ? u32(given) : most;
  if (rows_of_array == 0 || scalars->skip != C(0)) return;
  const auto plus = [](const Squares& a, const Squares& b) { return a + b; };
  const auto load = [&](u32 i) { return sums[first + i]; };
  const Squares sum =
      rows::sum<THREADS>(rows::fold<4>(threadIdx.x, rows_of_array, THREADS, Squares{0.0, 0.0}, load, plus));
  const C own = C(Rule::step_size(::sqrt(sum.of_parameter), ::sqrt(sum.of_update), scalars->factor));
  for (u32 i = threadIdx.x; i < rows_of_array; i += THREADS) step_sizes[first + i] = own;
}
