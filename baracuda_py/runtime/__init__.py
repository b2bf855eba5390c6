"""The layer below plans: devices, streams, compiling, caching and loading kernels, running steps."""
