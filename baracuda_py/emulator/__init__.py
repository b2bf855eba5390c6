"""Executes kernels without a GPU: the PTX that NVRTC emits is translated into NumPy and run on the host, one lane an element of
an array, with checked memory, barriers and scheduling. It executes PTX, not what ptxas makes of it: registers, timing and the
hardware's own roundings (approximations, tensor cores) are the GPU's alone. Its modules are imported when they are used."""
