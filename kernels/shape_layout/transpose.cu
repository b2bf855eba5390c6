// dest[..., a, b] = source[..., a, b], with unit stride along b in the destination and along a in the source.
//
// transpose_blocks: a thread transposes an N x N block in registers (N = VECTOR / WIDTH), from N vectors along a to N
//                   along b. A CTA of CA x CB threads stages CA N by CB N elements in shared memory, swizzled by the
//                   block row (no bank conflicts in rows of 64 or 128 bytes), and stores whole rows of CB vectors.
// transpose_tile:   any alignment; 64 x 64 elements through padded shared memory.
// Grid:             neighbouring CTAs along b in transpose_blocks, so that destination rows fill in order, and along a
//                   in transpose_tile (each faster on an H200).
// Shared:           CA CB N VECTOR bytes (32 KB at 16 x 16 threads, 16-byte vectors, N = 8); 64 * 65 * WIDTH bytes.
// Bound:            DRAM bandwidth.
#include "core/flip.cuh"
#include "core/index.cuh"

constexpr int TILE = 64;
constexpr int TILE_THREADS = 256;

// The CTA's tile and its batch offsets; neighbouring CTAs are along b (ALONG_B) or along a.
template <int R, bool ALONG_B> struct Place {
  i64 a, b, offset[2];
  __device__ __forceinline__ Place(u32 tiles_a, u32 tiles_b, const Dims<u64, R, 2>& dims) : offset{0, 0} {
    u64 batch = blockIdx.x / (u64(tiles_a) * tiles_b);
    u32 rest = u32(blockIdx.x - batch * tiles_a * tiles_b);
    u32 fast = ALONG_B ? tiles_b : tiles_a, slow = rest / fast;
    a = ALONG_B ? slow : rest - slow * fast;
    b = ALONG_B ? rest - slow * fast : slow;
    if (R > 0) dims.locate(batch, offset);
  }
};

template <int WIDTH, int VECTOR, int CA, int CB, int R>
__global__ void __launch_bounds__(CA* CB) transpose_blocks(u8* dest, const u8* source, i64 extent_a, i64 extent_b,
    i64 dest_a, i64 source_b, u32 tiles_a, u32 tiles_b, Dims<u64, R, 2> dims) {
  using T = typename Word<WIDTH>::type;
  constexpr int N = VECTOR / WIDTH;
  using V = Vec<T, N>;
  __shared__ V staged[CA * N][CB];
  const Place<R, true> place(tiles_a, tiles_b, dims);
  const i64 a0 = place.a * (CA * N), b0 = place.b * (CB * N);
  {
    const int ca = threadIdx.x % CA, cb = threadIdx.x / CA;
    const i64 a = a0 + ca * N, b = b0 + cb * N;
    const u8* from = source + place.offset[1] + b * source_b + a * WIDTH;
    // 1. Load and transpose a block in registers
    V rows[N];
    if (a + N <= extent_a && b + N <= extent_b) {
#pragma unroll
      for (int i = 0; i < N; ++i) rows[i] = *reinterpret_cast<const V*>(from + i * source_b);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i)
#pragma unroll
        for (int j = 0; j < N; ++j)
          rows[i].at[j] = b + i < extent_b && a + j < extent_a
              ? *reinterpret_cast<const T*>(from + i * source_b + j * WIDTH)
              : T{};
    }
    flip(rows);
    // 2. Store to shared memory. 64-byte rows cover half the banks: every other thread stores its second row first, in
    // the other half
    const int swapped = N > 1 && CB * VECTOR == 64 ? cb % 2 : 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const V value = swapped ? rows[i ^ (N > 1)] : rows[i];
      staged[ca * N + (i ^ swapped)][cb ^ (ca % CB)] = value;
    }
  }
  __syncthreads();
  // 3. Store whole destination rows
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int at = threadIdx.x + k * (CA * CB), row = at / CB, chunk = at % CB;
    const i64 a = a0 + row, b = b0 + chunk * N;
    if (a >= extent_a) continue;
    const V value = staged[row][chunk ^ (row / N % CB)];
    u8* to = dest + place.offset[0] + a * dest_a + b * WIDTH;
    if (b + N <= extent_b) {
      *reinterpret_cast<V*>(to) = value;
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j)
        if (b + j < extent_b) *reinterpret_cast<T*>(to + j * WIDTH) = value.at[j];
    }
  }
}

template <int WIDTH, int R>
__global__ void __launch_bounds__(TILE_THREADS) transpose_tile(u8* dest, const u8* source, i64 extent_a, i64 extent_b,
    i64 dest_a, i64 source_b, u32 tiles_a, u32 tiles_b, Dims<u64, R, 2> dims) {
  using T = typename Word<WIDTH>::type;
  __shared__ T staged[TILE][TILE + 1];
  const Place<R, false> place(tiles_a, tiles_b, dims);
  const i64 a0 = place.a * TILE, b0 = place.b * TILE;
  const int fast = threadIdx.x % TILE, slow = threadIdx.x / TILE;
#pragma unroll
  for (int k = slow; k < TILE; k += TILE_THREADS / TILE)
    if (a0 + fast < extent_a && b0 + k < extent_b)
      staged[k][fast] = *reinterpret_cast<const T*>(
          source + place.offset[1] + (b0 + k) * source_b + (a0 + fast) * WIDTH);
  __syncthreads();
#pragma unroll
  for (int k = slow; k < TILE; k += TILE_THREADS / TILE)
    if (a0 + k < extent_a && b0 + fast < extent_b)
      *reinterpret_cast<T*>(dest + place.offset[0] + (a0 + k) * dest_a + (b0 + fast) * WIDTH) = staged[fast][k];
}
