// position = counter; counter += count. One thread.
//
// A generator's counter is in device memory, so that each replay of a captured graph takes the positions that follow.
#include "core/dtype.cuh"

__global__ void __launch_bounds__(1) take_position(u64* position, u64* counter, u64 count) {
  const u64 begin = *counter;
  *position = begin;
  *counter = begin + count;
}
