"""pad: further elements around an array, constant or continued from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...plan.descriptor import Slot, described
from ...plan.fields import integers
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import ElementKind, InvalidProblemError, OperandTypeError
from .._function import SignatureRules, function_of
from .._numbers import element_bytes, number, one_or_more
from .._rows import FLOATS
from . import oracle, samples
from ._axes import Axis, padded
from ._gather import Gather
from ._pad_sums import PadSums, summed_widely
from ._problem import BYTES, Rearranged

__all__ = ["PadDescriptor", "PadPlan", "pad", "pad_backward"]

# NumPy's names of the modes, and torch's.
MODES = {
    "constant": "constant", "edge": "edge", "reflect": "reflect", "symmetric": "symmetric", "wrap": "wrap",
    "replicate": "edge", "circular": "wrap",
}  # fmt: skip


def _widths(value: Any, what: str) -> tuple[int, ...]:
    """Widths as NumPy takes them, flat: one, a pair, or a pair per axis."""
    several = isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim > 0)
    if several and len(value) and isinstance(value[0], (Sequence, np.ndarray)):
        pairs = [integers(pair, what) for pair in value]
        if any(len(pair) != 2 for pair in pairs):
            raise InvalidProblemError(f"{what}={value} has an axis without two widths", "give (before, after) per axis")
        return tuple(width for pair in pairs for width in pair)
    return one_or_more(value, what)


@described(
    Slot("out", "out", takes=BYTES, shape="out_shape", element="element", strided=False), Slot("x", takes=BYTES)
)  # fmt: skip
class PadDescriptor(Rearranged):
    """x of `shape`, with `pad_width` further elements: one width for all sides, a pair for all axes, or a pair per axis, flat.
    The gradient's op, under the name `pad_backward`, cuts as many, and adds what they hold to the elements that they continue."""

    shape: tuple[int, ...]
    element: ElementKind
    pad_width: Any  # a tuple, of one int or several
    mode: str = "constant"
    constant_values: Any = 0
    name: str = "pad"

    def __post_init__(self) -> None:
        self._names_op(("pad", "pad_backward"), "name")
        super().__post_init__()
        self._member(tuple(MODES), "mode")
        self._each(("pad_width",), _widths)
        self._each(("constant_values",), number)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Before and after each axis."""
        width, rank = self.pad_width, len(self.shape)
        if len(width) <= 2:
            width = (width[0], width[-1]) * rank if width else ()
        if len(width) != 2 * rank:
            raise InvalidProblemError(
                f"{self.op}: pad_width={self.pad_width} has {len(width)} widths, and x of shape {self.shape} takes {2 * rank}",
                "give one width, a pair (before, after), or a pair per axis",
            )
        sign = -1 if self.name == "pad_backward" else 1
        return tuple((sign * a, sign * b) for a, b in zip(width[::2], width[1::2]))

    @property
    def continued(self) -> str:
        """How the source is continued, by NumPy's name; "" where the further elements are constant."""
        mode = MODES[self.mode]
        return "" if mode == "constant" else mode

    @property
    def sums(self) -> bool:
        return self.name == "pad_backward" and bool(self.continued)

    @property
    def out_shape(self) -> tuple[int, ...]:
        pairs = self.pairs
        for axis, (n, (before, after)) in enumerate(zip(self.shape, pairs)):
            if n + before + after < 0:
                raise InvalidProblemError(
                    f"{self.op}: axis {axis} of x, of {n} elements, has fewer than {-before - after} to cut",
                    "cut fewer",
                )
            if self.continued:
                self._check_continued(axis, n, before, after)
        return tuple(n + before + after for n, (before, after) in zip(self.shape, pairs))

    def _check_continued(self, axis: int, n: int, before: int, after: int) -> None:
        backward = self.name == "pad_backward"
        if (max(before, after) > 0) if backward else (min(before, after) < 0):
            width = (-before, -after) if backward else (before, after)
            raise InvalidProblemError(
                f"{self.op}: pad_width {width} of axis {axis} is negative", 'mode="constant" alone cuts'
            )
        if before + after and not (n + before + after if backward else n):
            nothing = "is all padding" if backward else "has no element to continue"
            raise InvalidProblemError(
                f"{self.op}: axis {axis} of x of shape {self.shape} {nothing}", 'pass mode="constant"'
            )

    def rules(self) -> tuple[Axis, ...]:
        mode = MODES[self.mode]
        return tuple(padded(n, before, after, mode) for n, (before, after) in zip(self.shape, self.pairs))

    @property
    def constant(self) -> bytes:
        return element_bytes(self.op, "constant_values", self.constant_values, self.element)

    def check(self) -> None:
        self.out_shape  # noqa: B018  # the widths
        if self.sums and self.element not in FLOATS:
            known = ", ".join(map(str, FLOATS))
            raise OperandTypeError(
                f'{self.op}: the gradient of mode="{self.mode}" is a sum, of {known}, got {self.element}',
                "cast x to f32",
            )
        if not self.continued:
            self.constant  # noqa: B018  # the number
        elif self.constant_values not in (0, "-0.0"):
            raise InvalidProblemError(
                f'{self.op}: constant_values has no meaning with mode="{self.mode}"', "leave it out"
            )


class PadPlan(Plan[PadDescriptor]):
    """Further elements around an array: operands `x` and `out`."""

    descriptor = PadDescriptor
    candidates = (Gather(), PadSums())
    measures = oracle.PAD_MEASURES
    reference = oracle.pad
    reference_guarantee = staticmethod(summed_widely)
    probes = (
        {"shape": (5, 33), "element": "f32", "pad_width": (3,)},
        {"shape": (5, 32), "element": "u8", "pad_width": (0, 0, 4, 5), "mode": "reflect"},
    )


@function_of(PadPlan, rules=SignatureRules(reads={"pad_width": _widths, "constant_values": number}), name="pad")
def pad(x: Any, /, pad_width: int | Sequence[int], mode: str = "constant", constant_values: int | float = 0) -> Any:
    """`x` with further elements before and after each axis, as numpy.pad.

    x: any array of a byte-wide kind, any strides. pad_width: an int, a pair (before, after) for every axis, or one pair per
    axis; with mode "constant" negative widths cut, as in torch. mode: ``"constant"``, ``"edge"`` (torch: ``"replicate"``),
    ``"reflect"`` (without the edge), ``"symmetric"`` (with it), ``"wrap"`` (``"circular"``); widths beyond x's extent go on
    likewise. constant_values: one real number, converted to x's kind. out: a C-ordered array of x's kind. Raises
    InvalidProblemError for widths that do not suit x's axes, and where there is nothing to continue.
    """


@function_of(PadPlan, rules=SignatureRules(reads={"pad_width": _widths}), name="pad_backward")
def pad_backward(x: Any, /, pad_width: int | Sequence[int], mode: str = "constant") -> Any:
    """The gradient of `pad`: of each element, the sum of the gradient over the places that hold it.

    x: the gradient of the result of `pad`; pad_width and mode as there. With mode "constant" an element is at one place, and the
    gradient is ``pad(x, -pad_width)``, of any byte-wide kind. With the other modes x holds f16, bf16, f32 or f64, and the sums
    are computed in f32 (f64 for f64) and rounded once, in a fixed order. out: a C-ordered array of x's kind. Raises
    InvalidProblemError for widths that do not suit x's axes.
    """


register(
    Op("pad", PadPlan, pad, samples.pad, gradient=Gradient("pad_backward", (), {"x": "out"}, grad="x"), fixed={"name": "pad"},
       peers={"cupy": "pad", "torch": "pad"})
)  # fmt: skip
register(Op("pad_backward", PadPlan, pad_backward, samples.cut, fixed={"name": "pad_backward"}))
