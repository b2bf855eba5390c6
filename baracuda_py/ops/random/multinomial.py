"""multinomial: categories drawn by weight; one by one by sums of weights, or without replacement by Gumbel noise and `topk`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...plan.fields import choice, flag, integer
from ...plan.registry import composed, get_op
from ...runtime.gpu.device import spec_of
from ...runtime.untraced import untraced
from ...tensor import Tensor, intake
from ...tensor.dispatch import breaks_graph
from ...types import ElementKind, InvalidProblemError, OperandTypeError, UnsupportedError
from .._rows import FLOATS
from ..elementwise.cast import cast
from ..rearrange.moves import tile
from ..scan.cumsum import cumsum
from ..sort.searchsorted import searchsorted
from ..sort.topk import topk
from .arrays import drawing
from .continuous import fill_gumbel, fill_uniform
from .generator import Generator

__all__ = ["multinomial"]

MODES = ("drop", "raise")
DIGITS = 53  # of f64, in which sums of weights are whole numbers


@composed("choice", "categorical")
@untraced
def multinomial(
    p: Any, num_samples: int, replacement: bool = False, *, mode: str = "drop", seed: int | None = None, offset: int = 0,
    subsequence: int = 0, generator: Generator | None = None, stream: Any = None, device: Any = None,
) -> Any:  # fmt: skip
    """Categories drawn with probabilities in proportion to weights, as torch.multinomial: int64 [..., num_samples].

    p: weights of n categories in each row, [..., n] of f16, bf16, f32 or f64 (NumPy, CuPy or PyTorch): finite, 0 or more, of any
    sum. replacement: whether a category may be drawn again. Without it the draws of a row differ, and each is made among the
    categories that are left (P. S. Efraimidis and P. G. Spirakis, "Weighted random sampling with a reservoir", 2006).
    With replacement: weights over the greatest of their row become whole numbers of at most 2**53 / n, rounded up, whose sums
    are exact in f64. Draw i, in C order of the result, is the category whose sum first exceeds u times the whole sum, u the
    number of `fill_uniform` in f64 at position offset + i of the stream (seed, subsequence). Besides p and the result, memory
    holds a few numbers of 8 bytes for each weight and for each draw.
    Without it a category has the score log(p) + g, g the noise of `fill_gumbel` in f32 (f64 of f64), and the largest scores are
    drawn, in their order. Noise i, in C order of p, is a function of position offset + i.
    The draws follow from p and the positions alone, not from the device or the grid; without replacement as far as scores differ
    by more than their rounding. A category of weight 0 is never drawn. seed, offset, subsequence, generator: as of `random_bits`;
    a generator counts the draws, or the noise.
    mode: what becomes of a draw that is none. ``"drop"``: it is -1: every draw of a row that has a negative weight, NaN, or inf,
    or zeros alone, and without replacement those beyond the weights that are not 0. ``"raise"``: InvalidProblemError, before
    anything is drawn; on ``device="cpu"`` and ``"ptx"`` alone, because a call does not wait for a GPU.
    Raises InvalidProblemError for rows of no category, and for a num_samples below 1 or, without replacement, above n.
    """
    p = p.detach() if hasattr(p, "detach") else p
    given, count = intake(p, what="multinomial: p"), integer(num_samples, "multinomial: num_samples")
    device = generator.device if device is None and isinstance(generator, Generator) else device
    again = flag(replacement, "multinomial: replacement")
    _check(given, count, again, choice(MODES)(mode, "multinomial: mode"), device)
    how: dict[str, Any] = {"stream": stream, "device": device}
    place = seed, offset, subsequence, generator
    if again:
        return _again(p, count, place, how)
    kind = ElementKind.F64 if given.element is ElementKind.F64 else ElementKind.F32
    return _once(cast(p, kind, **how), count, place, how)


breaks_graph(multinomial, "multinomial calls several kernels of baracuda_py: call it outside of the compiled function")


def _functions(*names: str) -> tuple[Any, ...]:
    return tuple(get_op(name).function for name in names)


def _again(p: Any, count: int, place: Any, how: dict[str, Any]) -> Any:
    """Draws with replacement: -1 in rows whose least weight is negative, or whose greatest is 0 or not finite."""
    divide, multiply, ceil, most, least = _functions("divide", "multiply", "ceil", "max", "min")
    greater, at_least, less, both, where = _functions("greater", "greater_equal", "less", "logical_and", "where")
    weights = cast(p, ElementKind.F64, **how)
    top, bottom = (reduce(weights, axis=-1, keepdims=True, **how) for reduce in (most, least))
    fits = both(greater(top, 0.0, **how), less(top, math.inf, **how), **how)
    fits = both(fits, at_least(bottom, 0.0, **how), **how)
    whole = 2.0 ** (DIGITS - (p.shape[-1] - 1).bit_length())
    sums = cumsum(ceil(multiply(divide(weights, top, **how), whole, **how), **how), -1, **how)
    total = sums[..., -1:]
    drawn = drawing("multinomial", tile(total, (count,), **how), place, how["device"])(
        fill_uniform, stream=how["stream"]
    )
    found = searchsorted(sums, multiply(drawn, total, **how), right=True, **how)
    return where(fits, found, -1, **how)


def _once(weights: Any, count: int, place: Any, how: dict[str, Any]) -> Any:
    """Draws without replacement: -1 where the score says that there is no category, or that the row has none."""
    log, add, greater, less, both, where = _functions("log", "add", "greater", "less", "logical_and", "where")
    logits = log(weights, **how)
    noise = drawing("multinomial", tile(logits, (1,), **how), place, how["device"])(fill_gumbel, stream=how["stream"])
    values, indices = topk(add(logits, noise, **how), count, **how)
    fits = both(greater(values, -math.inf, **how), less(values[..., :1], math.inf, **how), **how)
    return where(fits, indices, -1, **how)


def _check(p: Tensor, count: int, again: bool, mode: str, device: Any) -> None:
    """Raises for what cannot be drawn from; with mode "raise" for values too."""
    if p.element not in FLOATS:
        raise OperandTypeError(f"multinomial: p must hold f16, bf16, f32 or f64, got {p.element}", "cast it")
    if not p.shape or not p.shape[-1]:
        raise InvalidProblemError(
            f"multinomial: p of shape {p.shape} has no categories", "pass weights of shape [..., n]"
        )
    if count < 1 or not (again or count <= p.shape[-1]):
        most = "" if again else f" to {p.shape[-1]}, the categories of a row, or replacement=True"
        raise InvalidProblemError(f"multinomial: num_samples={count}", f"give 1{most or ' or more'}")
    if mode != "raise":
        return
    if not spec_of(device).host_memory:
        raise UnsupportedError(
            "multinomial: mode='raise': a call does not wait for the GPU, and raises nothing of what it finds there",
            "pass mode='drop', which gives -1 for a draw that is none",
        )
    weights = p.array().astype(np.float64)
    wrong = ~((weights >= 0) & (weights < np.inf))
    if wrong.any():
        at = tuple(map(int, np.argwhere(wrong)[0]))
        raise InvalidProblemError(
            f"multinomial: p[{', '.join(map(str, at))}] = {weights[at]}", "give finite weights of 0 or more"
        )
    needed, have = 1 if again else count, np.atleast_1d(np.count_nonzero(weights, axis=-1))
    if (have < needed).any():
        row = tuple(map(int, np.argwhere(have < needed)[0]))
        raise InvalidProblemError(
            f"multinomial: row {list(row)} of p has {have[row]} weights above 0, expected {needed} or more",
            "draw fewer, or with replacement" if needed > 1 else "give a weight above 0",
        )
