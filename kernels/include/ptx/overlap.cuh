// Programmatic dependent launch (PDL; CUDA programming guide, section 3.2.8.6): a kernel whose launch says `overlapped`
// may start while the previous kernel ends. Before `wait` it may not touch memory that another kernel writes. Both
// functions are no-ops in an ordinary launch, and before sm_90, which has no such launch.
#pragma once

namespace overlap {

// Waits until all previous kernels have finished and their writes are visible. Every thread must execute it.
__device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel start as soon as SMs have room for its CTAs.
__device__ __forceinline__ void release() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace overlap
