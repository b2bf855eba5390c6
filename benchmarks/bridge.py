"""What calls cost through torch's custom ops and jax.jit, a training step beside torch, a captured decode step beside calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean, median
from time import perf_counter_ns
from typing import Any

from .harness import OURS
from .host import CUPY, HostRow, Measured, calls
from .operands import Call, Kit
from .stats import alternated, paired_ratio
from .target import Target

__all__ = ["BRIDGE_ROWS"]

EXAMPLES = Path(__file__).parents[1] / "examples"
FUNCTION = "bp.add"
EAGER = "the same calls, not captured"
TORCH = "torch"
STEPS = 200  # of training
TOKENS, PROMPT = 40, 16  # of decoding


def _example(name: str) -> Any:
    """A module of examples/, which are scripts that import one another."""
    from importlib import import_module

    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return import_module(name)


def _pair(kit: Kit) -> tuple[Any, Any]:
    return kit.normal((16, 128), "float32"), kit.normal((16, 128), "float32")


def _custom_op(kit: Kit) -> dict[str, Call]:
    """A custom op, called as a compiled graph calls it."""
    import baracuda_py as bp
    from baracuda_py.interop.torch.library import overload

    a, b = _pair(kit)
    x, y = kit.as_torch(a), kit.as_torch(b)
    op = overload("add")
    return {OURS: lambda: op(x, y), FUNCTION: lambda: bp.add(x, y), CUPY: lambda: bp.add(a, b), TORCH: lambda: x + y}


def _compiled(kit: Kit) -> dict[str, Call]:
    """torch.compile of one call, beside torch.compile of torch's own."""
    import baracuda_py as bp

    torch: Any = kit.torch
    x, y = (kit.as_torch(a) for a in _pair(kit))
    ours, theirs = (torch.compile(f, fullgraph=True) for f in (lambda x, y: bp.add(x, y), lambda x, y: x + y))
    with torch.no_grad():
        ours(x, y), theirs(x, y)
    return {OURS: lambda: ours(x, y), "torch.compile": lambda: theirs(x, y)}


def _jitted(kit: Kit) -> dict[str, Call]:
    import jax

    import baracuda_py as bp

    x, y = (jax.dlpack.from_dlpack(a) for a in _pair(kit))
    ours, theirs = jax.jit(lambda x, y: bp.add(x, y)), jax.jit(lambda x, y: x + y)
    return {OURS: lambda: ours(x, y), "jax.jit": lambda: theirs(x, y)}


def _interleaved(kit: Kit, runs: dict[str, Callable[[], float]], times: int) -> Measured:
    """Microseconds of each in turns; the order alternates."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for index in range(times):
        for name in alternated(list(runs), index):
            kit.synchronize()
            found[name].append(runs[name]())
    ours = found.pop(OURS)
    peers = {n: {"us": median(t), "mean_us": mean(t), "ratio": paired_ratio(ours, t)} for n, t in found.items()}
    return {"us": median(ours), "mean_us": mean(ours), "peers": peers}


def _train(kit: Kit, batches: int) -> Measured:
    """examples/train.py, a step of 200, beside the same model of torch's own operators and optimizer, call after call; both
    losses of the last step."""
    torch: Any = kit.torch
    example, layer = _example("train"), _example("torch_layer")
    F = torch.nn.functional

    class Twin(example.GPT):  # type: ignore[name-defined, misc]
        def forward(self, tokens: Any, labels: Any) -> Any:
            x = F.embedding(tokens, self.embedding)
            for block in self.blocks:
                x = layer.reference(block, x)
            logits = F.linear(F.rms_norm(x, x.shape[-1:], self.norm, 1e-5), self.head)
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    losses: dict[str, list[float]] = {}

    def steps(name: str, **given: Any) -> float:
        began = perf_counter_ns()
        losses[name] = example.train(STEPS, "cuda", width=256, layers=4, batch=32, tokens=128, **given)
        return (perf_counter_ns() - began) / STEPS / 1e3

    ways: dict[str, Callable[[], float]] = {
        OURS: lambda: steps(OURS, graph=True),
        EAGER: lambda: steps(EAGER),
        TORCH: lambda: steps(TORCH, kind=Twin, optimizer=partial(torch.optim.AdamW, fused=True)),
    }
    for way in ways.values():
        way()
    found = _interleaved(kit, ways, min(3, batches))
    largest = max(abs(a - b) for a, b in zip(losses[OURS], losses[TORCH]))
    return {**found, "loss": losses[OURS][-1], "torch_loss": losses[TORCH][-1], "largest_difference": largest}


def _decode(size: Callable[[Any], Any], weights: str) -> Callable[[Kit, int], Measured]:
    """A decode step of examples/llama.py at batch 1, sampling included, in a graph and by calls."""

    def measure(kit: Kit, batches: int) -> Measured:
        example = _example("llama")
        model = example.Llama(kit.xp, size(example), weights, 1, PROMPT + TOKENS)
        prompt = kit.xp.zeros((1, PROMPT), "int64")

        def step(graph: bool) -> float:
            return float(example.generate(kit.xp, model, prompt, TOKENS, graph=graph)[1]) * 1e6

        return _interleaved(kit, {OURS: lambda: step(True), EAGER: lambda: step(False)}, min(5, batches))

    return measure


BRIDGE_ROWS: tuple[HostRow, ...] = (
    HostRow("torch custom op, add", calls(_custom_op), (Target(4.0, "excess", FUNCTION),), "bridge"),
    HostRow("torch.compile, add", calls(_compiled), (Target(4.0, "excess", "torch.compile"),), "bridge"),
    HostRow("jax.jit, add", calls(_jitted), (Target(1.2, against="jax.jit"),), "bridge"),
    HostRow("training step, GPT of 4 layers, f32", _train, (Target(1.0, against=TORCH),), "bridge"),
    HostRow(
        "decode step, 16 layers of 2048, f16, captured",
        _decode(lambda m: m.Size(16, 2048, 32, 8, 64, 8192, 128256), "f16"),
        (Target(1.5, "paired", EAGER),),
        "bridge",
    ),
    HostRow(
        "decode step, 32 layers of 4096, int4, captured",
        _decode(lambda m: m.SIZES["8b"], "int4"),
        (Target(1.5, "paired", EAGER),),
        "bridge",
    ),
)
