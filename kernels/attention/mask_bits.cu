// Packs a bool mask into bits (mask_bits.cuh), where some query of a tile of BM may see a key: for k_blocks of N keys,
// or for transposed tiles of 64 queries by 16 keys.
//
// Tiling:    words of [batch, heads, rows or tiles, k_blocks or tiles], of which an axis is 1 where the mask is
//            broadcast. k_blocks: four words per eight lanes. Tiles: 32 words per warp.
// Threads:   a lane reads 16 adjacent keys of one row (k_blocks) or of two (tiles); lanes exchange bits by shuffles.
// Bound:     DRAM: a byte per key is read, a bit written.
#include "attention/mask.cuh"

using namespace attention;

constexpr int EACH = 16, THREADS = 256;

// Indices of one of the words, or groups of them, that are asked for: [batch, heads, rows, blocks].
struct Place4 {
  u32 batch, head, row, block;
  __device__ __forceinline__ Place4(u64 index, u32 heads, u32 rows, u32 blocks)
      : batch(index / blocks / rows / heads), head(index / blocks / rows % heads), row(index / blocks % rows),
        block(index % blocks) {}
};

// Whether some of rows [row, row_end) see some of keys [key, key_end).
template <class P> __device__ __forceinline__ bool seen_by(const P& p, int row, int row_end, int key, int key_end) {
  const auto head = [&] {
    struct { int rows, keys; i64 offset; } it = {int(p.rows), int(p.keys), 0};
    it.offset = p.offset_given ? p.offset : i64(it.keys) - it.rows;
    return it;
  }();
  const Band band = Band::make(p, head);
  return key < band.of(min(row_end, head.rows) - 1).end && key_end > band.of(max(row, 0)).first;
}

// 16 entries of a row from `key` on, as bytes that are 0 or 1; keys behind the last are 0.
template <class P>
__device__ __forceinline__ Vec<u32, 4> entries_of(const P& p, u32 batch, u32 head, int row, int key) {
  const i64 step = p.mask_strides[3];
  const u8* const from = static_cast<const u8*>(p.mask) + batch * p.mask_strides[0] + head * p.mask_strides[1] +
      row * p.mask_strides[2] + key * step;
  const int keys = p.keys, skipped = int(reinterpret_cast<u64>(from) % 4);
  Vec<u32, 4> bytes = {};
  if (step == 1 && reinterpret_cast<u64>(from) % 16 == 0 && key + EACH <= keys) {
    bytes = *reinterpret_cast<const Vec<u32, 4>*>(from);
  } else if (step == 1 && key >= skipped && key + EACH + 4 <= keys) {
    const u32* const words = reinterpret_cast<const u32*>(from - skipped);
    u32 word = words[0];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const u32 next = words[k + 1];
      bytes.at[k] = __funnelshift_r(word, next, skipped * 8);
      word = next;
    }
  } else {
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      if (key + i < keys) bytes.at[i / 4] |= u32(from[i * step]) << i % 4 * 8;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k)  // any number that is not 0 shows a score
    bytes.at[k] = (((bytes.at[k] & 0x7f7f7f7fu) + 0x7f7f7f7fu) | bytes.at[k]) >> 7 & 0x01010101u;
  return bytes;
}

// Four bits at 0, 8, 16 and 24, made adjacent.
__device__ __forceinline__ u32 adjacent(u32 bits) { return (bits & 0x01010101u) * 0x10204080u >> 28; }

template <class T, class Out, int BM, int N>
__global__ void __launch_bounds__(THREADS)
    attention_mask_bits(const __grid_constant__ Problem<T, Out, float> p, u16* bits, u32 heads, u32 rows, u32 blocks,
        u64 all) {
  constexpr int LANES = 8;  // of a k_block
  const u64 index = (u64(blockIdx.x) * THREADS + threadIdx.x) / LANES;
  const u32 lane = threadIdx.x % LANES;
  const Place4 at(index, heads, rows, blocks);
  const int row = at.row, first = at.block * N, key = first + int(lane) * EACH;
  const bool shared = rows == 1;  // by all rows
  const bool seen = index < all &&
      seen_by(p, shared ? 0 : row - BM + 1, shared ? int(p.rows) : row + BM, first, first + N);
  // 1. bits 4 c + 2 h + e of keys 8 h + 2 c + e
  u32 mine = 0;
  if (seen && int(lane) * EACH < N && key < int(p.keys)) {
    const auto bytes = entries_of(p, at.batch, at.head, row, key);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const u32 pairs = bytes.at[k] | bytes.at[k] >> 7;  // bits 0 and 1 of c = 2 (k % 2), 16 and 17 of the next
      mine |= ((pairs & 3) | (pairs >> 12 & 0x30)) << (k % 2 * 8 + k / 2 * 2);
    }
  }
  // 2. words 0 and 1 for the even lane of two, 2 and 3 for the odd one; then one of them, of 64 keys
  const bool odd = lane & 1, upper = lane & 2;
  u32 other = __shfl_xor_sync(~0u, mine, 1);
  const u32 low = odd ? other >> 8 : mine & 0xff, high = odd ? mine >> 8 : other & 0xff;  // keys of either lane
  mine = (low & 0xf) | (high & 0xf) << 4 | (low >> 4 & 0xf) << 8 | (high >> 4 & 0xf) << 12;
  other = __shfl_xor_sync(~0u, mine, 2);
  mine = upper ? (other >> 8 & 0xff) | (mine & 0xff00) : (mine & 0xff) | (other & 0xff) << 8;
  if (seen) bits[index * LANES + (2 * odd + upper) * 2 + lane / 4] = u16(mine);
}

template <class T, int BM>
__global__ void __launch_bounds__(THREADS)
    attention_mask_tiles(const __grid_constant__ Problem<T, T, float> p, u32* bits, u32 heads, u32 rows, u32 blocks,
        u64 all) {
  const u64 index = (u64(blockIdx.x) * THREADS + threadIdx.x) / 32;
  const u32 lane = threadIdx.x % 32;
  const Place4 at(index, heads, rows, blocks);
  const int row = at.row * 64, key = at.block * EACH;
  const bool shared = rows == 1 && p.mask_strides[2] == 0;  // by all rows
  if (index >= all ||
      !seen_by(p, shared ? 0 : row / BM * BM, shared ? int(p.rows) : row / BM * BM + max(BM, 64), key / BM * BM,
          key / BM * BM + BM))
    return;
  // 1. a bit per key of two rows
  u32 of_rows = 0;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const auto bytes = entries_of(p, at.batch, at.head, min(row + 2 * int(lane) + e, int(p.rows) - 1), key);
#pragma unroll
    for (int k = 0; k < 4; ++k) of_rows |= adjacent(bytes.at[k]) << (16 * e + 4 * k);
  }
  // 2. bits e and r of queries 8 n + 2 (lane % 4) + e, keys lane / 4 + 8 r
  u32 shown = 0;
#pragma unroll
  for (int n = 0; n < 8; ++n)
    shown |= adjacent(__shfl_sync(~0u, of_rows, 4 * n + lane % 4) >> lane / 4) << 4 * n;
  bits[index * 32 + lane] = shown;
}
