"""join: up to 16 arrays one after another, along an axis or a new one; concatenate and stack take any number."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ...plan.descriptor import Descriptor, Slot, described
from ...plan.fields import flag
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, composed, register
from ...types import ElementKind, InvalidProblemError, PlanPreference
from .._function import function_of
from . import oracle, samples
from ._join import MOST, JoinCopies, JoinRows
from ._problem import BYTES

__all__ = ["JoinDescriptor", "JoinPlan", "concatenate", "join", "stack"]

OPERANDS = tuple(f"x{i}" for i in range(MOST))


@described(
    Slot("out", "out", takes=BYTES, shape="out_shape", element="element", strided=False),
    Slot("x0", takes=BYTES, element="element"),
    *(Slot(name, takes=BYTES, element="element", optional=True) for name in OPERANDS[1:]),
)
class JoinDescriptor(Descriptor):
    """Arrays that agree on every axis but `axis`, or, `stacked`, on all, which are put along a new one."""

    x0_shape: tuple[int, ...]
    element: ElementKind
    axis: int = 0
    stacked: bool = False

    name = "join"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("stacked",), flag)

    @property
    def along(self) -> int:
        """The axis of the result, from the front."""
        rank = len(self.x0_shape) + self.stacked
        if not -rank <= self.axis < rank:
            known = f"give one of {-rank} to {rank - 1}" if rank else "stack arrays without axes"
            raise InvalidProblemError(f"join: axis={self.axis} is out of range: the result has {rank} axes", known)
        return self.axis % rank

    def pieces(self) -> tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]:
        """Each array's name, and its shape and strides with the result's axes."""
        found = []
        for operand in self.operands:
            if operand.role != "in":
                continue
            x, at = self.layout(operand.name), self.along
            new = (1,) if self.stacked else ()
            found.append((operand.name, x.shape[:at] + new + x.shape[at:], x.strides[:at] + new + x.strides[at:]))
        return tuple(found)

    @property
    def out_shape(self) -> tuple[int, ...]:
        at, shapes = self.along, [self.shape_of(o.name) or () for o in self.operands if o.role == "in"]
        first, count = shapes[0], len(shapes)
        if self.stacked:
            return (*first[:at], count, *first[at:])
        return (*first[:at], sum(s[at] if at < len(s) else 0 for s in shapes), *first[at + 1 :])

    def neutral(self) -> dict[str, Any]:
        return {"axis": self.along}

    def check(self) -> None:
        at, first = self.along, self.x0_shape
        given = [operand.name for operand in self.operands if operand.role == "in"]
        if given[-1] != OPERANDS[len(given) - 1]:
            missing = next(name for name in OPERANDS if name not in given)
            raise InvalidProblemError(f"join: {given[-1]} is given without {missing}", "pass arrays without a gap")
        for operand in self.operands:
            shape = self.shape_of(operand.name)
            if operand.role != "in" or shape is None:
                continue
            same = len(shape) == len(first) and (
                self.stacked or shape[:at] + shape[at + 1 :] == first[:at] + first[at + 1 :]
            )
            if not same or (self.stacked and shape != first):
                rest = "" if self.stacked else f" but for axis {at}"
                raise InvalidProblemError(
                    f"join: x0 has shape {first} and {operand.name} {shape}", f"pass arrays of one shape{rest}"
                )


class JoinPlan(Plan[JoinDescriptor]):
    """Arrays one after another along an axis: operands `x0` to `x15` and `out`."""

    descriptor = JoinDescriptor
    candidates = (JoinRows(), JoinCopies())
    reference = oracle.join
    probes = (
        {"x0_shape": (5, 32), "x1_shape": (5, 16), "element": "f32", "axis": 1},
        {"x0_shape": (5, 33), "x1_shape": (5, 1), "x2_shape": (5, 6), "element": "u8", "axis": 1},
        {"x0_shape": (5, 33), "x1_shape": (5, 33), "element": "bf16", "axis": -1, "stacked": True},
        {"x0_shape": (5, 32), "x0_strides": (1, 5), "x1_shape": (5, 16), "element": "f32", "axis": 1},
    )


@function_of(JoinPlan)
def join(
    x0: Any,
    x1: Any = None,
    x2: Any = None,
    x3: Any = None,
    x4: Any = None,
    x5: Any = None,
    x6: Any = None,
    x7: Any = None,
    x8: Any = None,
    x9: Any = None,
    x10: Any = None,
    x11: Any = None,
    x12: Any = None,
    x13: Any = None,
    x14: Any = None,
    x15: Any = None,
    *,
    axis: int = 0,
    stacked: bool = False,
) -> Any:
    """Up to 16 arrays one after another along `axis`, in one launch; `concatenate` and `stack` take a list.

    x0 to x15: arrays of one byte-wide kind, any strides; where one's elements are not contiguous from the axis on, each is a copy
    of its own. They agree on every axis but `axis`; with `stacked` on all, and are put along a new
    axis. out: a C-ordered array of their kind. Raises InvalidProblemError for an axis out of range and for shapes that differ.
    """


def _parts(given: Mapping[str, Any]) -> Mapping[str, Callable[[Any], Any]]:
    """For each array of a call the view of its part of the result."""
    arrays = {name: x for name in OPERANDS if (x := given.get(name)) is not None}
    axis, stacked = given.get("axis", 0), given.get("stacked", False)
    lead = (slice(None),) * (axis % (arrays[OPERANDS[0]].ndim + stacked))
    if stacked:
        return {name: itemgetter((*lead, i)) for i, name in enumerate(arrays)}
    ends = itertools.accumulate((x.shape[len(lead)] for x in arrays.values()), initial=0)
    return {name: itemgetter((*lead, slice(*ab))) for name, ab in zip(arrays, itertools.pairwise(ends))}


@composed("cat", "concat")
def concatenate(
    arrays: Sequence[Any], /, axis: int = 0, *, out: Any = None, stream: Any = None, pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:  # fmt: skip
    """Arrays one after another along `axis`, as numpy.concatenate.

    arrays: a list or tuple of arrays of one byte-wide kind that agree on every other axis. Sixteen are joined in one launch;
    more are joined by sixteens first. out: a C-ordered array. Raises as `join` does.
    """
    return _joined("concatenate", arrays, axis, stacked=False, out=out, stream=stream, pref=pref, device=device)


@composed()
def stack(
    arrays: Sequence[Any], /, axis: int = 0, *, out: Any = None, stream: Any = None, pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:  # fmt: skip
    """Arrays of one shape along a new axis, as numpy.stack.

    arrays: a list or tuple of arrays of one byte-wide kind and shape. axis: the new axis of the result. Sixteen are joined in
    one launch; more are joined by sixteens first. out: a C-ordered array. Raises as `join` does.
    """
    return _joined("stack", arrays, axis, stacked=True, out=out, stream=stream, pref=pref, device=device)


def _joined(name: str, arrays: Any, axis: int, *, stacked: bool, out: Any, **how: Any) -> Any:
    if not isinstance(arrays, Sequence) or isinstance(arrays, str) or not len(arrays):
        raise InvalidProblemError(f"{name}: arrays must be a list or tuple of one array or more", "pass [a, b]")
    if any(x is None for x in arrays):
        raise InvalidProblemError(f"{name}: arrays[{[x is None for x in arrays].index(True)}] is None", "leave it out")
    parts = list(arrays)
    while len(parts) > MOST:
        parts = [join(*parts[i : i + MOST], axis=axis, stacked=stacked, **how) for i in range(0, len(parts), MOST)]
        stacked = False
    return join(*parts, axis=axis, stacked=stacked, out=out, **how)


register(
    Op("join", JoinPlan, join, samples.join, peers={"cupy": "concatenate", "torch": "cat"},
       gradient=Gradient("", (), {name: f"grad_{name}" for name in OPERANDS}, views=_parts))
)  # fmt: skip
