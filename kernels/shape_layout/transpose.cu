// Copies whose fastest axis differs between the two sides: dest[..., a, b] = source[..., a, b] with unit stride along b in
// the destination and along a in the source.
//
// transpose_blocks: a thread transposes an N x N block in registers (N = VECTOR / WIDTH), reading N vectors along a and
// writing N vectors along b. A warp spans 8 blocks along a (128-byte reads at VECTOR 16) by 4 along b; WARPS_A of a CTA's 8
// warps lie along a, the others along b. No shared memory; N vectors a thread in flight.
// transpose_tile: any alignment; 64 x 64 elements through padded shared memory, 64 * 65 * WIDTH bytes.
// Bound of both: memory bandwidth.
#include "index.cuh"

constexpr int THREADS = 256;
constexpr int TILE = 64;

template <int BYTES> struct Word;
template <> struct Word<1> { using type = u8; };
template <> struct Word<2> { using type = u16; };
template <> struct Word<4> { using type = u32; };
template <> struct Word<8> { using type = u64; };
template <> struct Word<16> { using type = uint4; };

// In-register transpose of N rows of N elements, each row one vector.
template <class T, int N> __device__ __forceinline__ void flip(Vec<T, N> (&rows)[N]) {
  Vec<T, N> turned[N];
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j) turned[i].at[j] = rows[j].at[i];
#pragma unroll
  for (int i = 0; i < N; ++i) rows[i] = turned[i];
}

// 16-bit blocks pairwise with PRMT, so that the compiler never unpacks to single halves.
template <int N> __device__ __forceinline__ void flip16(u32 (&r)[N][N / 2]) {
  u32 t[N][N / 2];
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N / 2; ++j)
      t[i][j] = __byte_perm(r[2 * j][i / 2], r[2 * j + 1][i / 2], i % 2 ? 0x7632 : 0x5410);
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N / 2; ++j) r[i][j] = t[i][j];
}

template <int WIDTH, int VECTOR, int WARPS_A, int R>
__global__ void __launch_bounds__(THREADS)
transpose_blocks(u8* dest, const u8* source, i64 extent_a, i64 extent_b, i64 dest_a, i64 source_b, u32 tiles_a, u32 tiles_b,
                 Dims<u64, R, 2> dims) {
  using T = typename Word<WIDTH>::type;
  constexpr int N = VECTOR / WIDTH;
  using V = Vec<T, N>;
  u64 tile = blockIdx.x;
  u64 batch = tile / (u64(tiles_a) * tiles_b);
  u32 rest = u32(tile - batch * tiles_a * tiles_b);
  u32 tile_b = rest / tiles_a, tile_a = rest - tile_b * tiles_a;
  u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  i64 a = (i64(tile_a) * (8 * WARPS_A) + warp % WARPS_A * 8 + lane % 8) * N;
  i64 b = (i64(tile_b) * (32 / WARPS_A) + warp / WARPS_A * 4 + lane / 8) * N;
  if (a >= extent_a || b >= extent_b) return;
  i64 offset[2] = {0, 0};
  if (R > 0) dims.locate(batch, offset);
  const u8* from = source + offset[1] + b * source_b + a * WIDTH;
  u8* to = dest + offset[0] + a * dest_a + b * WIDTH;
  if (a + N <= extent_a && b + N <= extent_b) {
    if constexpr (WIDTH == 2 && N > 1) {
      u32 r[N][N / 2];
#pragma unroll
      for (int i = 0; i < N; ++i) *reinterpret_cast<Vec<u32, N / 2>*>(r[i]) = *reinterpret_cast<const Vec<u32, N / 2>*>(from + i * source_b);
      flip16(r);
#pragma unroll
      for (int i = 0; i < N; ++i) *reinterpret_cast<Vec<u32, N / 2>*>(to + i * dest_a) = *reinterpret_cast<Vec<u32, N / 2>*>(r[i]);
    } else {
      V rows[N];
#pragma unroll
      for (int i = 0; i < N; ++i) rows[i] = *reinterpret_cast<const V*>(from + i * source_b);
      flip(rows);
#pragma unroll
      for (int i = 0; i < N; ++i) *reinterpret_cast<V*>(to + i * dest_a) = rows[i];
    }
  } else {
    for (int i = 0; i < N && b + i < extent_b; ++i)
      for (int j = 0; j < N && a + j < extent_a; ++j)
        *reinterpret_cast<T*>(to + j * dest_a + i * WIDTH) = *reinterpret_cast<const T*>(from + i * source_b + j * WIDTH);
  }
}

template <int WIDTH, int R>
__global__ void __launch_bounds__(THREADS)
transpose_tile(u8* dest, const u8* source, i64 extent_a, i64 extent_b, i64 dest_a, i64 source_b, u32 tiles_a, u32 tiles_b,
               Dims<u64, R, 2> dims) {
  using T = typename Word<WIDTH>::type;
  __shared__ alignas(16) u8 storage[TILE * (TILE + 1) * WIDTH];
  T* tile_data = reinterpret_cast<T*>(storage);
  u64 tile = blockIdx.x;
  u64 batch = tile / (u64(tiles_a) * tiles_b);
  u32 rest = u32(tile - batch * tiles_a * tiles_b);
  u32 tile_b = rest / tiles_a, tile_a = rest - tile_b * tiles_a;
  i64 a0 = i64(tile_a) * TILE, b0 = i64(tile_b) * TILE;
  i64 offset[2] = {0, 0};
  if (R > 0) dims.locate(batch, offset);
  int fast = threadIdx.x % TILE, slow = threadIdx.x / TILE;
#pragma unroll
  for (int k = 0; k < TILE; k += THREADS / TILE) {
    i64 a = a0 + fast, b = b0 + slow + k;
    if (a < extent_a && b < extent_b)
      tile_data[(slow + k) * (TILE + 1) + fast] = *reinterpret_cast<const T*>(source + offset[1] + b * source_b + a * WIDTH);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < TILE; k += THREADS / TILE) {
    i64 a = a0 + slow + k, b = b0 + fast;
    if (a < extent_a && b < extent_b)
      *reinterpret_cast<T*>(dest + offset[0] + a * dest_a + b * WIDTH) = tile_data[fast * (TILE + 1) + slow + k];
  }
}
