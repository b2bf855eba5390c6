"""Adafactor, whose second moments are products of means along rows and columns.

What is lost, in unit roundoffs u of what is computed in, as in `moments`, with s the loss of a sum in f64 of `depth` additions:

- A square takes the gradient's error of 4 u twice. Squares are of one sign, so their mean errs by the share 8 + s.
- A running mean old + w (mean - old) takes that w times, 6 u of what w multiplies, w's
  own error among them, and a rounding.
- A factor R / max(mean(R), eps1) errs by what R and the divisor do, over the least that this may be, and by its roundings.
- A product errs by each factor's loss times the other, and the root of the moment by half of the moment's
  share, its reciprocal by 4 u (CUDA C++ Programming Guide, "Mathematical Functions").
- The root mean square of an update errs by that of its losses: the triangle inequality. A maximum errs by what its terms do.

Nothing is said of the parameter where a mean of squares is near the end of what is computed in, in which the kernel stores it, or
where the mean that divides, eps1 at least, may lose half of itself, as it may where eps1 is below the smallest normal number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....numerics.rounding import wide_dtype
from ....types import ElementKind
from .parts import Array, Parts

__all__ = ["ADAFACTOR_MEASURES", "adafactor_update"]

GREATEST, SMALLEST = 1e150, 1e-140  # whose squares are normal numbers of f64


class Made(NamedTuple):
    """A written array, what the kernel may lose of it, and where nothing is said."""

    value: Array
    lost: Array
    beyond: Any


def _mean(x: Array, axis: int) -> Array:
    return np.asarray(x.mean(axis=axis, keepdims=True))


def _rms(x: Array) -> Any:
    return np.sqrt(np.mean(x * x))


class _Stepped:
    """A step, whose arrays are matrices [batch, rows, columns]."""

    def __init__(self, desc: Any, given: dict[str, Array]) -> None:
        self.desc, self.parts = desc, Parts(desc, given)
        unit = ElementKind.F64.unit_roundoff / self.parts.unit
        self.of_sums, self.in_f64 = (desc.depth + 8) * unit, 4 * unit
        self.eps1 = wide_dtype(desc.element)(desc.scalars({})["eps1"])

    def advanced(self, name: str, mean: Array) -> tuple[Array, Array]:
        old, weight = self.parts.of(name).reshape(mean.shape), self.parts.step ** self.parts.number("beta2_decay")
        size = weight * (np.abs(mean) + np.abs(old))
        lost = weight * np.abs(mean) * (8 + self.of_sums) + 6 * size + (1 + self.in_f64) * (np.abs(old) + size)
        made = old + weight * (mean - old) if weight < 0.5 else mean - (mean - old) * (1 - weight)  # as torch.lerp
        return made, lost + 2 * self.parts.tiny

    def moments(self, squares: Array, states: dict[str, tuple[Array, Array]]) -> tuple[Array, Array, bool]:
        """The second moment, what it loses, and whether nothing is said of it; the states are put in."""
        tiny = self.parts.tiny
        if not self.desc.factored:
            moment = states["variance"] = self.advanced("variance", squares)
            return moment[0], moment[1] + np.abs(moment[0]) + tiny, self.overflows(moment[0])
        row, row_lost = states["row_var"] = self.advanced("row_var", _mean(squares, -1))
        col, col_lost = states["col_var"] = self.advanced("col_var", _mean(squares, -2))
        over = np.maximum(_mean(row, -2), self.eps1)
        over_lost = _mean(row_lost, -2) + (1 + self.of_sums) * over
        factor = row / over
        lost = (
            (row_lost + np.abs(factor) * over_lost) / (over - self.parts.unit * over_lost) + 2 * np.abs(factor) + tiny
        )
        lost_both = np.abs(factor) * col_lost + (np.abs(col) + self.parts.unit * col_lost) * lost
        undecided = self.overflows(row, col, factor * col) or bool(np.any(2 * self.parts.unit * over_lost > over))
        return factor * col, lost_both + 3 * np.abs(factor * col) + (2 + np.abs(factor)) * tiny, undecided

    def overflows(self, *sizes: Array) -> bool:
        """Whether one of these is near the end of what is computed in."""
        return any(bool(np.any(self.parts.large(np.abs(size)))) for size in sizes)

    def results(self) -> dict[str, Made]:
        parts, desc, unit = self.parts, self.desc, self.parts.unit
        tiny, shape = parts.tiny, desc.extents
        g, size = (x.reshape(shape) for x in parts.gradient())
        p, states = parts.param.reshape(shape), dict[str, tuple[Array, Array]]()
        beyond = bool(np.any(_extreme(size)) or np.any(_extreme(np.abs(p))) or np.any(parts.large(size)))

        # The update of every element, and its root mean square.
        floor = self.eps1**2
        moment, lost, undecided = self.moments(g * g, states)
        moment, lost = np.maximum(moment, floor), lost + 2 * floor + tiny
        u = g / np.sqrt(moment)
        u_lost = np.abs(u) * (10 + 0.5 * lost / (moment - unit * lost)) + 2 * tiny
        beyond |= undecided or bool(np.any(2 * unit * lost > moment) or np.any(parts.large(u_lost)))
        over = _rms(u) / parts.number("d")
        over_lost = _rms(u_lost) / parts.number("d") + (2 + self.of_sums) * over

        # The step size, and the parameter.
        over, relative = (x if x > least else least for x, least in ((over, 1), (_rms(p), parts.number("eps2"))))
        step_size = relative * min(parts.lr, 1 / np.sqrt(parts.step)) / over
        moved = step_size * u
        share = 6 + self.of_sums + self.in_f64 + over_lost / (over - unit * over_lost)
        made = p * (1 - parts.lr * parts.number("weight_decay")) - moved
        lost = 1.01 * step_size * u_lost + np.abs(moved) * share + 3 * (np.abs(p) + np.abs(moved))
        beyond |= bool(np.any(parts.large(moved)) or 2 * unit * over_lost > over)
        found = {name: Made(*state, beyond and desc.element is ElementKind.F64) for name, state in states.items()}
        found["param"] = found["master"] = Made(made, lost + (4 + np.abs(u)) * tiny, beyond)
        return found


def _extreme(x: Array) -> Array:
    """Numbers whose squares f64 does not hold."""
    return np.asarray((x > GREATEST) & np.isfinite(x) | (x > 0) & (x < SMALLEST))


def _results(desc: Any, given: dict[str, Array]) -> dict[str, Made]:
    """What a step writes; nothing where it is skipped, or there are no elements."""
    with np.errstate(all="ignore"):
        stepped = _Stepped(desc, given)
        return {} if stepped.parts.skipped or not desc.ctas else stepped.results()


def adafactor_update(desc: Any, **given: Array) -> tuple[Array, ...]:
    """Every written operand, in order."""
    found, skipped = _results(desc, given), "found_inf" in given and float(given["found_inf"]) != 0
    values = {name: made.value.reshape(given[name].shape) for name, made in found.items() if name in given}
    if "master" in values:  # of which the parameter is a copy
        values["param"] = values["param"].astype(np.float32)
    values["step"] = np.asarray(np.float32(given["step"]) + np.float32(not skipped))
    return tuple(values.get(o.name, given[o.name]) for o in desc.operands if o.written)


def _lost(desc: Any, output: str, **given: Array) -> Array:
    found, like = _results(desc, given), given[output]
    return found[output].lost.reshape(like.shape) if found else np.zeros(like.shape)


def _beyond(desc: Any, output: str, **given: Array) -> Array:
    found = _results(desc, given)
    return np.full(given[output].shape, bool(found) and found[output].beyond)


ADAFACTOR_MEASURES = {"lost": _lost, "beyond": _beyond}
