"""The elements that a step updates, as vectors in a wide type, and what a rule makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....numerics.rounding import wide, wide_dtype
from ....types import ElementKind
from ...random.oracle import bits_at

__all__ = ["LEAD", "Array", "Parts", "Step", "places_of"]

Array: TypeAlias = np.ndarray[Any, Any]
LEAD = 2  # columns of a table ahead of the arrays' places


class Step(NamedTuple):
    """What a rule makes: the parameter and its states, what the kernel may lose of each, in unit roundoffs of what it computes
    in, what the parameter loses by a bias correction, in those of f64, and where nothing is said of the parameter."""

    param: Array
    states: Mapping[str, Array]
    lost: Mapping[str, Array]
    correction: Any
    beyond: Array


def places_of(desc: Any, given: Mapping[str, Array]) -> dict[str, Any]:
    """Of every array the elements that count, as an index: all, or those that a table's rows name."""
    at: dict[str, Any] = dict.fromkeys(desc.arrays, slice(None))
    if "table" in given:
        rows = given["table"].astype(np.int64)
        for column, name in enumerate(desc.arrays):
            size = desc.layout(name).element.bits // 8
            parts = [np.arange(n) + begin // size for n, begin in zip(rows[:, 0], rows[:, LEAD + column])]
            at[name] = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return at


class Parts:
    def __init__(self, desc: Any, given: Mapping[str, Array]) -> None:
        self.desc, self.given = desc, given
        computed = ElementKind.F64 if desc.element is ElementKind.F64 else ElementKind.F32
        self.unit: Any = computed.unit_roundoff
        self.tiny: Any = wide_dtype(computed)(computed.smallest_normal)
        self.at = places_of(desc, given)

    @property
    def skipped(self) -> bool:
        return "found_inf" in self.given and float(self.given["found_inf"]) != 0

    @property
    def step(self) -> Any:
        """The number of this step."""
        return wide_dtype(self.desc.element)(np.float32(self.given["step"]) + np.float32(1))

    @property
    def lr(self) -> Any:
        return wide_dtype(self.desc.element)(self.given.get("learning_rate", self.desc.lr))

    def hyper(self) -> tuple[Any, ...]:
        """The run-time values behind lr."""
        return tuple(self.number(name) for name in self.desc.rule.hyper)

    def number(self, name: str) -> Any:
        """A run-time value."""
        return wide_dtype(self.desc.element)(getattr(self.desc, name))

    def of(self, name: str) -> Array:
        return wide(np.asarray(self.given[name]).reshape(-1)[self.at[name]], self.desc.element)

    @property
    def param(self) -> Array:
        return self.of("master" if "master" in self.given else "param")

    def gradient(self, decay: Any = 0) -> tuple[Array, Array]:
        """The gradient with `decay` times the parameter, and its size, of which it errs by 4 unit roundoffs."""
        scale = wide_dtype(self.desc.element)(self.given.get("grad_scale", 1))
        g = self.of("grad") * ((-1 if self.desc.maximize else 1) / scale)
        return (g + decay * self.param, np.abs(g) + decay * np.abs(self.param)) if decay else (g, np.abs(g))

    @property
    def spans(self) -> list[slice]:
        """The elements of each array, where the table's rows count those of an array."""
        if "table" not in self.given:
            return [slice(None)]
        rows = self.given["table"].astype(np.int64)
        ends = [0, *np.cumsum(rows[:, 0]).tolist()]
        return [slice(ends[i], ends[i + n]) for i, n in enumerate(rows[:, -1].tolist()) if n > 0]

    def of_arrays(self, of: Callable[[Array], Any], x: Array) -> Array:
        """For each element what `of` makes of its whole array."""
        made = np.zeros_like(x)
        for span in self.spans:
            made[span] = of(x[span])
        return made

    def large(self, *sizes: Array) -> Array:
        """Whether one of these is near the end of what is computed in."""
        return np.asarray(
            np.any([np.broadcast_to(size > 2.0**-10 / self.tiny, sizes[0].shape) for size in sizes], axis=0)
        )

    def placed(self, name: str, values: Any, other: Any = None) -> Array:
        """`values` where the step updates an array, elsewhere what it holds, or `other`."""
        whole = wide(np.asarray(self.given[name]).reshape(-1), self.desc.element) if other is None else other
        whole = np.array(whole)
        whole[self.at[name]] = values
        return whole.reshape(np.shape(self.given[name]))

    def rounded(self, x: Array) -> Array:
        """By chance to one of the two bf16 numbers next to each in f32."""
        count = np.arange(x.size, dtype=np.uint64)
        if "table" in self.given:
            rows = self.given["table"].astype(np.int64)
            held = [np.arange(n) + first for n, first in rows[:, :LEAD]]
            count = np.concatenate(held).astype(np.uint64) if held else count
        near = x.astype(np.float32)
        bits = near.view(np.uint32) + (bits_at(int(self.desc.seed), count, int(self.step), 32)[:, 0] & 0xFFFF).astype(
            np.uint32
        )
        return np.where(np.isfinite(near), (bits & 0xFFFF0000).view(np.float32), near).astype(x.dtype)

    def stored(self, states: Mapping[str, Array]) -> Mapping[str, Array]:
        """States as the operands hold them."""
        return states

    def results(self, made: Step) -> tuple[Array, ...]:
        """Every written operand, in order."""
        param = self.rounded(made.param) if self.desc.stochastic else made.param
        if "master" in self.given:  # of which the parameter is a copy
            param = made.param.astype(np.float32)
        found = {**self.stored(made.states), "param": param, "master": made.param}
        written = [operand.name for operand in self.desc.operands if operand.written]
        whole = {n: self.given[n] if self.skipped else self.placed(n, found[n]) for n in written if n != "step"}
        step = np.float32(self.given["step"]) + np.float32(not self.skipped)
        return tuple(np.asarray(step if n == "step" else whole[n]) for n in written)
