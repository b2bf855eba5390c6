"""The real kernels without a GPU: a plan's steps run on the host from the PTX that NVRTC emits, translated to NumPy."""
