"""A decoder block in PyTorch whose products, norms and attention are kernels of this library.

    python examples/torch_layer.py            # on a GPU if torch has one, else on the NumPy reference

Functions take and return tensors, record gradients, and are custom ops under torch.compile(fullgraph=True).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

import baracuda_py as bp


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), for x [batch, tokens, width]. Weights are [in, out]."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = (nn.Parameter(torch.ones(width)) for _ in range(2))
        shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, hidden), "down": (hidden, width)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape) / shape[0] ** 0.5))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        y = bp.matmul(bp.rms_norm(x, self.attention_norm), self.qkv).view(batch, tokens, 3, self.heads, -1)
        q, k, v = bp.rope(y[:, :, 0], layout="BSHD"), bp.rope(y[:, :, 1], layout="BSHD"), y[:, :, 2]
        y = bp.attention(q, k, v, causal=True, layout="BSHD").reshape(batch, tokens, width)
        x = bp.matmul(y, self.out, residual=x)  # the sum is a part of the product's kernel
        y = bp.matmul(bp.rms_norm(x, self.mlp_norm), self.up, activation="gelu")
        return bp.matmul(y, self.down, residual=x)


def reference(block: Block, x: Tensor) -> Tensor:
    """The same by torch alone."""
    batch, tokens, width = x.shape
    y = (nn.functional.rms_norm(x, (width,), block.attention_norm, 1e-5) @ block.qkv).view(
        batch, tokens, 3, block.heads, -1
    )
    frequencies = 10000.0 ** (-torch.arange(0, y.shape[-1], 2, device=x.device) / y.shape[-1])
    angle = (torch.arange(tokens, device=x.device)[:, None] * frequencies)[:, None]

    def rotated(x: Tensor) -> Tensor:
        low, high = x.chunk(2, -1)
        return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], -1)

    q, k, v = (z.transpose(1, 2) for z in (rotated(y[:, :, 0]), rotated(y[:, :, 1]), y[:, :, 2]))
    y = (
        nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        .transpose(1, 2)
        .reshape(batch, tokens, width)
    )
    x = x + y @ block.out
    y = nn.functional.gelu(nn.functional.rms_norm(x, (width,), block.mlp_norm, 1e-5) @ block.up)
    return x + y @ block.down


def main() -> None:
    torch.manual_seed(0)
    gpu = torch.cuda.is_available()
    on: AbstractContextManager[Any] = nullcontext() if gpu else bp.device("cpu")
    block = Block(width=64, heads=2, hidden=128).to("cuda" if gpu else "cpu")
    x = torch.randn(2, 10, 64, device=block.out.device)
    with on:
        y = block(x)
        y.square().mean().backward()
        ours = [p.grad.clone() for p in block.parameters()]
        block.zero_grad()
        wanted = reference(block, x)
        wanted.square().mean().backward()
    torch.testing.assert_close(y, wanted, rtol=1e-3, atol=1e-4)
    for gradient, parameter in zip(ours, block.parameters()):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-4)
    print("result and gradients agree with torch's:", tuple(y.shape), "on", y.device)


if __name__ == "__main__":
    main()
