"""roll, flip, tile, repeat_interleave: elements in another order along axes, or several times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...tensor.axes import c_strides
from ...types import ElementKind, InvalidProblemError
from .._function import SignatureRules, function_of
from .._numbers import one_or_more
from . import oracle, samples
from ._axes import Axis, flipped, kept, repeated, rolled, tiled
from ._gather import Gather
from ._problem import BYTES, Rearranged, axes_of

__all__ = [
    "FlipDescriptor",
    "FlipPlan",
    "RepeatInterleaveDescriptor",
    "RepeatInterleavePlan",
    "RollDescriptor",
    "RollPlan",
    "TileDescriptor",
    "TilePlan",
    "flip",
    "repeat_interleave",
    "roll",
    "roll_backward",
    "tile",
]

OUT = Slot("out", "out", takes=BYTES, shape="out_shape", element="element", strided=False)
X = Slot("x", takes=BYTES)


def _flat(desc: Rearranged, fix: str) -> None:
    """Raises where x's elements in C order are no run of memory."""
    if desc.layout("x").strides != c_strides(desc.shape):
        raise InvalidProblemError(f"{desc.op}: without axis, x is read in C order, in which it is not stored", fix)


# ---- roll --------------------------------------------------------------------------------------------------------------


@described(OUT, X)
class RollDescriptor(Rearranged):
    """x of `shape`, shifted by `shift` along `axis`, around the end; in C order where `axis` is None. The gradient's op, under
    the name `roll_backward`, shifts back."""

    shape: tuple[int, ...]
    element: ElementKind
    shift: Any  # a tuple, of one int or several
    axis: Any = None
    name: str = "roll"

    def __post_init__(self) -> None:
        self._names_op(("roll", "roll_backward"), "name")
        super().__post_init__()
        self._each(("shift", "axis"), one_or_more)

    def shifts(self) -> dict[int, int]:
        """The shift of each axis; that of C order is under -1."""
        axes = (-1,) if self.axis is None else axes_of(self.op, self.axis, len(self.shape), twice=True)
        shift = self.shift * len(axes) if len(self.shift) == 1 else self.shift
        if len(shift) != len(axes):
            said = "no axis" if self.axis is None else f"axis={self.axis}"
            raise InvalidProblemError(
                f"{self.op}: shift={self.shift} and {said}", "give one shift per axis, or one for all"
            )
        sign = -1 if self.name == "roll_backward" else 1
        found: dict[int, int] = {}
        for one, by in zip(axes, shift):
            found[one] = found.get(one, 0) + sign * by
        return found

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.shape

    def rules(self) -> tuple[Axis, ...]:
        shifts = self.shifts()
        return tuple(rolled(n, shifts.get(i, 0)) for i, n in enumerate(self.shape))

    def axes(self) -> tuple[Axis, ...]:
        if self.axis is not None:
            return super().axes()
        return (replace(rolled(math.prod(self.shape), self.shifts()[-1]), stride=1),)

    def check(self) -> None:
        self.shifts()
        if self.axis is None:
            _flat(self, "give axis, or pass contiguize(x)")


class RollPlan(Plan[RollDescriptor]):
    """Elements shifted along axes, around the end: operands `x` and `out`."""

    descriptor = RollDescriptor
    candidates = (Gather(),)
    reference = oracle.roll
    probes = (
        {"shape": (5, 33), "element": "f32", "shift": (3,), "axis": (1,)},
        {"shape": (5, 33), "element": "u8", "shift": (7,)},
    )


def _rolled(x: Any, /, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Any:
    """Stands for the signature of `roll` and of its gradient."""


READ = SignatureRules(reads={"shift": one_or_more, "axis": one_or_more})
roll = function_of(
    RollPlan,
    called="roll",
    rules=READ,
    name="roll",
    doc="""Elements of `x` shifted along `axis`, around the end, as numpy.roll.

    x: any array of a byte-wide kind, any strides. shift: by how many places, an int or one per axis; negative ones shift to the
    front. axis: an int, or several, each of which adds up; None shifts in C order, and x must be stored in it. out: a C-ordered
    array of x's shape and kind. Raises InvalidProblemError for an axis out of range.
    """,
)(_rolled)
roll_backward = function_of(
    RollPlan,
    called="roll_backward",
    rules=READ,
    name="roll_backward",
    doc="""The gradient of `roll`, which shifts back: ``roll(x, -shift, axis)``.

    x: the gradient of the result of `roll`; the rest as there.
    """,
)(_rolled)


# ---- flip --------------------------------------------------------------------------------------------------------------


@described(OUT, X)
class FlipDescriptor(Rearranged):
    """x of `shape`, in reverse along `axis`; None: along all."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: Any = None

    name = "flip"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("axis",), one_or_more)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.shape

    def rules(self) -> tuple[Axis, ...]:
        reverse = axes_of(self.op, self.axis, len(self.shape))
        return tuple(flipped(n) if i in reverse else kept(n) for i, n in enumerate(self.shape))


class FlipPlan(Plan[FlipDescriptor]):
    """Elements in reverse along axes: operands `x` and `out`."""

    descriptor = FlipDescriptor
    candidates = (Gather(),)
    reference = oracle.flip
    probes = ({"shape": (5, 33), "element": "f32"}, {"shape": (5, 32), "element": "u8", "axis": (0,)})


@function_of(FlipPlan, rules=SignatureRules(reads={"axis": one_or_more}))
def flip(x: Any, /, axis: int | Sequence[int] | None = None) -> Any:
    """Elements of `x` in reverse along `axis` (all axes by default), a copy.

    x: any array of a byte-wide kind, any strides. out: a C-ordered array of x's shape and kind. Raises InvalidProblemError for
    an axis out of range or given twice.
    """


# ---- tile --------------------------------------------------------------------------------------------------------------


@described(OUT, X)
class TileDescriptor(Rearranged):
    """x of `shape`, `reps` times along each axis; the shorter of both gets leading ones."""

    shape: tuple[int, ...]
    element: ElementKind
    reps: Any  # a tuple, of one int or several

    name = "tile"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("reps",), one_or_more)

    def rules(self) -> tuple[Axis, ...]:
        rank = max(len(self.shape), len(self.reps))
        shape, reps = ((1,) * (rank - len(one)) + one for one in (self.shape, self.reps))
        if min(reps, default=0) < 0:
            raise InvalidProblemError(f"tile: reps={self.reps} has a negative count", "give counts of 0 or more")
        return tuple(tiled(n, count) for n, count in zip(shape, reps))


class TilePlan(Plan[TileDescriptor]):
    """An array several times along its axes: operands `x` and `out`."""

    descriptor = TileDescriptor
    candidates = (Gather(),)
    reference = oracle.tile
    probes = ({"shape": (5, 32), "element": "f32", "reps": (2, 1)}, {"shape": (5, 33), "element": "u8", "reps": (2, 3)})


@function_of(TilePlan, rules=SignatureRules(reads={"reps": one_or_more}))
def tile(x: Any, /, reps: int | Sequence[int]) -> Any:
    """`x`, `reps` times along each axis, as numpy.tile.

    x: any array of a byte-wide kind, any strides. reps: an int, or one per axis; with fewer than x has axes they are of the
    last ones, with more the result has further leading axes. out: a C-ordered array of x's kind. Raises InvalidProblemError for
    a negative count.
    """


# ---- repeat_interleave -------------------------------------------------------------------------------------------------


@described(OUT, X)
class RepeatInterleaveDescriptor(Rearranged):
    """x of `shape`, each index along `axis` `repeats` times; of x in C order where `axis` is None."""

    shape: tuple[int, ...]
    element: ElementKind
    repeats: int
    axis: int | None = None

    name = "repeat_interleave"

    def rules(self) -> tuple[Axis, ...]:
        if self.repeats < 0:
            raise InvalidProblemError(f"repeat_interleave: repeats={self.repeats} is negative", "give 0 or more")
        if self.axis is None:
            return (repeated(math.prod(self.shape), self.repeats),)
        (along,) = axes_of(self.op, (self.axis,), len(self.shape))
        return tuple(repeated(n, self.repeats) if i == along else kept(n) for i, n in enumerate(self.shape))

    def axes(self) -> tuple[Axis, ...]:
        if self.axis is not None:
            return super().axes()
        return (replace(self.rules()[0], stride=1),)

    def check(self) -> None:
        self.rules()
        if self.axis is None:
            _flat(self, "give axis, or pass contiguize(x)")


class RepeatInterleavePlan(Plan[RepeatInterleaveDescriptor]):
    """Each index along an axis several times: operands `x` and `out`."""

    descriptor = RepeatInterleaveDescriptor
    candidates = (Gather(),)
    reference = oracle.repeat_interleave
    probes = (
        {"shape": (5, 32), "element": "f32", "repeats": 2, "axis": 0},
        {"shape": (5, 33), "element": "u8", "repeats": 3},
    )


@function_of(RepeatInterleavePlan)
def repeat_interleave(x: Any, /, repeats: int, axis: int | None = None) -> Any:
    """Each index of `x` along `axis` `repeats` times, as torch.repeat_interleave and numpy.repeat.

    x: any array of a byte-wide kind, any strides. repeats: one count of 0 or more. axis: None repeats in C order, and x must be
    stored in it. out: a C-ordered array of x's kind. Raises InvalidProblemError for an axis out of range or a negative count.
    """


register(
    Op("roll", RollPlan, roll, samples.roll, gradient=Gradient("roll_backward", (), {"x": "out"}, grad="x"),
       fixed={"name": "roll"}, peers={"cupy": "roll", "torch": "roll"})
)  # fmt: skip
register(Op("roll_backward", RollPlan, roll_backward, samples.roll, fixed={"name": "roll_backward"}))
register(
    Op("flip", FlipPlan, flip, samples.flip, gradient=Gradient("flip", (), {"x": "out"}, grad="x"),
       peers={"cupy": "flip", "torch": "flip"})
)  # fmt: skip
register(
    Op("tile", TilePlan, tile, samples.tile, gradient=Gradient("tile_backward", ("x",), {"x": "grad_x"}, shapes=("x",)),
       peers={"cupy": "tile", "torch": "tile"})
)  # fmt: skip
register(
    Op("repeat_interleave", RepeatInterleavePlan, repeat_interleave, samples.repeat_interleave,
       gradient=Gradient("repeat_interleave_backward", ("x",), {"x": "grad_x"}, shapes=("x",)),
       peers={"cupy": "repeat", "torch": "repeat_interleave"})
)  # fmt: skip
