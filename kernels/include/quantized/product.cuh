// int8 matrix products with exact s32 accumulation, and their epilogue:
//   exact = sum (a - zero_a) (b - zero_b);  out = f(exact scale_a scale_b + bias), in f32, separate roundings.
// Products of floats with i8 (W8A16) have the same epilogue without zero points. An i32 output stays exact, with
// integer bias and relu. Mirrored by baracuda_py/ops/quantized/int8/_finish.py, which packs the struct.
#pragma once
#include "products/epilogue.cuh"
#include "products/tile.cuh"

namespace quantized {

// Element tags of mma.sync on bytes; A is i8 or u8. Eight: operands. Summed: the base WarpTile, whose store Eight
// replaces.
template <class A> struct Eight { u8 bits; };
template <class A> struct Summed { u8 bits; };

// Zero-point correction: none; by sums along K, of A's `rows` and B's `columns`; or only the constant term k zero_a
// zero_b, if the kernel has applied the sums.
enum Zeros { NO_ZEROS, BY_OPERAND_SUMS, CONSTANT };

template <class Out> __device__ __forceinline__ Out finished(float x) { return convert<Out>(x); }
template <> __device__ __forceinline__ i8 finished<i8>(float x) {
  return x == x ? i8(__float2int_rn(fminf(fmaxf(x, -128.0f), 127.0f))) : i8(0);
}

// A column's scale and bias.
template <class Out> struct Column { float scale, bias; };
template <> struct Column<int> { int bias; };

// The epilogue. PAIRED: columns n and n + 1 (n even) of out are one access. Steps are in elements, 0 for a scalar
// operand.
template <class Out_, class Bias, int ACTIVATION, bool PAIRED, bool SCALED_A, bool SCALED_B, Zeros ZEROS, class Zero>
struct Finish {
  using Out = Out_;
  static constexpr int DIGITS = sizeof(Out) == 4 ? 24 : Same<Out, f16>::value ? 11 : 8;

  Out* out;
  const Bias* bias;
  const float *scale_a, *scale_b;
  const Zero* zero_a;
  const i8* zero_b;
  const int *rows, *columns;
  i64 row, col, bias_step, scale_a_step, scale_b_step, zero_a_step, zero_b_step;
  int k, unused;

  __device__ __forceinline__ Finish at_batch(const BatchIndex&) const { return *this; }

  __device__ __forceinline__ float exact(float sum, i64, i64) const { return sum; }
  __device__ __forceinline__ int exact(int sum, i64 m, i64 n) const {
    if constexpr (ZEROS != NO_ZEROS) {
      const int of_a = zero_a ? int(zero_a[m * zero_a_step]) : 0, of_b = zero_b ? int(zero_b[n * zero_b_step]) : 0;
      sum += k * of_a * of_b;
      if constexpr (ZEROS == BY_OPERAND_SUMS) sum -= (zero_a ? of_a * columns[n] : 0) + (zero_b ? of_b * rows[m] : 0);
    }
    return sum;
  }

  // The scale of a row.
  __device__ __forceinline__ float of_row(i64 m) const {
    if constexpr (SCALED_A) return scale_a[m * scale_a_step];
    else return 1.0f;
  }
  __device__ __forceinline__ Column<Out> of_column(i64 n) const {
    Column<Out> column{};
    if constexpr (SCALED_B) column.scale = scale_b[n * scale_b_step];
    if constexpr (present<Bias> && Same<Out, int>::value) column.bias = int(bias[n * bias_step]);
    else if constexpr (present<Bias>) column.bias = convert<float>(bias[n * bias_step]);
    return column;
  }

  // Prefetches a column's scale and bias into L2.
  __device__ __forceinline__ void prefetch(i64 n) const {
    if constexpr (SCALED_B) asm volatile("prefetch.global.L2 [%0];" ::"l"(scale_b + n * scale_b_step));
    if constexpr (present<Bias>) asm volatile("prefetch.global.L2 [%0];" ::"l"(bias + n * bias_step));
  }

  // The epilogue of accumulator (m, n), which must be inside the matrix.
  template <class Acc>
  __device__ __forceinline__ Out value(Acc sum, i64 m, i64 n, float row_scale, const Column<Out>& column) const {
    const Acc all = exact(sum, m, n);
    if constexpr (Same<Out, int>::value) {
      int x = all;
      if constexpr (present<Bias>) asm("add.sat.s32 %0, %1, %2;" : "=r"(x) : "r"(x), "r"(column.bias));
      return ACTIVATION == RELU ? max(x, 0) : x;
    } else {
      float x = float(all);
      if constexpr (SCALED_A && SCALED_B) x = __fmul_rn(x, __fmul_rn(row_scale, column.scale));
      else if constexpr (SCALED_A) x = __fmul_rn(x, row_scale);
      else if constexpr (SCALED_B) x = __fmul_rn(x, column.scale);
      if constexpr (present<Bias>) x = __fadd_rn(x, column.bias);
      return finished<Out>(activate<ACTIVATION, DIGITS>(x));
    }
  }

  template <class Acc> __device__ __forceinline__ void store(Acc sum, i64 m, i64 n) const {
    out[m * row + n * col] = value(sum, m, n, of_row(m), of_column(n));
  }

  // Stores (m, n) and (m, n + 1), n even; the second only if `both`.
  template <class Acc>
  __device__ __forceinline__ void store(
      const Acc* sum, i64 m, i64 n, bool both, float row_scale, const Column<Out>* columns) const {
    const Out first = value(sum[0], m, n, row_scale, columns[0]);
    if (PAIRED && both) {
      *reinterpret_cast<Vec<Out, 2>*>(out + m * row + n) = {first, value(sum[1], m, n + 1, row_scale, columns[1])};
    } else {
      out[m * row + n * col] = first;
      if (both) out[m * row + (n + 1) * col] = value(sum[1], m, n + 1, row_scale, columns[1]);
    }
  }
  template <class Acc> __device__ __forceinline__ void store(Acc (&sum)[2], i64 m, i64 n, bool both) const {
    const Column<Out> columns[2] = {of_column(n), of_column(n + both)};
    store(sum, m, n, both, of_row(m), columns);
  }
};

}  // namespace quantized

// Four k's per register: with g = lane / 4 and t = lane % 4, part p holds k = 16 p + 4 t to + 3.
template <> struct Mma<quantized::Eight<i8>> {
  using Acc = int;
  using Reg = u32;
  static constexpr int K = 32, PARTS = 2;
  static __device__ __forceinline__ void run(int (&c)[4], const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
template <> struct Mma<quantized::Eight<u8>> {
  using Acc = int;
  using Reg = u32;
  static constexpr int K = 32, PARTS = 2;
  static __device__ __forceinline__ void run(int (&c)[4], const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

template <class A> struct Mma<quantized::Summed<A>> : Mma<quantized::Eight<A>> {};

// A warp's tile. The scales and biases of its rows and columns are loaded before the stores: after a store, which might
// alias them, the compiler would reload them.
template <class A, int WM, int WN>
struct WarpTile<quantized::Eight<A>, WM, WN> : WarpTile<quantized::Summed<A>, WM, WN> {
  template <class Finish>
  __device__ __forceinline__ void store(const Finish& finish, u32 m, u32 n, u32 M, u32 N, int lane) {
    constexpr int ROWS = WM / 8, COLUMNS = WN / 8;
    m += lane / 4;
    n += lane % 4 * 2;
    float rows[ROWS];
    quantized::Column<typename Finish::Out> columns[COLUMNS][2];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) rows[i] = finish.of_row(min(m + 8 * i, M - 1));
#pragma unroll
    for (int j = 0; j < 2 * COLUMNS; ++j) columns[j / 2][j % 2] = finish.of_column(min(n + 8 * (j / 2) + j % 2, N - 1));
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      if (m + 8 * i >= M) break;
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        const u32 at = n + 8 * j;
        if (at >= N) break;
        finish.store(&this->acc[i / 2][j][i % 2 * 2], m + 8 * i, at, at + 1 < N, rows[i], columns[j]);
      }
    }
  }
};

// K-major tiles of bytes have the shared layout of 16-bit elements with half the BK.
template <class A, int MN, int BK_> struct Tile<quantized::Eight<A>, MN, BK_, true> : Tile<f16, MN, BK_ / 2, true> {
  using Element = quantized::Eight<A>;
  static constexpr int BK = BK_;
};
