"""GPUs through CuPy: the driver, devices, streams and captures."""
