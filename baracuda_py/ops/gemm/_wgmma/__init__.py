"""Hopper's variants of matmul: `wgmma`, and `staged`, which is wgmma over copies of operands that TMA cannot take."""
