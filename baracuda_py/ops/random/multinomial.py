"""multinomial: categories drawn by weight, by Gumbel noise and `topk`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...plan.fields import choice, flag, integer
from ...plan.registry import get_op
from ...runtime.gpu.device import spec_of
from ...tensor import Tensor, intake
from ...types import ElementKind, InvalidProblemError, OperandTypeError, UnsupportedError
from .._rows import FLOATS
from ..elementwise.cast import cast
from ..rearrange.moves import tile
from ..sort.topk import topk
from .arrays import drawing
from .continuous import fill_gumbel
from .generator import Generator

__all__ = ["multinomial"]

MODES = ("drop", "raise")
ELEMENTWISE = ("log", "add", "greater", "less", "logical_and", "where")


def multinomial(
    p: Any, num_samples: int, replacement: bool = False, *, mode: str = "drop", seed: int | None = None, offset: int = 0,
    subsequence: int = 0, generator: Generator | None = None, stream: Any = None, device: Any = None,
) -> Any:  # fmt: skip
    """Categories drawn with probabilities in proportion to weights, as torch.multinomial: int64 [..., num_samples].

    p: weights of n categories in each row, [..., n] of f16, bf16, f32 or f64 (NumPy, CuPy or PyTorch): finite, 0 or more, of any
    sum. replacement: whether a category may be drawn again. Without it the draws of a row differ, and each is made among the
    categories that are left (P. S. Efraimidis and P. G. Spirakis, "Weighted random sampling with a reservoir", 2006).
    A category has the score log(p) + g, g the noise of `fill_gumbel` in f32 (f64 of f64), and the largest scores are drawn, in
    their order. Noise i, in C order of [..., n], or with replacement of [..., num_samples, n], which is held in memory, is a
    function of position offset + i of the stream (seed, subsequence): the draws follow from these and p alone, not from the
    device or the grid, as far as scores differ by more than their rounding. A category of weight 0 is never drawn. seed, offset,
    subsequence, generator: as of `random_bits`; a generator counts the noise.
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
    log, add, greater, less, both, where = (get_op(name).function for name in ELEMENTWISE)
    kind = ElementKind.F64 if given.element is ElementKind.F64 else ElementKind.F32
    logits = log(cast(p, kind, **how), **how)[..., None, :]
    noise = tile(logits, (count if again else 1, 1), **how)
    place = seed, offset, subsequence, generator
    noise = drawing("multinomial", noise, place, device)(fill_gumbel, stream=stream)
    values, indices = topk(add(logits, noise, **how), 1 if again else count, **how)
    fits = both(greater(values, -math.inf, **how), less(values[..., :1], math.inf, **how), **how)
    return where(fits, indices, -1, **how).reshape(*given.shape[:-1], count)


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
