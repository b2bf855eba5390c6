"""Trains a small GPT on the source of a Python module, with gradients through this library's kernels.

    python examples/train.py                  # 200 steps on a GPU; 5 steps on the NumPy reference where torch has none

Every product, norm and softmax, forward and backward, is a kernel of this library; torch has the tape and the optimiser.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_layer import Block

import baracuda_py as bp


class GPT(nn.Module):
    """Characters in, scores of the next one out: [batch, tokens] to [batch, tokens, vocabulary]."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, 4 * width) for _ in range(layers))
        self.norm = nn.Parameter(torch.ones(width))
        self.head = nn.Parameter(torch.randn(width, vocabulary) / width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return bp.matmul(bp.rms_norm(x, self.norm), self.head)


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy: the mean of -log softmax(logits)[label]."""
    return -bp.log_softmax(logits).gather(-1, labels[..., None]).mean()


def train(
    steps: int,
    device: str,
    *,
    width: int,
    layers: int,
    batch: int,
    tokens: int,
    kind: Callable[..., nn.Module] = GPT,
    judge: Callable[[Tensor, Tensor], Tensor] = loss_of,
) -> list[float]:
    """The loss of each step of a model of this kind."""
    torch.manual_seed(0)
    text = Path(argparse.__file__).read_text(encoding="utf-8")
    letters = sorted(set(text))
    data = torch.tensor([letters.index(c) for c in text], device=device)
    model = kind(len(letters), width, width // 32, layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses: list[Tensor] = []
    for _ in range(steps):
        at = torch.randint(len(data) - tokens, (batch, 1), device=device) + torch.arange(tokens + 1, device=device)
        window = data[at]
        loss = judge(model(window[:, :-1]), window[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())  # no synchronisation: the numbers are read at the end
    return torch.stack(losses).tolist()


def main(arguments: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    gpu = torch.cuda.is_available()
    parser.add_argument("--steps", type=int, default=200 if gpu else 5)
    given = parser.parse_args(arguments)
    small, real = (
        {"width": 64, "layers": 1, "batch": 4, "tokens": 16},
        {"width": 256, "layers": 4, "batch": 32, "tokens": 128},
    )
    started = time.perf_counter()
    with nullcontext() if gpu else bp.device("cpu"):
        losses = train(given.steps, "cuda" if gpu else "cpu", **(real if gpu else small))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} in {given.steps} steps, {time.perf_counter() - started:.1f} s")
    return losses


if __name__ == "__main__":
    main()
