"""JAX sees every op as a primitive ``baracuda_<op>``, with shapes, gradients, vmap, and lowerings for the CPU and for CUDA.

Functions such as ``bp.matmul`` go there by themselves when an operand is a tracer: under jax.jit, jax.grad, jax.vmap and
jax.shard_map. Other calls never come here. Importing this package registers the custom call, which a program needs that loads an
exported computation before it traces a function.
"""

from __future__ import annotations

from .answers import call_op
from .ways import Way

__all__ = ["Way", "call_op"]
