"""adafactor_update: a step of Adafactor on matrices or a vector (kernels/optim/adafactor.cu)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...numerics.guarantee import widely
from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.fields import flag
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...runtime.steps import Arg, Kernel, Launch, Ptr, Run, Scratch, Step, Struct
from ...types import Componentwise, DeviceSpec, ElementKind, InvalidProblemError, PrecisionGuarantee, Term
from .._function import function_of
from .._rows import FLOATS, computed_in
from . import oracle, samples
from ._guarantee import SOURCE
from ._problem import check_elements
from ._rule import MOST, SHARED

__all__ = ["AdafactorUpdateDescriptor", "AdafactorUpdatePlan", "adafactor_update", "refuse_values"]

FILE = "optim/adafactor.cu"
THREADS, TILE_ROWS, TILE_COLUMNS = 256, 32, 512  # as in the kernel
CTAS = 4096  # at most: no device changes it, and so no order of additions
SCALARS = 11  # of a step, as in kernels/include/optim/rules.cuh
F32, F64 = ElementKind.F32, ElementKind.F64
FACTORS = ("row_var", "col_var")
LEAST = {"beta2_decay": -MOST, "d": 1.0}  # the least that values may be, where it is not 0
LARGEST = {"beta2_decay": 0.0}  # and the largest, where it is not f32's


def refuse_values(op: str, values: Mapping[str, float]) -> None:
    """Raises for run-time values that are out of range."""
    for name, value in values.items():
        least, largest = LEAST.get(name, 0.0), LARGEST.get(name, MOST)
        if not least <= value <= largest:
            limits = f"{least:g} or more" if largest else "0 or less"
            raise InvalidProblemError(f"{op}: {name}={value}", f"give a number of {limits} that f32 holds")


def _slot(name: str, role: str = "inout", **more: Any) -> Slot:
    return Slot(name, role, **{"strided": False, "aligned": False, **more})


@described(
    _slot("param", takes=FLOATS, aligned=True),
    *(_slot(name, optional=True, takes=FLOATS, shape=f"{name}_of") for name in FACTORS),
    _slot("variance", optional=True, takes=FLOATS, shape="shape"),
    _slot("master", optional=True, takes=(F32,), shape="shape", aligned=True),
    _slot("step", element=F32, shape="scalar_shape"),
    _slot("grad", "in", takes=FLOATS, element="grad_element", aligned=True),
    *(_slot(name, "in", optional=True, takes=(F32,), shape="scalar_shape") for name in ("learning_rate", *SHARED)),
)
class AdafactorUpdateDescriptor(Descriptor):
    """A step of Adafactor on an array of `shape`: on matrices, its last two axes, or on a vector."""

    shape: tuple[int, ...]
    element: ElementKind
    grad_element: ElementKind | None = None
    maximize: bool = False
    lr: float = 1e-2
    beta2_decay: float = -0.8
    eps1: float | None = None
    eps2: float = 1e-3
    d: float = 1.0
    weight_decay: float = 0.0

    name = "adafactor_update"
    values = ("lr", "beta2_decay", "eps1", "eps2", "d", "weight_decay")
    needed: ClassVar[tuple[str, ...]] = tuple(f"{name}_element" for name in (*FACTORS, "variance"))

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("maximize",), flag)

    @property
    def scalar_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def row_var_of(self) -> tuple[int, ...]:
        return (*self.shape[:-1], 1)

    @property
    def col_var_of(self) -> tuple[int, ...]:
        return (*self.shape[:-2], 1, *self.shape[-1:])

    @property
    def factored(self) -> bool:
        return len(self.shape) > 1

    @property
    def kept(self) -> tuple[str, ...]:
        """The states of the problem."""
        return FACTORS if self.factored else ("variance",)

    @property
    def arrays(self) -> tuple[str, ...]:
        return ("param", "grad", *self.kept, *(["master"] if self.has("master") else []))

    @property
    def empty(self) -> bool:
        """Never: a step of nothing is counted."""
        return False

    @property
    def state_kind(self) -> ElementKind:
        return self.layout(self.kept[0]).element

    def default_element(self, name: str) -> ElementKind:
        return self.element if name == "grad" else computed_in(self.element).element

    def check(self) -> None:
        for name in (*FACTORS, "variance"):
            if self.has(name) != (name in self.kept):
                what = "no " if self.has(name) else ""
                raise InvalidProblemError(
                    f"{self.op}: param of shape {self.shape} takes {what}{name}", f"pass {' and '.join(self.kept)}"
                )
        check_elements(self)

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        epsilon = 2 * (F32 if self.has("master") else self.element).unit_roundoff
        made = super().scalars({"eps1": epsilon, **given} if self.eps1 is None else given)
        refuse_values(self.op, made)
        return made

    # ---- what kernels see -----------------------------------------------------------------------------------------

    @cached_property
    def extents(self) -> tuple[int, int, int]:
        """Matrices, their rows, and their columns; a vector is one row."""
        rows, columns = self.shape[-2:] if self.factored else (1, math.prod(self.shape))
        return math.prod(self.shape[:-2]) if self.factored else 1, rows, columns

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles of a matrix, along rows and columns."""
        _, rows, columns = self.extents
        return -(-rows // TILE_ROWS), -(-columns // TILE_COLUMNS)

    @property
    def ctas(self) -> int:
        return min(CTAS, self.extents[0] * math.prod(self.tiles))

    @property
    def depth(self) -> int:
        """Additions that a square goes through, at most, in any of the sums."""
        of_cta = -(-self.extents[0] * math.prod(self.tiles) // max(self.ctas, 1)) * TILE_ROWS * TILE_COLUMNS // THREADS
        return max(*self.tiles, self.extents[1] // THREADS + of_cta) + self.ctas // THREADS + 128

    @property
    def width(self) -> int:
        """Adjacent elements of a thread: 16 bytes of the widest array."""
        return min(128 // self.layout(name).element.bits for name in self.arrays if name not in self.kept)

    @property
    def vectors(self) -> bool:
        """Whether a thread's elements are one access in every array."""
        layouts = [self.layout(name) for name in self.arrays if name not in self.kept]
        return self.extents[2] % self.width == 0 and all(
            layout.align >= self.width * layout.natural for layout in layouts
        )


class AdafactorTiles(Candidate[AdafactorUpdateDescriptor]):
    """Six launches: a step is counted, squares are added up, means advanced, updates' squares added up and clipped, and the
    parameters moved."""

    variant = "tiles"
    launches: ClassVar[tuple[str, ...]] = tuple(
        f"{FILE}:adafactor_{name}" for name in ("step", "sums", "means", "norms", "step_size", "update")
    )

    def cost(self, desc: AdafactorUpdateDescriptor, device: DeviceSpec, config: str) -> Cost:
        size = {name: desc.layout(name).element.bits // 8 for name in desc.arrays}
        read = size["master" if desc.has("master") else "param"]
        once = 3 * size["grad"] + 2 * read + size["param"] + size.get("master", 0)
        moved = Cost.streaming(device, math.prod(desc.shape) * once)
        return Cost(moved.bytes, 0, moved.seconds + device.overhead * (len(self.launches) - 1), moved.limit)

    def guarantee(self, desc: AdafactorUpdateDescriptor, device: DeviceSpec, config: str) -> PrecisionGuarantee:
        return _guarantee(desc)

    def lower(self, desc: AdafactorUpdateDescriptor, device: DeviceSpec, config: str) -> tuple[Step, ...]:
        computed, null, ctas = computed_in(desc.element), np.uint64(0), desc.ctas
        (matrices, rows, columns), (row_tiles, column_tiles) = desc.extents, desc.tiles

        def launch(name: str, types: tuple[Any, ...], grid: int, args: tuple[Arg, ...], threads: int = THREADS) -> Step:
            said = ", ".join(str(t).lower() if isinstance(t, bool) else str(t) for t in types)
            return Launch(Kernel(FILE, f"adafactor_{name}<{said}>"), (grid, 1, 1), (threads, 1, 1), args)

        def place(name: str) -> Arg:
            return Ptr(name) if desc.has(name) else null

        def sums(name: str, count: int, kind: ElementKind = F64) -> Scratch:
            return Scratch.named(name, kind.nbytes(count))

        scalars = sums("scalars", SCALARS, computed.element)
        counted: tuple[Arg, ...] = (
            scalars, Ptr("step"), *map(place, ("learning_rate", "grad_scale", "found_inf")),
            *(Run(name, "float64") for name in desc.values), np.uint32(desc.maximize),
        )  # fmt: skip
        steps = [launch("step", (computed.cuda,), 1, counted, 1)]
        if not ctas:
            return tuple(steps)
        tiles = Struct(tuple(map(np.uint64, (matrices * row_tiles * column_tiles, rows, columns, *desc.tiles))))
        of_rows, of_columns = matrices * rows, matrices * columns
        row_sums, row_factor = (
            sums(name, count) if desc.factored else null
            for name, count in (("row_sums", of_rows * column_tiles), ("row_factor", of_rows))
        )
        column_sums = sums("column_sums", of_columns * row_tiles)
        col_factor = sums("col_factor", of_columns, computed.element)
        param_sums, update_sums = sums("param_sums", ctas), sums("update_sums", ctas)
        step_size = sums("step_size", 1, computed.element)
        row_ctas = min(CTAS, matrices) if desc.factored else 0
        column_ctas = min(CTAS, -(-of_columns // THREADS))
        row_var, col_var = (Ptr("row_var"), Ptr("col_var")) if desc.factored else (null, Ptr("variance"))
        grad, param = desc.layout("grad").element.number, desc.element.number
        read = "master" if desc.has("master") else "param"
        how = (desc.factored, desc.vectors, desc.width)
        factors: tuple[Arg, ...] = (scalars, row_factor, col_factor)
        steps += [
            launch(
                "sums", (desc.layout(read).element.number, grad, computed.cuda, *how), ctas,
                (tiles, Ptr(read), Ptr("grad"), scalars, row_sums, column_sums, param_sums),
            ),
            launch(
                "means", (desc.state_kind.number, computed.cuda, desc.factored), row_ctas + column_ctas,
                (
                    tiles, np.uint32(row_ctas), np.uint64(matrices), row_var, col_var, scalars, row_sums, column_sums,
                    row_factor, col_factor,
                ),
            ),
            launch("norms", (grad, computed.cuda, *how), ctas, (tiles, Ptr("grad"), *factors, update_sums)),
            launch(
                "step_size", (computed.cuda,), 1,
                (
                    param_sums, update_sums, np.uint32(ctas), np.float64(math.prod(desc.shape)), scalars, step_size,
                ),
            ),
            launch(
                "update", (param, grad, computed.cuda, desc.has("master"), *how), ctas,
                (tiles, Ptr("param"), place("master"), Ptr("grad"), *factors, step_size),
            ),
        ]  # fmt: skip
        return tuple(steps)


def _guarantee(desc: AdafactorUpdateDescriptor) -> PrecisionGuarantee:
    """What is lost is as `oracle.adafactor` derives it; a result is rounded to its kind at the end."""
    computed, parts = computed_in(desc.element), {}
    for name in (operand.name for operand in desc.operands if operand.written and operand.name != "step"):
        terms = [Term(1.0, computed.element, "lost")]
        bound = Componentwise.rounded(terms, desc.layout(name).element, SOURCE, "beyond")
        parts[name] = PrecisionGuarantee.fixed_order(computed.math, F64, bound, batch_invariant=False)
    return PrecisionGuarantee.by_output(**parts, step=PrecisionGuarantee.exact(F32))


class AdafactorUpdatePlan(Plan[AdafactorUpdateDescriptor]):
    """A step of Adafactor: operands `param`, `step` in place, `grad`, of matrices `row_var` and `col_var`, of a vector `variance`
    in place, and as the problem has them `master` in place, `learning_rate`, `grad_scale`, `found_inf`."""

    descriptor = AdafactorUpdateDescriptor
    candidates = (AdafactorTiles(),)
    measures = oracle.ADAFACTOR_MEASURES
    reference = oracle.adafactor_update
    probes = (
        {"shape": (33, 45), "element": "f32", "row_var_element": "f32", "col_var_element": "f32"},
        {"shape": (999,), "element": "bf16", "variance_element": "f32", "master_element": "f32"},
    )

    @staticmethod
    def reference_guarantee(desc: Any) -> PrecisionGuarantee:
        return widely(_guarantee(desc), desc)


@function_of(AdafactorUpdatePlan)
def adafactor_update(
    param: Any, grad: Any, step: Any, *, row_var: Any = None, col_var: Any = None, variance: Any = None, master: Any = None,
    lr: float = 1e-2, beta2_decay: float = -0.8, eps1: float | None = None, eps2: float = 1e-3, d: float = 1.0,
    weight_decay: float = 0.0, maximize: bool = False, learning_rate: Any = None, grad_scale: Any = None,
    found_inf: Any = None,
) -> Any:  # fmt: skip
    """A step of Adafactor on one array, in place: as torch.optim.Adafactor in formula and defaults, for a device step count.

    N. Shazeer, M. Stern, ICML 2018. param: a C-ordered array (f16, bf16, f32, f64). Of two axes or more, the last two are
    matrices, whose second moments are kept by rows and columns: row_var of shape (..., R, 1) and col_var of (..., 1, C), the
    running means of squared gradients along a row and down a column, with weight step**beta2_decay for the newest. Their product
    over the mean of row_var, eps1 or more, is the second moment. Of one axis or none, variance of param's shape is. States are of
    param's kind or f32 (f64 for f64). The update u is the gradient over the moment's root, eps1 or more; param moves by u times
    max(eps2, rms(param)) * min(lr, 1 / sqrt(step)) / max(1, rms(u) / d), rms being of the whole array, after it lost
    lr * weight_decay of itself. eps1: by default the machine epsilon of param's kind, or of master's. beta2_decay: 0 or less;
    d: 1 or more. What is computed is f32 (f64), squares are added in f64, in an order that the shape alone fixes, and each result
    is rounded once. No bound is promised of param where means of squares are near the end of f32 (f64), as of gradients beyond
    1e17, or where eps1 is below its smallest normal number. step, grad, master, learning_rate, grad_scale, found_inf and maximize
    are as of `adamw_update`.
    Returns the named tuple of the written operands. Raises InvalidProblemError for numbers out of range, and for states that
    param's shape does not take.
    """


register(
    Op("adafactor_update", AdafactorUpdatePlan, adafactor_update, samples.adafactor, peers={"torch": "optim.Adafactor"})
)
