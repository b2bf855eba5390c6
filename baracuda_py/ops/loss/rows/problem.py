"""What losses of rows and their gradients have in common: a descriptor for each entry of the table, and launches."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np

from ....numerics.expression import Expression
from ....plan.descriptor import Descriptor, Slot, described, scalar
from ....plan.fields import flag
from ....runtime.steps import Arg, Fill, Kernel, Launch, Ptr, Run, Step
from ....tensor import Tensor
from ....types import ElementKind, InvalidProblemError, OperandTypeError
from ....types.keeping import complete
from ..._rows import FLOATS, RowConfig, Rows, computed_in, row_configs, rows_of
from ...elementwise.backward.formula import expression_of
from .._problem import LABELS, REDUCTIONS
from ._table import TABLE, Formulas, Row

__all__ = ["FILE", "PROBLEMS", "RowLoss"]

FILE, TOTAL_THREADS = "loss/rows.cu", 512
INPUTS = 3  # that the kernel takes at most
PER_ROW = ("out", "grad", "target")  # the kernel's operands of one value a row
WIDE = (ElementKind.F32, ElementKind.F64)
STATUS = Slot(
    "status", "out", optional=True, takes=(ElementKind.I32,), shape="scalar_shape", strided=False, aligned=False
)


class RowLoss(Descriptor):
    """The fields of all these losses and gradients: operands of `shape`, [N, C] or [C], whose rows are reduced."""

    shape: tuple[int, ...]
    element: ElementKind
    target_element: ElementKind = ElementKind.I64
    reduction: str = "mean"
    p: float = 2.0
    swap: bool = False
    margin: float = 1.0
    eps: float = 1e-6
    name: ClassVar[str]
    row: ClassVar[Row]
    gradient: ClassVar[bool]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._member(REDUCTIONS, "reduction")
        complete(self, p=scalar(self.p, f"{self.op}: p"), swap=flag(self.swap, f"{self.op}: swap"))

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[:-1]

    @property
    def classes_shape(self) -> tuple[int, ...]:
        return self.shape[-1:]

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.row_shape if self.reduction == "none" else ()

    @property
    def scalar_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def computed(self) -> ElementKind:
        return computed_in(self.element).element

    @property
    def result(self) -> ElementKind:
        """The kind of what the formulas of results give."""
        return self.element if self.gradient else self.computed

    @property
    def count(self) -> int:
        return math.prod(self.row_shape)

    @property
    def divisor(self) -> int:
        """What the sum over rows is divided by."""
        return self.count if self.reduction == "mean" else 1

    @property
    def labelled(self) -> bool:
        return self.row.target == "label"

    @property
    def columns(self) -> tuple[str, ...]:
        """The operands that have a value a column: a weight too, unless the label picks one of it."""
        weighted = self.row.weighted and not self.labelled and self.has("weight")
        return (*self.row.inputs, "weight") if weighted else self.row.inputs

    @property
    def formulas(self) -> Formulas:
        return self.row.formulas(self)

    @property
    def sums(self) -> dict[str, Expression]:
        """What is added up along a row."""
        return {n: _expression(x) for n, x in (self.formulas.pulled if self.gradient else self.formulas.sums).items()}

    @property
    def expressions(self) -> dict[str, Expression]:
        """What becomes of the sums: the loss of a row, or gradients of columns."""
        slopes, loss = self.formulas.slopes, self.formulas.loss
        found = {f"grad_{name}": slope for name, slope in slopes.items()} if self.gradient else {"out": loss}
        return {name: _expression(text) for name, text in found.items()}

    # ---- what is refused ------------------------------------------------------------------------------------------

    def check(self) -> None:
        if len(self.shape) not in (1, 2) or not self.shape[-1]:
            raise InvalidProblemError(
                f"{self.op}: {self.row.inputs[0]} must have shape [N, C] or [C] of one column or more, got {self.shape}",
                "reshape it to (-1, C), and what has a value a row to (-1,)",
            )
        if max(self.shape) >= 2**31:
            raise InvalidProblemError(f"{self.op}: {self.shape} has 2**31 rows or columns", "give fewer at a time")
        if self.labelled and self.p not in (1, 2):
            raise InvalidProblemError(f"{self.op}: p={self.p}", "give 1 or 2")
        if not 1 <= self.p < math.inf:
            raise InvalidProblemError(f"{self.op}: p={self.p} is no finite norm", "give a number of 1 or more")
        if self.row.weighted and self.has("weight") and (kind := self.layout("weight").element) is not self.element:
            raise OperandTypeError(
                f"{self.op}: weight must hold {self.element}, as x does, got {kind}", f"cast it to {self.element}"
            )

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        if not all(map(math.isfinite, values.values())):
            said = ", ".join(f"{name}={x}" for name, x in values.items())
            raise InvalidProblemError(f"{op}: {said}", "give finite numbers")

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        return values

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if not self.labelled or "status" in tensors:
            return
        labels, classes = np.atleast_1d(tensors["target"].array()), self.shape[-1]
        wrong = np.flatnonzero((labels < 0) | (labels >= classes))
        if wrong.size:
            raise InvalidProblemError(
                f"{self.op}: target[{wrong[0]}] = {labels[wrong[0]]} is no class, 0 to {classes - 1}",
                "give a class, or pass status=, an int32 scalar that is then 1",
            )

    # ---- launches -------------------------------------------------------------------------------------------------

    @property
    def kernel_operands(self) -> dict[str, str]:
        """The kernel's operands in its order, and what they are here; an empty name is absent."""
        written = tuple(self.expressions) if self.gradient else ()
        picks = self.labelled and self.has("weight")
        found = {
            "out": "" if self.gradient or self.reduction != "none" else "out", "grad": "grad" if self.gradient else "",
            "target": "target" if self.row.target else "", "weight": "weight" if picks else "",
        }  # fmt: skip
        for kernel, names in (("x", self.columns), ("slope", written)):
            found |= {f"{kernel}{i}": names[i] if i < len(names) else "" for i in range(INPUTS)}
        return found

    def rows(self) -> Rows:
        rank, strides = len(self.shape), dict[str, tuple[int, ...] | None]()
        held = self.kernel_operands
        for kernel, own in held.items():
            known = self.layout(own).strides if own else ()
            known = (*(known or (0,) * (rank - 1)), 0) if kernel in PER_ROW else (*(0,) * (rank - len(known)), *known)
            strides[own or f"no {kernel}"] = known if own else None
        per_row = [held[kernel] for kernel in PER_ROW if held[kernel]]
        return rows_of(self, self.shape, (rank - 1,), strides, per_row, ordered=True)

    def configs(self) -> Iterator[RowConfig]:
        """How a row may be shared out."""
        inputs = len(self.columns)
        vector = self.rows().vector(self.element)
        return row_configs(self.shape[-1], vector, self.element, inputs, shallow=inputs > 2)

    @property
    def depth(self) -> int:
        """Additions that a term of a row's sum goes through at most."""
        return max(config.depth(self.shape[-1]) for config in self.configs())

    def row_launch(self, config: RowConfig, losses: Arg) -> tuple[Step, ...]:
        """The launch over rows, and ahead of it the status that it sets."""
        computed = computed_in(self.element)
        number, has = np.dtype(computed.numpy).type, self.labelled and self.has("status")
        label = self.target_element if self.labelled else self.element
        kinds = f"{self.element.number}, {label.number}, {computed.cuda}, {self.result.digits}"
        runs = [Run(name, computed.numpy) if name in self.values else number(0) for name in ("margin", "eps")]
        args = (*runs, number(1 / (self.divisor or math.inf)), losses, Ptr("status") if has else np.uint64(0))
        rows = self.rows()
        entry = config.entry("row_loss", f"{kinds}, {str(self.gradient).lower()}", rows.template)
        kernel = Kernel(FILE, entry, self._prelude())
        launch = Launch(
            kernel, config.grid(self.count), (config.threads, 1, 1),
            (*rows.counts, *args, rows.places(), *rows.pointers()),
        )  # fmt: skip
        return (Fill(Ptr("status"), 0, 4), launch) if has else (launch,)

    def total_launch(self, losses: Arg) -> Launch:
        """The launch of one CTA that adds up the losses of rows."""
        computed = computed_in(self.element)
        args = (np.uint32(self.count), np.dtype(computed.numpy).type(self.divisor), losses, Ptr("out"))
        return Launch(
            Kernel(FILE, f"row_loss_total<{computed.cuda}>", self._prelude()), (1, 1, 1), (TOTAL_THREADS, 1, 1), args
        )

    def _prelude(self) -> str:
        """The struct Loss of the kernel."""
        sums, results = self.sums, self.expressions
        places = {name: f"x[{i}]" for i, name in enumerate(self.columns)}
        places |= {name: f"sums.at[{i}]" for i, name in enumerate(sums)}

        def function(name: str, expression: Expression | None) -> str:
            held = expression.names if expression else ()
            read = "".join(f"const C {one} = e.{places.get(one, one)}; " for one in held)
            body = read + expression.cuda() if expression else "return C(0);"
            return f"{HEAD} C {name}(const E& e) {{ {body} }}\n"

        found = list(results.values())
        functions = [function(f"term{i}", one) for i, one in enumerate(sums.values())]
        functions += [function("loss", None if self.gradient else found[0])]
        slopes = (found if self.gradient else []) + [None] * INPUTS
        functions += [function(f"slope{i}", one) for i, one in enumerate(slopes[:INPUTS])]
        added = " ".join(f"sums[{i}] += term{i}<digits, C>(e);" for i in range(len(sums)))
        headers = dict.fromkeys(header for one in (*sums.values(), *found) for header in one.headers)
        facts = {
            "INPUTS": len(self.columns), "SUMS": max(1, len(sums)), "ADDS": int(bool(sums)),
            "SLOPES": len(found), "LABELLED": int(self.labelled), "TARGETED": int(bool(self.row.target)),
        }  # fmt: skip
        return "".join((
            *(f'#include "{header}"\n' for header in headers), "struct Loss {\n",
            f"  static constexpr int {', '.join(f'{name} = {n}' for name, n in facts.items())};\n", *functions,
            f"{HEAD} void add(const E& e, C* sums) {{ {added} }}\n", "};\n",
        ))  # fmt: skip


HEAD = "  template <int digits, class C, class E> static __device__ __forceinline__"
_expression: Callable[[str], Expression] = cache(expression_of)


def _problem_of(row: Row, *, gradient: bool) -> type[RowLoss]:
    """The descriptor of a loss or of its gradient."""
    status = (STATUS,) if row.target == "label" else ()
    target = (Slot("target", takes=LABELS, shape="row_shape"),) if status else ()
    if row.target == "number":
        target = (Slot("target", takes=FLOATS, shape="row_shape", element="element"),)
    read = [Slot(name, takes=FLOATS, shape="shape", element="element") for name in row.inputs]
    read += [*target, *((Slot("weight", optional=True, takes=FLOATS, shape="classes_shape"),) if row.weighted else ())]
    out = Slot(
        "grad" if gradient else "out", "in" if gradient else "out", takes=WIDE, shape="out_shape", element="computed"
    )
    own = [name for name in row.inputs if name != "target"]
    slopes = [Slot(f"grad_{name}", "out", takes=FLOATS, shape="shape", element="element") for name in own]
    slots = (*slopes, *status, out, *read) if gradient else (out, *status, *read)
    fields = ("shape", "element", *(("target_element",) if status else ()), "reduction", *row.fields)
    name = row.name + "_backward" * gradient
    held = {
        "name": name, "row": row, "gradient": gradient, "values": row.values, "margin": row.margin,
        "p": 1.0 if status else 2.0, "__module__": __name__, "__doc__": RowLoss.__doc__, "declared_as": RowLoss,
    }  # fmt: skip
    called = "".join(part.capitalize() for part in name.split("_")) + "Descriptor"
    made: Any = described(*slots, fields=fields)(type(called, (RowLoss,), held))
    if status:
        made.of = classmethod(_asked(made.of))
    return made  # type: ignore[no-any-return]


def _asked(plain: Any) -> Callable[..., Any]:
    """`of` of a problem that has a status where it is asked for."""
    signature = inspect.signature(plain.__func__)
    more = inspect.Parameter("return_status", inspect.Parameter.KEYWORD_ONLY, default=False)

    def of(cls: Any, *arrays: Any, return_status: bool = False, **given: Any) -> Any:
        bound = signature.bind(cls, *arrays, **given).arguments
        operands = {name: bound.get(name) for name in cls.slot_of}
        options = {name: x for name, x in bound.items() if name != "cls" and name not in operands}
        if return_status and operands["status"] is None:
            options["status_element"] = ElementKind.I32
        return cls.of_tensors(cls.taken(cls.name, operands), **options)

    of.__doc__ = plain.__doc__
    of.__signature__ = signature.replace(parameters=[*signature.parameters.values(), more])  # type: ignore[attr-defined]
    return of


PROBLEMS = {made.name: made for row in TABLE.values() for made in (_problem_of(row, gradient=g) for g in (False, True))}
globals().update({made.__name__: made for made in PROBLEMS.values()})
