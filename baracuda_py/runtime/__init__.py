"""Below every plan: compiling, caching and loading kernels, devices, streams, and running steps."""
