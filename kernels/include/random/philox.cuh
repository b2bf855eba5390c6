// Philox4x32-10, a counter-based generator: 128 random bits from a counter of 128 bits and a key of 64, by ten rounds
// of two 32 x 32 -> 64 bit products.
// J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once
#include "core/dtype.cuh"

namespace philox {

constexpr int ROUNDS = 10;
constexpr u32 MULTIPLIER_0 = 0xD2511F53u, MULTIPLIER_1 = 0xCD9E8D57u;
constexpr u32 WEYL_0 = 0x9E3779B9u, WEYL_1 = 0xBB67AE85u;  // the key's steps from one round to the next

// The 128 bits of one counter.
struct PhiloxBlock {
  u32 word[4];

  __device__ __forceinline__ u64 pair(int i) const { return u64(word[2 * i + 1]) << 32 | word[2 * i]; }
};

// One instruction. Of a product in C++, ptxas (12.9, sm_90a) adds a zero to the upper half: 20 more per block.
__device__ __forceinline__ void wide_product(u32 a, u32 b, u32& low, u32& high) {
  asm("{\n\t.reg .b64 product;\n\tmul.wide.u32 product, %2, %3;\n\tmov.b64 {%0, %1}, product;\n\t}"
      : "=r"(low), "=r"(high)
      : "r"(a), "r"(b));
}

// `low` and `high` are the halves of the counter.
__device__ __forceinline__ PhiloxBlock philox_block(u64 key, u64 low, u64 high) {
  u32 a = u32(low), b = u32(low >> 32), c = u32(high), d = u32(high >> 32);
  u32 key_0 = u32(key), key_1 = u32(key >> 32);
#pragma unroll
  for (int round = 0; round < ROUNDS; ++round) {
    u32 first_low, first_high, second_low, second_high;
    wide_product(MULTIPLIER_0, a, first_low, first_high);
    wide_product(MULTIPLIER_1, c, second_low, second_high);
    a = second_high ^ b ^ key_0;
    b = second_low;
    c = first_high ^ d ^ key_1;
    d = first_low;
    key_0 += WEYL_0;
    key_1 += WEYL_1;
  }
  return PhiloxBlock{{a, b, c, d}};
}

// The block of `PER_BLOCK` elements at positions PER_BLOCK * index and on. Elements of 32 random bits take the
// counter (index, subsequence), which is cuRAND's; those of 64 and 128 bits other counters, which the highest two
// bits of `subsequence`, zero in a subsequence, distinguish: no two of these streams share a block.
template <int PER_BLOCK> __device__ __forceinline__ PhiloxBlock block_at(u64 seed, u64 index, u64 subsequence) {
  static_assert(PER_BLOCK == 4 || PER_BLOCK == 2 || PER_BLOCK == 1, "elements of 32, 64 or 128 bits");
  constexpr u64 WIDTH = PER_BLOCK == 4 ? 0 : PER_BLOCK == 2 ? 1 : 2;
  return philox_block(seed, index, subsequence | WIDTH << 62);
}

}  // namespace philox
