// Programmatic dependent launch (CUDA programming guide, section 3.2.8.6): a kernel whose launch says `overlapped` may begin
// while the kernel before it ends. It sets itself up, then waits; until then it may touch no memory that others write.
// Launched in the plain way, both are no-ops; before sm_90 there is no such launch.
#pragma once

namespace overlap {

// Until every kernel before this one has finished and what it wrote is visible. Every thread must pass.
__device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel begin as soon as SMs have room for it.
__device__ __forceinline__ void release() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace overlap
