// Operand tiles in shared memory for mma.sync: their swizzled layout, and how warps read fragments from it.
//
// A tile of MN x BK elements keeps its layout of global memory: K-major has one row of BK per mn, MN-major one row of
// MN per k. Chunk c (16 bytes) of row r is stored at c ^ swizzle(r), so that copies and fragment loads have no bank
// conflicts:
//   ldmatrix reads the same chunk of 8 rows            -> r % 8, or r / 2 % 4 if a row has only 4 chunks
//   otherwise lane (g, t) reads element (mn g, k t)    -> 2 (r % 4): 2 chunks of each of 4 rows (f64: per half-warp)
#pragma once
#include "ptx/mma.cuh"

template <class T, int MN_, int BK_, bool K_MAJOR_> struct Tile {
  using Element = T;
  static constexpr int MN = MN_, BK = BK_;
  static constexpr bool K_MAJOR = K_MAJOR_;
  static constexpr bool BY_MATRIX = sizeof(T) == 2 || (sizeof(T) == 4 && K_MAJOR);
  static constexpr int ROWS = K_MAJOR ? MN : BK, PITCH = (K_MAJOR ? BK : MN) * int(sizeof(T)), CHUNKS = PITCH / 16;
  static constexpr int BYTES = ROWS * PITCH;
  static_assert(
      CHUNKS == 4 ? BY_MATRIX && K_MAJOR : CHUNKS % 8 == 0, "swizzles are for rows of 64 bytes or of multiples of 128");

  static __device__ __forceinline__ int swizzle(int row) {
    return !BY_MATRIX ? row % 4 * 2 : CHUNKS == 4 ? row / 2 % 4 : row % 8;
  }
  // Byte offset in the tile of byte `within` of a row.
  static __device__ __forceinline__ int offset(int row, int within) {
    return row * PITCH + ((within / 16 ^ swizzle(row)) * 16) + within % 16;
  }
};

// Loads the fragments of a warp's mn range [first, first + EXTENT) of a tile, in blocks of 16. IS_A: register 2 p + h
// holds part p of half h, the order of mma's a; otherwise PARTS h + p, two b fragments. The swizzle XORs all chunks of
// a row with the same bits. So inside 128 bytes, the offset of another k step (K-major) or another group of mn is the
// first offset with a constant XORed; all other offsets are immediates.
template <class Tile, int EXTENT, bool IS_A> struct Reader {
  using T = typename Tile::Element;
  using Reg = typename Mma<T>::Reg;
  static constexpr int K = Mma<T>::K, PARTS = Mma<T>::PARTS, SIZE = sizeof(T), PITCH = Tile::PITCH;
  static constexpr bool K_MAJOR = Tile::K_MAJOR, BY_MATRIX = Tile::BY_MATRIX;
  // FLIP: bytes per k step (K-major), or per group of 8 elements (ldmatrix: 16); FLIPS of them in 128 bytes of a row.
  static constexpr int FLIP = K_MAJOR ? 32 : (BY_MATRIX ? 16 : 8) * SIZE, FLIPS = 128 / FLIP;
  static_assert((EXTENT * SIZE) % 128 == 0 || 128 % (EXTENT * SIZE) == 0, "a warp's rows do not straddle 128 bytes");

  u32 first_offset;

  static __device__ __forceinline__ constexpr int slot(int half, int part) {
    return IS_A ? 2 * part + half : PARTS * half + part;
  }

  __device__ __forceinline__ Reader(int first, int lane) {
    const int g = lane / 4, t = lane % 4;
    const int matrix = lane / 8, half = IS_A ? matrix % 2 : matrix / 2, part = IS_A ? matrix / 2 : matrix % 2;
    const int mn = first + (BY_MATRIX ? 8 * half + (K_MAJOR ? lane % 8 : 0) : g);
    const int k = BY_MATRIX ? (K_MAJOR ? 16 / SIZE : 8) * part + (K_MAJOR ? 0 : lane % 8) : t;
    first_offset = K_MAJOR ? Tile::offset(mn, k * SIZE) : Tile::offset(k, mn * SIZE);
  }

  __device__ __forceinline__ u32 at(int i) const { return (first_offset ^ i % FLIPS * FLIP) + i / FLIPS * 128; }

  // Loads block `block` of 16 mn at k step `step` of the tile at `tile`.
  __device__ __forceinline__ void load(Reg (&to)[2 * PARTS], u32 tile, int block, int step) const {
    if constexpr (BY_MATRIX && K_MAJOR) {
      load_matrices<false>(to, tile + at(step) + block * 16 * PITCH);
    } else if constexpr (BY_MATRIX) {
      load_matrices<true>(to, tile + at(block) + step * K * PITCH);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int group = 2 * block + half;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
          const int of_four = step * PARTS + part;
          const u32 from = tile + (K_MAJOR ? at(of_four) + group * 8 * PITCH : at(group) + of_four * 4 * PITCH);
          load_shared(to[slot(half, part)], from);
        }
      }
    }
  }
};

// A warp's WM x WN tile: accumulators, fragments, mma loop and epilogue.
template <class T, int WM, int WN> struct WarpTile {
  using Acc = typename Mma<T>::Acc;
  using Reg = typename Mma<T>::Reg;
  static constexpr int PARTS = Mma<T>::PARTS, A_BLOCKS = WM / 16, B_BLOCKS = WN / 16;

  struct Fragments { Reg a[A_BLOCKS][2 * PARTS], b[B_BLOCKS][2 * PARTS]; };

  Acc acc[A_BLOCKS][2 * B_BLOCKS][4] = {};

  template <class ReaderA, class ReaderB>
  static __device__ __forceinline__ void load(
      Fragments& f, const ReaderA& a, u32 tile_a, const ReaderB& b, u32 tile_b, int step) {
#pragma unroll
    for (int i = 0; i < A_BLOCKS; ++i) a.load(f.a[i], tile_a, i, step);
#pragma unroll
    for (int j = 0; j < B_BLOCKS; ++j) b.load(f.b[j], tile_b, j, step);
  }

  __device__ __forceinline__ void multiply(Fragments& f) {
    if constexpr (Same<T, float>::value) {
#pragma unroll
      for (int r = 0; r < 2 * PARTS; ++r) {
#pragma unroll
        for (int i = 0; i < A_BLOCKS; ++i) f.a[i][r] = round_tf32(f.a[i][r]);
#pragma unroll
        for (int j = 0; j < B_BLOCKS; ++j) f.b[j][r] = round_tf32(f.b[j][r]);
      }
    }
#pragma unroll
    for (int i = 0; i < A_BLOCKS; ++i)
#pragma unroll
      for (int j = 0; j < 2 * B_BLOCKS; ++j) {
        const int column = i % 2 ? 2 * B_BLOCKS - 1 - j : j;  // serpentine order reuses the last b
        Mma<T>::run(acc[i][column], f.a[i], f.b[column / 2] + column % 2 * PARTS);
      }
  }

  // Predicated epilogue store of the tile at (m, n) of the M x N result.
  template <class Epilogue>
  __device__ __forceinline__ void store(const Epilogue& epilogue, u32 m, u32 n, u32 M, u32 N, int lane) {
    m += lane / 4;
    n += lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2 * A_BLOCKS; ++i) {
      if (m + 8 * i >= M) break;
#pragma unroll
      for (int j = 0; j < 2 * B_BLOCKS; ++j) {
        if (n + 8 * j >= N) break;
        Acc pair[2] = {acc[i / 2][j][i % 2 * 2], acc[i / 2][j][i % 2 * 2 + 1]};
        epilogue.store(pair, m + 8 * i, n + 8 * j, n + 8 * j + 1 < N);
      }
    }
  }
};

// Tile swizzle: the CTA's matrix and tile. Groups of `group_m` tile rows are column-major inside, so that
// concurrent tiles share operands in L2.
template <int BM, int BN> struct Place {
  u32 m, n, matrix;
  __device__ __forceinline__ Place(u32 M, u32 N, u32 group_m) {
    const u32 rows = (M + BM - 1) / BM, columns = (N + BN - 1) / BN;
    matrix = blockIdx.x / (rows * columns);
    const u32 tile = blockIdx.x - matrix * rows * columns;
    const u32 first = tile / (group_m * columns) * group_m, height = min(group_m, rows - first),
              within = tile - first * columns;
    n = within / height * BN;
    m = (first + within % height) * BM;
  }
};
