"""From the sources of kernels to code: what an entry reaches, NVRTC, the cubin cache, resources and SASS."""
