// The epilogue of a matrix product: out = residual + f(alpha acc + beta c + bias), computed in Acc, rounded once.
// Scaled: acc is first multiplied by the scales of its row of A and of its column of B.
// c and residual may alias out: the thread that stores an element has read c and residual of that element before.
// Mirrored by baracuda_py/ops/products/epilogue.py, which packs the structs. Absent operands cost nothing.
#pragma once
#include "math/extrema.cuh"
#include "math/gelu.cuh"
#include "math/sigmoid.cuh"
#include "math/silu.cuh"
#include "core/matrix.cuh"

struct Absent {};
template <class T> constexpr bool present = !Same<T, Absent>::value;

enum Activation { IDENTITY, RELU, GELU, GELU_TANH, SILU };

template <int ACTIVATION, int digits, class C> __device__ __forceinline__ C activate(C x) {
  if constexpr (ACTIVATION == RELU) return math::maximum(x, C(0));
  if constexpr (ACTIVATION == GELU) return math::gelu<digits>(x);
  if constexpr (ACTIVATION == SILU) return math::silu<digits>(x);
  if constexpr (ACTIVATION == GELU_TANH) {
    // 0.5 x (1 + tanh u) is x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): D. Hendrycks and K. Gimpel,
    // arXiv:1606.08415
    C s = math::sigmoid<digits>(x * (C(1.5957691216057308) + C(0.071354816272600248) * x * x));
    return s == C(0) ? C(-0.0) : x * s;
  }
  return x;
}

// PAIRED: every operand present has column stride 1 and is aligned, so that columns n and n + 1 (n even) are one
// access.
template <class Out_, class C, class Bias, class Residual, int ACTIVATION, bool PAIRED, class Acc = float>
struct Epilogue {
  using Out = Out_;
  static constexpr bool READS = present<C> || present<Bias> || present<Residual>;  // reads at (m, n)
  static constexpr bool PAIRS = PAIRED;
  static constexpr int DIGITS = sizeof(Out) == 8 ? 53 : sizeof(Out) == 4 ? 24 : Same<Out, f16>::value ? 11 : 8;

  Out* out;
  const C* c;
  const Bias* bias;
  const Residual* residual;
  Acc alpha, beta;
  OperandStrides out_strides, c_strides, bias_strides, residual_strides;

  // The epilogue of one matrix of the batch: pointers advanced by the batch strides.
  __device__ __forceinline__ Epilogue at_batch(const BatchIndex& b) const {
    Epilogue e = *this;
    e.out += out_strides.batch_offset(b);
    if constexpr (present<C>) e.c += c_strides.batch_offset(b);
    if constexpr (present<Bias>) e.bias += bias_strides.batch_offset(b);
    if constexpr (present<Residual>) e.residual += residual_strides.batch_offset(b);
    return e;
  }

  // Operand scales, per matrix and for accumulators (m, n) and (m, next): 1 here, see Scaled.
  __device__ __forceinline__ Acc whole(const BatchIndex&) const { return Acc(1); }
  __device__ __forceinline__ void scale(Acc (&)[2], i64, i64, i64) const {}

  // alpha acc; as in BLAS, alpha == 0 gives 0 even if the product is NaN or infinite.
  __device__ __forceinline__ Acc weighted(Acc acc) const { return alpha == Acc(0) ? Acc(0) : alpha * acc; }

  // The epilogue of element (m, n), which must be inside the matrix.
  __device__ __forceinline__ Acc value(Acc acc, i64 m, i64 n) const {
    Acc x = weighted(acc);
    if constexpr (present<C>) x += beta == Acc(0) ? Acc(0) : beta * convert<Acc>(c[c_strides.at(m, n)]);
    if constexpr (present<Bias>) x += convert<Acc>(bias[bias_strides.at(m, n)]);
    x = activate<ACTIVATION, DIGITS>(x);
    if constexpr (present<Residual>) x += convert<Acc>(residual[residual_strides.at(m, n)]);
    return x;
  }

  __device__ __forceinline__ void store(Acc acc, i64 m, i64 n) const {
    out[out_strides.at(m, n)] = convert<Out>(value(acc, m, n));
  }

  // The epilogue of (m, n) and (m, n + 1), n even; the second is undefined if `both` is false.
  __device__ __forceinline__ void values(Acc (&x)[2], i64 m, i64 n, bool both) const {
    if constexpr (!PAIRED) {
      x[0] = value(x[0], m, n);
      if (both) x[1] = value(x[1], m, n + 1);
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) x[i] = weighted(x[i]);
      if constexpr (present<C>)
        if (beta != Acc(0)) add(x, beta, c, c_strides, m, n, both);
      if constexpr (present<Bias>) add(x, Acc(1), bias, bias_strides, m, n, both);
#pragma unroll
      for (int i = 0; i < 2; ++i) x[i] = activate<ACTIVATION, DIGITS>(x[i]);
      if constexpr (present<Residual>) add(x, Acc(1), residual, residual_strides, m, n, both);
    }
  }

  __device__ __forceinline__ void store(Acc (&x)[2], i64 m, i64 n, bool both) const {
    values(x, m, n, both);
    Out* to = out + out_strides.at(m, n);
    if (PAIRED && both) {
      *reinterpret_cast<Vec<Out, 2>*>(to) = round_to<Out, 2>(x);
    } else {
      *to = convert<Out>(x[0]);
      if (both) to[out_strides.col] = convert<Out>(x[1]);
    }
  }

 private:
  template <class T>
  static __device__ __forceinline__ void add(
      Acc (&x)[2], Acc scale, const T* p, const OperandStrides& strides, i64 m, i64 n, bool both) {
    const T* at = p + strides.at(m, n);
    Vec<T, 2> pair{};
    if (both) pair = *reinterpret_cast<const Vec<T, 2>*>(at);
    else pair.at[0] = *at;
#pragma unroll
    for (int i = 0; i < 2; ++i) x[i] += scale * convert<Acc>(pair.at[i]);
  }
};

// Scales of fp8 operands: one per tensor (`whole`), or one per row of A and per column of B (`scale`).
enum Scale { UNSCALED, OF_TENSOR, OF_LINES };

template <class Base, Scale OF_A, Scale OF_B> struct Scaled : Base {
  const float *scale_a, *scale_b;
  OperandStrides a_strides, b_strides;

  __device__ __forceinline__ Scaled at_batch(const BatchIndex& b) const {
    Scaled e = *this;
    static_cast<Base&>(e) = Base::at_batch(b);
    if constexpr (OF_A == OF_LINES) e.scale_a += a_strides.batch_offset(b);
    if constexpr (OF_B == OF_LINES) e.scale_b += b_strides.batch_offset(b);
    return e;
  }
  __device__ __forceinline__ float whole(const BatchIndex& b) const {
    float x = 1;
    if constexpr (OF_A == OF_TENSOR) x *= scale_a[a_strides.batch_offset(b)];
    if constexpr (OF_B == OF_TENSOR) x *= scale_b[b_strides.batch_offset(b)];
    return x;
  }
  __device__ __forceinline__ void scale(float (&x)[2], i64 m, i64 n, i64 next) const {
    const float of_row = OF_A == OF_LINES ? scale_a[m * a_strides.row] : 1;
    x[0] *= OF_B == OF_LINES ? of_row * scale_b[n * b_strides.col] : of_row;
    x[1] *= OF_B == OF_LINES ? of_row * scale_b[next * b_strides.col] : of_row;
  }
};
