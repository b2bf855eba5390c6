"""What losses of rows and their gradients have in common: a descriptor for each entry of the table, and launches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from ....numerics.expression import Expression
from ....plan.descriptor import Slot, described, scalar
from ....plan.fields import flag
from ....runtime.steps import Arg, Kernel, Launch, Run, Step
from ....types import ElementKind, InvalidProblemError
from ....types.keeping import complete
from ..._rows import FLOATS, RowConfig, Rows, computed_in, row_configs, rows_of
from .._loss import LABELS, STATUS, WIDE, RowsLoss, expression, on_request
from ._table import TABLE, Formulas, Row

__all__ = ["FILE", "PROBLEMS", "RowLoss"]

FILE, TOTAL_THREADS = "loss/rows.cu", 512
INPUTS = 3  # that the kernel takes at most
PER_ROW = ("out", "grad", "target")  # the kernel's operands of one value a row


class RowLoss(RowsLoss):
    """The fields of all these losses and gradients: operands of `shape`, [N, C] or [C], whose rows are reduced."""

    target_element: ElementKind = ElementKind.I64
    p: float = 2.0
    swap: bool = False
    margin: float = 1.0
    eps: float = 1e-6
    name: ClassVar[str]
    row: ClassVar[Row]
    labels_operand = "target"

    def __post_init__(self) -> None:
        super().__post_init__()
        complete(self, p=scalar(self.p, f"{self.op}: p"), swap=flag(self.swap, f"{self.op}: swap"))

    @property
    def labelled(self) -> bool:
        return self.row.target == "label"

    @property
    def of_target(self) -> bool:
        """Whether the gradient of target is an output."""
        return "grad_target" in self.slot_of and self.has("grad_target")

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
        return {n: expression(x) for n, x in (self.formulas.pulled if self.gradient else self.formulas.sums).items()}

    @property
    def results(self) -> tuple[str, ...]:
        return tuple(self.expressions)

    @property
    def expressions(self) -> dict[str, Expression]:
        """What becomes of the sums: the loss of a row, or gradients of columns."""
        slopes, loss = self.formulas.slopes, self.formulas.loss
        found = {f"grad_{name}": slope for name, slope in slopes.items()} if self.gradient else {"out": loss}
        if self.gradient and not self.of_target:
            found.pop("grad_target", None)
        return {name: expression(text) for name, text in found.items()}

    # ---- what is refused ------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.check_rows(self.row.inputs[0])
        if self.labelled and self.p not in (1, 2):
            raise InvalidProblemError(f"{self.op}: p={self.p}", "give 1 or 2")
        if not 1 <= self.p < math.inf:
            raise InvalidProblemError(f"{self.op}: p={self.p} is no finite norm", "give a number of 1 or more")
        self.in_kind("weight", self.element, like="x")
        self.in_kind("grad_target", self.element, like="x")

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
        number = np.dtype(computed.numpy).type
        label = self.target_element if self.labelled else self.element
        kinds = f"{self.element.number}, {label.number}, {computed.cuda}, {self.result.digits}"
        runs = [Run(name, computed.numpy) if name in self.values else number(0) for name in ("margin", "eps")]
        args = (*runs, number(1 / (self.divisor or math.inf)), losses, self.status_arg)
        rows = self.rows()
        entry = config.entry("row_loss", f"{kinds}, {str(self.gradient).lower()}", rows.template)
        kernel = Kernel(FILE, entry, self._prelude())
        launch = Launch(
            kernel, config.grid(self.count), (config.threads, 1, 1),
            (*rows.counts, *args, rows.places(), *rows.pointers()),
        )  # fmt: skip
        return *self.status_cleared, launch

    def total_launch(self, losses: Arg) -> Launch:
        """The launch of one CTA that adds up the losses of rows."""
        return self.total(f"{FILE}:row_loss_total", losses, self.count, TOTAL_THREADS, self._prelude())

    def _prelude(self) -> str:
        """The struct Loss of the kernel."""
        sums, results = self.sums, self.expressions
        places = {name: f"x[{i}]" for i, name in enumerate(self.columns)}
        places |= {name: f"sums.at[{i}]" for i, name in enumerate(sums)}

        def function(name: str, given: Expression | None) -> str:
            held = given.names if given else ()
            read = "".join(f"const C {one} = e.{places.get(one, one)}; " for one in held)
            body = read + given.cuda() if given else "return C(0);"
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
    flags = {"return_status": ("status",)} if status else {}
    if gradient and "target" in row.inputs:
        slopes.append(Slot("grad_target", "out", optional=True, takes=FLOATS, shape="shape"))
        flags["return_grad_target"] = ("grad_target",)
    slots = (*slopes, *status, out, *read) if gradient else (out, *status, *read)
    fields = ("shape", "element", *(("target_element",) if status else ()), "reduction", *row.fields)
    name = row.name + "_backward" * gradient
    held = {
        "name": name, "row": row, "gradient": gradient, "values": row.values, "margin": row.margin,
        "p": 1.0 if status else 2.0, "__module__": __name__, "__doc__": RowLoss.__doc__, "declared_as": RowLoss,
    }  # fmt: skip
    called = "".join(part.capitalize() for part in name.split("_")) + "Descriptor"
    made: Any = described(*slots, fields=fields)(type(called, (RowLoss,), held))
    return on_request(**flags)(made) if flags else made


PROBLEMS = {made.name: made for row in TABLE.values() for made in (_problem_of(row, gradient=g) for g in (False, True))}
globals().update({made.__name__: made for made in PROBLEMS.values()})
