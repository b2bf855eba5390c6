// Accumulation over k_blocks: in the wgmma accumulators, or promoted to f32 per k_block, with block scales if
// any. A consumer thread's accumulators are pairs of columns, alternately of a row and of the row 8 below.
#pragma once
#include "ptx/tma.cuh"

// STAGED<BM>: bytes of scales in a stage of a tile with BM rows. prefetch: of the scales' tensor map. ScaleProducer:
// the producer's scale loader, for the tile at `row`. Scales: a consumer's scale reader, for the tile at `col`, from
// k_block `first` on.
struct Unscaled {
  template <int BM> static constexpr int STAGED = 0;
  __device__ __forceinline__ void prefetch() const {}
  struct Scale {};
  struct ScaleProducer {
    __device__ __forceinline__ ScaleProducer(const Unscaled&, const BatchIndex&, u32) {}
    template <bool BATCHED> __device__ __forceinline__ void issue(u32, u32, u32) {}
  };
  struct Scales {
    __device__ __forceinline__ Scales(const Unscaled&, const BatchIndex&, u32, u32) {}
    __device__ __forceinline__ void fetch(Scale&, u32, u32) {}
  };
};

struct Accumulated : Unscaled {
  static constexpr bool PROMOTED = false;
};

struct Promoted : Unscaled {
  static constexpr bool PROMOTED = true;
  template <int N> static __device__ __forceinline__ void add(float (&acc)[N], const float (&part)[N], const Scale&) {
#pragma unroll
    for (int i = 0; i < N; ++i) acc[i] += part[i];
  }
};

// Scales of 1 x 128 blocks of A, [k_blocks][M] in its tensor map, and of 128 x 128 blocks of B, [k_blocks, N / 128]; a
// tile is at most one block wide. A stage holds A's scales of BM rows; the consumer loads B's one scale from global
// memory when it starts the k_block, one k_block before the promotion uses it.
struct BlockScaled {
  static constexpr bool PROMOTED = true;
  template <int BM> static constexpr int STAGED = BM * 4;
  TensorMap a;
  const float* b;
  OperandStrides b_strides;
  u32 a_batched[3];
  __device__ __forceinline__ void prefetch() const { tma::prefetch(a); }
  struct Scale { float of_a[2], of_b; };

  struct ScaleProducer {
    const TensorMap& a;
    BatchIndex batch;
    u32 row;
    __device__ __forceinline__ ScaleProducer(const BlockScaled& scales, const BatchIndex& batch, u32 row)
        : a(scales.a), batch(only(batch, scales.a_batched)), row(row) {}
    template <bool BATCHED> __device__ __forceinline__ void issue(u32 to, u32 k_block, u32 full) {
      tma::load<BATCHED, false>(to, a, row, k_block, batch, full, 0);
    }
  };

  struct Scales {
    const float* of_b;
    i64 next;
    __device__ __forceinline__ Scales(const BlockScaled& scales, const BatchIndex& batch, u32 col, u32 first)
        : next(scales.b_strides.row) {
      of_b = scales.b + scales.b_strides.batch_offset(batch) + scales.b_strides.at(first, col / 128);
    }
    // The next k_block's scales: of the thread's two rows among the 64 from row `first` of the stage's scales at
    // `from`.
    __device__ __forceinline__ void fetch(Scale& scale, u32 from, u32 first) {
      const u32 own = from + (first + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4) * 4;
      scale = {{load_shared<float>(own), load_shared<float>(own + 32)}, *of_b};
      of_b += next;
    }
  };

  template <int N>
  static __device__ __forceinline__ void add(float (&acc)[N], const float (&part)[N], const Scale& scale) {
    const float rows[2] = {scale.of_a[0] * scale.of_b, scale.of_a[1] * scale.of_b};
#pragma unroll
    for (int i = 0; i < N; ++i) acc[i] = fma(part[i], rows[i / 2 % 2], acc[i]);
  }
};
