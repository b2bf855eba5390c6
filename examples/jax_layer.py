"""A decoder block in JAX whose products, norms and attention are kernels of this library, under jit and grad.

    python examples/jax_layer.py            # on a GPU if JAX has one, else on the NumPy reference

Under jax.jit every call is a primitive: it has shapes, gradients and a batching rule, and becomes a custom call.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp

import baracuda_py as bp

HEADS = 2


def block(weights: dict[str, Any], x: Any) -> Any:
    """x + attention(norm(x)), then x + mlp(norm(x)), for x [batch, tokens, width]. Weights are [in, out]."""
    batch, tokens, width = x.shape
    y = bp.matmul(bp.rms_norm(x, weights["attention_norm"]), weights["qkv"]).reshape(batch, tokens, 3, HEADS, -1)
    q, k, v = bp.rope(y[:, :, 0], layout="BSHD"), bp.rope(y[:, :, 1], layout="BSHD"), y[:, :, 2]
    y = bp.attention(q, k, v, causal=True, layout="BSHD").reshape(batch, tokens, width)
    x = bp.matmul(y, weights["out"], residual=x)  # the sum is a part of the product's kernel
    y = bp.matmul(bp.rms_norm(x, weights["mlp_norm"]), weights["up"], activation="gelu")
    return bp.matmul(y, weights["down"], residual=x)


def reference(weights: dict[str, Any], x: Any) -> Any:
    """The same by JAX alone."""
    batch, tokens, width = x.shape

    def norm(x: Any, weight: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight

    def rotated(x: Any) -> Any:
        angle = jnp.arange(tokens)[:, None, None] * 10000.0 ** (-jnp.arange(0, x.shape[-1], 2) / x.shape[-1])
        low, high = jnp.split(x, 2, -1)
        return jnp.concatenate(
            [low * jnp.cos(angle) - high * jnp.sin(angle), high * jnp.cos(angle) + low * jnp.sin(angle)], -1
        )

    y = (norm(x, weights["attention_norm"]) @ weights["qkv"]).reshape(batch, tokens, 3, HEADS, -1)
    y = jax.nn.dot_product_attention(rotated(y[:, :, 0]), rotated(y[:, :, 1]), y[:, :, 2], is_causal=True)
    x = x + y.reshape(batch, tokens, width) @ weights["out"]
    return x + jax.nn.gelu(norm(x, weights["mlp_norm"]) @ weights["up"], approximate=False) @ weights["down"]


def main() -> None:
    width, hidden = 64, 128
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, hidden), "down": (hidden, width)}
    weights: dict[str, Any] = {name: jnp.ones(width) for name in ("attention_norm", "mlp_norm")}
    for number, (name, shape) in enumerate(shapes.items()):
        weights[name] = jax.random.normal(jax.random.key(number), shape) / shape[0] ** 0.5
    x = jax.random.normal(jax.random.key(9), (2, 10, width))

    def loss(of: Any, weights: dict[str, Any]) -> Any:
        return jnp.mean(of(weights, x) ** 2)

    gpu = jax.default_backend() == "gpu"
    with nullcontext() if gpu else bp.device("cpu"):
        value, gradients = jax.jit(jax.value_and_grad(lambda w: loss(block, w)))(weights)
        jax.block_until_ready(gradients)
    wanted, wanted_gradients = jax.jit(jax.value_and_grad(lambda w: loss(reference, w)))(weights)
    for name in weights:
        assert jnp.allclose(gradients[name], wanted_gradients[name], rtol=2e-3, atol=1e-4), name
    print(f"loss {value:.5f}, by JAX alone {wanted:.5f}; gradients agree, on {jax.default_backend()}")


if __name__ == "__main__":
    main()
