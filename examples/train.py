"""Trains a small GPT on the source of a Python module, forward, loss, backward and optimizer by this library's kernels.

    python examples/train.py                  # 200 steps on a GPU; 5 steps on the NumPy reference where torch has none

torch has the tape. On a GPU a whole step is one CUDA graph, captured by torch and replayed: no Python between two steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_layer import Block

import baracuda_py as bp
from baracuda_py.interop.torch.optim import AdamW

WARM_UP = 3  # steps before a capture


class GPT(nn.Module):
    """Characters and the ones that follow in, [batch, tokens]; the mean cross-entropy out, whose logits are never stored."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(vocabulary, width))
        self.blocks = nn.ModuleList(Block(width, heads, 4 * width) for _ in range(layers))
        self.norm = nn.Parameter(torch.ones(width))
        self.head = nn.Parameter(torch.randn(vocabulary, width) / width)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = bp.embedding(self.embedding, tokens)
        for block in self.blocks:
            x = block(x)
        hidden = bp.rms_norm(x, self.norm).flatten(0, 1)
        return bp.linear_cross_entropy(hidden, self.head, labels.flatten())


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """The replay of a step's graph. torch asks for a few steps on the same stream before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        step()
    return graph.replay


def train(
    steps: int,
    device: str,
    *,
    width: int,
    layers: int,
    batch: int,
    tokens: int,
    kind: Callable[..., nn.Module] = GPT,
    optimizer: Callable[..., Any] = AdamW,
    graph: bool = False,
) -> list[float]:
    """The loss of each step of a model of this kind; with `graph` all steps but the first few are replays."""
    torch.manual_seed(0)
    text = Path(argparse.__file__).read_text(encoding="utf-8")
    letters = sorted(set(text))
    data = torch.tensor([letters.index(c) for c in text], device=device)
    model = kind(len(letters), width, width // 32, layers).to(device)
    taking = optimizer(model.parameters(), lr=2e-3)
    window = torch.zeros((batch, tokens + 1), dtype=torch.int64, device=device)
    loss, losses = torch.zeros((), device=device), list[Tensor]()

    def step() -> None:
        """A step on `window`, whose loss goes to `loss`: both stay where they are."""
        taking.zero_grad()
        made = model(window[:, :-1], window[:, 1:])
        made.backward()
        taking.step()
        loss.copy_(made.detach())

    def draw() -> None:
        at = torch.randint(len(data) - tokens, (batch, 1), device=device) + torch.arange(tokens + 1, device=device)
        window.copy_(data[at])

    run = step
    with torch.cuda.stream(torch.cuda.Stream()) if graph else nullcontext():
        for number in range(steps):
            draw()
            if graph and number == WARM_UP:
                run = captured(step)
            run()
            losses.append(loss.clone())  # no synchronisation: the numbers are read at the end
        return torch.stack(losses).tolist()


def main(arguments: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    gpu = torch.cuda.is_available()
    parser.add_argument("--steps", type=int, default=200 if gpu else 5)
    parser.add_argument("--no-graph", action="store_true", help="call after call")
    given = parser.parse_args(arguments)
    small, real = (
        {"width": 64, "layers": 1, "batch": 4, "tokens": 16},
        {"width": 256, "layers": 4, "batch": 32, "tokens": 128},
    )
    started = time.perf_counter()
    with nullcontext() if gpu else bp.device("cpu"):
        size = real if gpu else small
        losses = train(given.steps, "cuda" if gpu else "cpu", **size, graph=gpu and not given.no_graph)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} in {given.steps} steps, {time.perf_counter() - started:.1f} s")
    return losses


if __name__ == "__main__":
    main()
