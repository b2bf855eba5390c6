"""Rows of what training adds: losses over vocabularies, random numbers, dropout; beside torch and CuPy."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from .operands import Kit, itemsize
from .row import Calls, Row
from .row_families import SHORT, calls_of, row_name
from .target import BEST, Target

__all__ = ["TRAINING_ROWS"]

HIDDEN, VOCABULARY, TOKENS = 4096, 128256, (1024, 4096, 8192)
LOGITS = ((8192, 128256), (4096, 50257))
RANDOM = (1 << 28,)  # 1 GiB of f32
DROPPED = (16384, 8192)
P = 0.1
WITHIN = {
    "cross_entropy": Target(1.05),
    "cross_entropy_backward": Target(1.10),
    "fill_uniform": Target(1.08),
    "fill_normal": Target(1.25),
    "dropout": Target(1.10),
}


def _labels(kit: Kit, shape: tuple[int, int]) -> Any:
    rows, classes = shape
    labels = kit.xp.arange(rows, dtype="int64")
    labels *= 7919
    labels %= classes
    return labels


def _cross_entropy(shape: tuple[int, int]) -> Row:
    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        logits, labels = kit.normal(shape, "bfloat16"), _labels(kit, shape)
        made = {"out": kit.empty((), "float32"), "lse": kit.empty(shape[:1], "float32")}
        ours = bp.cross_entropy.bind(logits, labels, **made)
        return calls_of(
            kit, "cross_entropy", ours, lambda torch, *x: torch.nn.functional.cross_entropy(*x), (logits, labels)
        )

    read = prod(shape) * itemsize("bfloat16") + 8 * shape[0]
    return Row(
        "loss", row_name("cross_entropy", shape, "bfloat16"), "cross_entropy", shape, "bfloat16", read,
        4 * shape[0] + 4, make, WITHIN["cross_entropy"],
    )  # fmt: skip


def _ctc(steps: int, count: int, classes: int, labels: int) -> Row:
    """Losses of speech's size, none."""
    shape = (steps, count, classes)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x = kit.normal(shape, "float32")
        log_probs = x - kit.xp.log(kit.xp.exp(x).sum(-1, keepdims=True))
        targets = kit.xp.random.randint(1, classes, (count, labels), dtype="int64")
        lengths = kit.xp.full(count, steps, "int64"), kit.xp.full(count, labels, "int64")
        ours = bp.ctc_loss.bind(log_probs, targets, *lengths, reduction="none", out=kit.empty((count,), "float32"))

        def theirs(torch: Any, *given: Any) -> Any:
            return torch.ctc_loss(*given, 0, 0, False)

        return calls_of(kit, "ctc_loss", ours, theirs, (log_probs, targets, *lengths))

    read = prod(shape) * itemsize("float32") + 8 * count * (labels + 2)
    return Row(
        "loss", row_name("ctc_loss", shape, "float32", f"{labels} labels"), "ctc_loss", shape, "float32", read, 4 * count,
        make, Target(1.0, "paired", BEST),
    )  # fmt: skip


def _cross_entropy_backward(shape: tuple[int, int]) -> Row:
    """The gradient from the forward's log-sum-exp; torch's from the log-softmax that its forward stored."""
    op = "cross_entropy_backward"

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        logits, labels = kit.normal(shape, "bfloat16"), _labels(kit, shape)
        lse, grad, made = (
            kit.xp.full(shape[0], 12.0, "float32"),
            kit.xp.ones((), "float32"),
            kit.empty(shape, "bfloat16"),
        )
        ours = bp.cross_entropy_backward.bind(grad, logits, labels, lse, grad_logits=made)

        def theirs(torch: Any, logits: Any, labels: Any) -> Any:
            rows = labels.shape[0]
            each, total = (
                logits.new_full((), 1.0),
                torch.full((), float(rows), device=logits.device, dtype=logits.dtype),
            )
            nll = torch.ops.aten.nll_loss_backward(each, logits, labels, None, 1, -100, total)
            return torch.ops.aten._log_softmax_backward_data(nll, logits, 1, logits.dtype)

        return calls_of(kit, op, ours, theirs, (logits, labels))

    nbytes = prod(shape) * itemsize("bfloat16")
    return Row("loss", row_name(op, shape, "bfloat16"), op, shape, "bfloat16", nbytes, nbytes, make, WITHIN[op])


def _filled(op: str, dtype: str) -> Row:
    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x = kit.empty(RANDOM, dtype)
        ours = getattr(bp, op).bind(x, seed=1)
        method = {"fill_uniform": "uniform_", "fill_normal": "normal_"}[op]
        return calls_of(kit, op, ours, lambda torch, x: getattr(x, method)(), (x,))

    nbytes = prod(RANDOM) * itemsize(dtype)
    return Row("random", row_name(op, RANDOM, dtype), op, RANDOM, dtype, 0, nbytes, make, WITHIN[op])


def _dropout(op: str, dtype: str) -> Row:
    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, out = kit.normal(DROPPED, dtype), kit.empty(DROPPED, dtype)
        ours = getattr(bp, op).bind(x, p=P, seed=1, **{"out" if op == "dropout" else "grad_x": out})
        return calls_of(kit, op, ours, lambda torch, x: torch.nn.functional.dropout(x, P), (x,))

    nbytes = prod(DROPPED) * itemsize(dtype)
    return Row("random", row_name(op, DROPPED, dtype), op, DROPPED, dtype, nbytes, nbytes, make, WITHIN["dropout"])


def _linear(tokens: int, *, gradients: bool) -> Row:
    """The loss of a vocabulary's projection, and both gradients: three products instead of one."""
    op, shape = "linear_cross_entropy", (tokens, HIDDEN, VOCABULARY)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        hidden, weight = kit.normal((tokens, HIDDEN), "bfloat16"), kit.normal((VOCABULARY, HIDDEN), "bfloat16")
        labels, made = _labels(kit, (tokens, VOCABULARY)), {"out": kit.empty((), "float32")}
        if gradients:
            made["grad_hidden"] = kit.empty((tokens, HIDDEN), "bfloat16")
            made["grad_weight"] = kit.empty((VOCABULARY, HIDDEN), "float32")

        def theirs(torch: Any, hidden: Any, weight: Any, labels: Any) -> Any:
            hidden, weight = (x.detach().requires_grad_(gradients) for x in (hidden, weight))
            functional = torch.nn.functional
            loss = functional.cross_entropy(functional.linear(hidden, weight), labels)
            return torch.autograd.grad(loss, (hidden, weight)) if gradients else loss

        ours = bp.linear_cross_entropy.bind(hidden, weight, labels, **made)
        return calls_of(kit, op, ours, theirs, (hidden, weight, labels))

    products, parameters = 1 + 2 * gradients, HIDDEN * (tokens + VOCABULARY)
    name = row_name(op, shape, "bfloat16", "with gradients" if gradients else "")
    return Row(
        "loss", name, op, shape, "bfloat16", 2 * parameters, 4 * parameters * gradients, make,
        Target(1.0, "paired", BEST), flops=2 * products * prod(shape),
    )  # fmt: skip


def _rows() -> Iterator[Row]:
    for tokens in TOKENS:
        yield _linear(tokens, gradients=False)
        yield _linear(tokens, gradients=True)
    for shape in LOGITS:
        yield _cross_entropy(shape)
        yield _cross_entropy_backward(shape)
    yield _ctc(800, 32, 1024, 100)
    for op in ("fill_uniform", "fill_normal"):
        yield _filled(op, "float32")
    for op in ("dropout", "dropout_backward"):
        for dtype in SHORT:
            yield _dropout(op, dtype)


TRAINING_ROWS: tuple[Row, ...] = tuple(_rows())
