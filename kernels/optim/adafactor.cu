// One step of Adafactor (N. Shazeer, M. Stern, ICML 2018), in place, on matrices (FACTORED) or on a vector:
// param = (1 - lr * weight_decay) * param - step_size * u, where u = g / sqrt(max(V, eps1^2)) and
// V = row_var * col_var / max(mean(row_var), eps1), or a vector's own variance.
//
// Launches: adafactor_step counts; adafactor_sums adds up squares by rows, by columns and of the parameters;
//           adafactor_means advances the running means; adafactor_norms adds up the squares of u; adafactor_step_size
//           clips by their mean; adafactor_update moves the parameters.
// Tiles:    TILE_ROWS x TILE_COLUMNS elements of a matrix; a warp takes every WARPS-th row, a lane V adjacent columns
//           of each 32 * V. A vector is a matrix of one row. A CTA takes every gridDim-th tile.
// Order:    squares are added in f64, in an order that the shape alone fixes.
// Shared:   WARPS * TILE_COLUMNS sums.   Bound: DRAM, the gradient read three times, the parameters twice.
#include "core/index.cuh"
#include "optim/rules.cuh"
#include "optim/runs.cuh"
#include "rows/fold.cuh"
#include "rows/group.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int TILE_ROWS = 32, LANE_COLUMNS = 16, TILE_COLUMNS = 32 * LANE_COLUMNS;

// Places of a step's factors.
enum Factor { DECAY, WEIGHT, EPS1, FLOOR, EPS2, RATE, CLIP };

using optim::StepScalars;
using optim::load_run;
using optim::store_run;

struct Tiles { u64 count, rows, columns, row_tiles, column_tiles; };

struct Tile {
  u64 matrix, row_tile, column_tile, first_row, first_column;
  u32 rows, columns;

  __device__ __forceinline__ Tile(const Tiles& tiles, u64 index) {
    column_tile = index % tiles.column_tiles;
    row_tile = index / tiles.column_tiles % tiles.row_tiles;
    matrix = index / tiles.column_tiles / tiles.row_tiles;
    first_row = row_tile * TILE_ROWS;
    first_column = column_tile * TILE_COLUMNS;
    rows = tiles.rows - first_row < TILE_ROWS ? u32(tiles.rows - first_row) : TILE_ROWS;
    columns = tiles.columns - first_column < TILE_COLUMNS ? u32(tiles.columns - first_column) : TILE_COLUMNS;
  }
};

template <class C>
__global__ void __launch_bounds__(1)
    adafactor_step(StepScalars<C>* scalars, float* count, const float* learning_rate, const float* grad_scale,
                   const float* found_inf, double lr, double beta2_decay, double eps1, double eps2, double d,
                   double weight_decay, u32 maximize) {
  StepScalars<C> own = {};
  if (found_inf && *found_inf != 0) {
    own.skip = C(1);
  } else {
    const float counted = *count + 1;
    *count = counted;
    const double rate = learning_rate ? double(*learning_rate) : lr, most = 1 / ::sqrt(double(counted));
    own.scale = C((maximize ? -1.0 : 1.0) / (grad_scale ? double(*grad_scale) : 1.0));
    own.factor[DECAY] = C(1 - rate * weight_decay);
    own.factor[WEIGHT] = C(::pow(double(counted), beta2_decay));
    own.factor[EPS1] = C(eps1);
    own.factor[FLOOR] = C(eps1 * eps1);
    own.factor[EPS2] = C(eps2);
    own.factor[RATE] = C(most < rate ? most : rate);
    own.factor[CLIP] = C(d);
  }
  *scalars = own;
}

template <class R, class G, class C, bool FACTORED, bool ALIGNED, int V>
__global__ void __launch_bounds__(THREADS, 2)
    adafactor_sums(const __grid_constant__ Tiles tiles, const R* param, const G* grad,
                   const StepScalars<C>* scalars, double* row_sums, double* column_sums, double* param_sums) {
  if (scalars->skip != C(0)) return;
  __shared__ double of_warps[WARPS][TILE_COLUMNS];
  const C scale = scalars->scale;
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  double of_param = 0;
  for (u64 index = blockIdx.x; index < tiles.count; index += gridDim.x) {
    const Tile tile(tiles, index);
    double of_columns[LANE_COLUMNS] = {};

    // 1. squares along each row of the warp, and down its columns
    for (u32 r = warp; r < tile.rows; r += WARPS) {
      const u64 row = tile.matrix * tiles.rows + tile.first_row + r, begin = row * tiles.columns + tile.first_column;
      double of_row = 0;
#pragma unroll
      for (int k = 0; k < LANE_COLUMNS / V; ++k) {
        const u32 column = (k * 32 + lane) * V, left = column < tile.columns ? tile.columns - column : 0;
        C g[V], p[V];
        load_run<ALIGNED>(grad + begin + column, left, g);
        load_run<ALIGNED>(param + begin + column, left, p);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const double x = double(g[v] * scale), y = double(p[v]);
          of_columns[k * V + v] = ::fma(x, x, of_columns[k * V + v]);
          of_row = ::fma(x, x, of_row);
          of_param = ::fma(y, y, of_param);
        }
      }
      if constexpr (FACTORED) {
        of_row = rows::sum<32>(of_row);
        if (lane == 0) row_sums[row * tiles.column_tiles + tile.column_tile] = of_row;
      }
    }

    // 2. columns across warps
    __syncthreads();  // the tile before is read
#pragma unroll
    for (int i = 0; i < LANE_COLUMNS; ++i) of_warps[warp][(i / V * 32 + lane) * V + i % V] = of_columns[i];
    __syncthreads();
    double* sums = column_sums + (tile.matrix * tiles.row_tiles + tile.row_tile) * tiles.columns + tile.first_column;
    for (u32 column = threadIdx.x; column < tile.columns; column += THREADS) {
      double sum = of_warps[0][column];
#pragma unroll
      for (int i = 1; i < WARPS; ++i) sum += of_warps[i][column];
      sums[column] = sum;
    }
  }
  const double sum = rows::sum<THREADS>(of_param);
  if (threadIdx.x == 0) param_sums[blockIdx.x] = sum;
}

__device__ __forceinline__ double plus(double a, double b) { return a + b; }

// The running means: the first `row_ctas` CTAs take a matrix's rows each, which they divide by their mean, the others
// columns.
template <class S, class C, bool FACTORED>
__global__ void __launch_bounds__(THREADS)
    adafactor_means(const __grid_constant__ Tiles tiles, u32 row_ctas, u64 matrices, S* row_var, S* col_var,
                    const StepScalars<C>* scalars, const double* row_sums, const double* column_sums,
                    double* row_factor, C* col_factor) {
  if (scalars->skip != C(0)) return;
  const double weight = double(scalars->factor[WEIGHT]);
  const auto advanced = [&](S held, double mean) {
    const double old = convert<double>(held);
    return weight < 0.5 ? old + weight * (mean - old) : mean - (mean - old) * (1 - weight);  // as torch.lerp
  };
  if (FACTORED && blockIdx.x < row_ctas) {
    u32 parity = 0;
    for (u64 matrix = blockIdx.x; matrix < matrices; matrix += row_ctas, parity ^= 1) {
      const u64 first = matrix * tiles.rows;
      double total = 0;
      for (u64 row = first + threadIdx.x; row < first + tiles.rows; row += THREADS) {
        const double* parts = row_sums + row * tiles.column_tiles;
        const double sum =
            rows::fold<4>(0, u32(tiles.column_tiles), 1, 0.0, [&](u32 i) { return parts[i]; }, plus);
        const double next = advanced(row_var[row], sum / double(tiles.columns));
        row_var[row] = convert<S>(C(next));
        row_factor[row] = next;
        total += next;
      }
      const double mean = rows::sum<THREADS>(total, parity) / double(tiles.rows), eps1 = double(scalars->factor[EPS1]);
      for (u64 row = first + threadIdx.x; row < first + tiles.rows; row += THREADS)
        row_factor[row] /= mean < eps1 ? eps1 : mean;
    }
    return;
  }
  const u64 turn = u64(gridDim.x - row_ctas) * THREADS;
  for (u64 i = u64(blockIdx.x - row_ctas) * THREADS + threadIdx.x; i < matrices * tiles.columns; i += turn) {
    const double* parts = column_sums + i / tiles.columns * tiles.row_tiles * tiles.columns + i % tiles.columns;
    const double sum = rows::fold<8>(
        0, u32(tiles.row_tiles), 1, 0.0, [&](u32 tile) { return parts[tile * tiles.columns]; }, plus);
    const double next = advanced(col_var[i], sum / double(tiles.rows));
    col_factor[i] = C(next);
    col_var[i] = convert<S>(C(next));
  }
}

// `each(first element, how many of V are there, their updates)` for every run of this CTA.
template <bool FACTORED, bool ALIGNED, int V, class G, class C, class Each>
__device__ __forceinline__ void for_each_update(const Tiles& tiles, const G* grad, const StepScalars<C>& shared,
                                                const double* row_factor, const C* col_factor, const Each& each) {
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const C floor = shared.factor[FLOOR];
  for (u64 index = blockIdx.x; index < tiles.count; index += gridDim.x) {
    const Tile tile(tiles, index);
    for (u32 column = lane * V; column < tile.columns; column += 32 * V) {
      const u32 left = tile.columns - column;
      C of_columns[V];
      load_run<ALIGNED>(col_factor + tile.matrix * tiles.columns + tile.first_column + column, left, of_columns);
      for (u32 r = warp; r < tile.rows; r += WARPS) {
        const u64 row = tile.matrix * tiles.rows + tile.first_row + r;
        const u64 at = row * tiles.columns + tile.first_column + column;
        const C of_row = FACTORED ? C(row_factor[row]) : C(1);
        C u[V];
        load_run<ALIGNED>(grad + at, left, u);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const C variance = of_row * of_columns[v];
          u[v] = u[v] * shared.scale * ::rsqrt(variance < floor ? floor : variance);
        }
        each(at, left, u);
      }
    }
  }
}

template <class G, class C, bool FACTORED, bool ALIGNED, int V>
__global__ void __launch_bounds__(THREADS)
    adafactor_norms(const __grid_constant__ Tiles tiles, const G* grad, const StepScalars<C>* scalars,
                    const double* row_factor, const C* col_factor, double* update_sums) {
  const StepScalars<C> shared = *scalars;
  if (shared.skip != C(0)) return;
  double own = 0;
  const auto add = [&](u64, u32 left, const C (&u)[V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const double x = v < left ? double(u[v]) : 0.0;
      own = ::fma(x, x, own);
    }
  };
  for_each_update<FACTORED, ALIGNED, V>(tiles, grad, shared, row_factor, col_factor, add);
  const double sum = rows::sum<THREADS>(own);
  if (threadIdx.x == 0) update_sums[blockIdx.x] = sum;
}

template <class C>
__global__ void __launch_bounds__(THREADS)
    adafactor_step_size(const double* param_sums, const double* update_sums, u32 count, double elements,
                        const StepScalars<C>* scalars, C* step_size) {
  if (scalars->skip != C(0)) return;
  const auto total = [&](const double* sums) {
    return rows::fold<4>(threadIdx.x, count, THREADS, 0.0, [&](u32 i) { return sums[i]; }, plus);
  };
  const double of_param = ::sqrt(rows::sum<THREADS, 0>(total(param_sums)) / elements);
  const double of_update = ::sqrt(rows::sum<THREADS, 1>(total(update_sums)) / elements);
  if (threadIdx.x != 0) return;
  const double eps2 = double(scalars->factor[EPS2]), over = of_update / double(scalars->factor[CLIP]);
  const double relative = of_param > eps2 ? of_param : eps2;  // a NaN is no larger, as torch has it
  *step_size = C(relative * double(scalars->factor[RATE]) / (over > 1 ? over : 1.0));
}

template <class P, class G, class C, bool MASTER, bool FACTORED, bool ALIGNED, int V>
__global__ void __launch_bounds__(THREADS)
    adafactor_update(const __grid_constant__ Tiles tiles, P* param, float* master, const G* grad,
                     const StepScalars<C>* scalars, const double* row_factor, const C* col_factor,
                     const C* step_size) {
  const StepScalars<C> shared = *scalars;
  if (shared.skip != C(0)) return;
  const C size = *step_size;
  const auto move = [&](u64 at, u32 left, const C (&u)[V]) {
    C p[V];
    if constexpr (MASTER) load_run<ALIGNED>(master + at, left, p);
    else load_run<ALIGNED>(param + at, left, p);
#pragma unroll
    for (int v = 0; v < V; ++v) p[v] = p[v] * shared.factor[DECAY] - size * u[v];
    store_run<ALIGNED>(param + at, left, p);
    if constexpr (MASTER) store_run<ALIGNED>(master + at, left, p);
  };
  for_each_update<FACTORED, ALIGNED, V>(tiles, grad, shared, row_factor, col_factor, move);
}
