"""Matrix products of f16, bf16, f32, f64 and fp8, of any strides; bias, activation, residual and scales in the kernel."""
