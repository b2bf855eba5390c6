"""What losses of elements and their gradients have in common: operands, numbers, and launches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...numerics.expression import Expression
from ...plan.fields import flag
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Run
from ...tensor.axes import collapse
from ...types import InvalidProblemError
from ...types.keeping import complete
from .._launch import index_scalar, index_type, pack_dims
from .._rows import computed_in
from ._loss import Loss, expression
from ._table import TABLE, Row

__all__ = ["FIELDS", "THIRDS", "THREADS", "Pointwise"]

FILE, THREADS = "loss/pointwise.cu", 256
FIELDS = (
    "shape", "element", "name", "reduction", "log_target", "log_input", "full", "beta", "delta", "margin", "eps",
)  # fmt: skip
SWITCHES, THIRDS = ("log_target", "log_input", "full"), ("other", "var")


class Pointwise(Loss):
    """The fields of both descriptors: x and target of `shape`, and what becomes of their losses."""

    name: str = "mse_loss"
    log_target: bool = False
    log_input: bool = False
    full: bool = False
    beta: float = 1.0
    delta: float = 1.0
    margin: float = 1.0
    eps: float = 1e-6
    values: ClassVar[tuple[str, ...]] = ("beta", "delta", "margin", "eps")
    reductions = ("mean", "sum", "none", "batchmean")

    def __post_init__(self) -> None:
        self._names_op(tuple(name + "_backward" * self.gradient for name in TABLE), "name")
        super().__post_init__()
        complete(self, **{name: flag(getattr(self, name), f"{self.op}: {name}") for name in SWITCHES})

    @property
    def row(self) -> Row:
        return TABLE[self.name.removesuffix("_backward")]

    @property
    def needed(self) -> tuple[str, ...]:
        """The fields that say that there is a third operand."""
        return (f"{self.row.third}_element",) if self.row.third else ()

    @property
    def divisor(self) -> int:
        return (*self.shape, 1)[0] if self.reduction == "batchmean" else super().divisor

    @property
    def texts(self) -> dict[str, str]:
        """What is computed of each element for each output, `grad` that of the result and `scale` one by the divisor."""
        row = self.row
        on = (formulas for name, formulas in row.switches.items() if getattr(self, name))
        loss, slope, target_slope = next(on, (row.loss, row.slope, row.target_slope))
        if not self.gradient:
            return {"out": f"({loss}) + {row.full}" if self.full else loss}
        slopes = {"grad_x": slope} | ({f"grad_{row.third}": row.third_slope} if row.third else {})
        if self.has("grad_target"):
            full = f" + {row.full_slope}" if self.full and row.full_slope else ""
            slopes["grad_target"] = target_slope + full
        return {name: f"grad * scale * ({text})" for name, text in slopes.items()}

    @property
    def expressions(self) -> dict[str, Expression]:
        return {output: expression(text) for output, text in self.texts.items()}

    def check(self) -> None:
        row = self.row
        if self.reduction not in row.reductions:
            raise InvalidProblemError(
                f"{self.op}: reduction={self.reduction} is for kl_div alone", f"give one of {row.reductions}"
            )
        for name in SWITCHES:
            if getattr(self, name) and name not in row.switches and not (name == "full" and row.full):
                raise InvalidProblemError(f"{self.op}: {name}=True is for another loss", f"leave {name} out")
        for name in THIRDS:
            if self.has(name) is not (name == row.third):
                given, fix = ("is missing", "pass") if name == row.third else ("is for another loss", "leave out")
                raise InvalidProblemError(f"{self.op}: operand {name} {given}", f"{fix} {name}")
            self.in_kind(name, self.element, like="x")
        if self.gradient and self.has("grad_target") and not row.target_slope:
            raise InvalidProblemError(f"{self.op}: there is no gradient of target", "leave grad_target out")
        self.in_kind("grad_target", self.element, like="x")

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        below = values.get("beta", 1.0) < 0 or values.get("eps", 1.0) < 0
        if below or not 0 < values.get("delta", 1.0) < math.inf or not all(map(math.isfinite, values.values())):
            said = ", ".join(f"{name}={x}" for name, x in values.items())
            raise InvalidProblemError(
                f"{op}: {said}", "give finite numbers, beta and eps of 0 or more, and delta above 0"
            )

    def launch(
        self, kernel: str, out: Arg, grid: tuple[int, int, int], outputs: tuple[str, ...], *, each: bool = True
    ) -> Launch:
        """A launch of a kernel that computes one or two `outputs` of elements: `each` writes them, else their sum goes to
        `out`."""
        third, (written, second, *_) = self.row.third, (*outputs, "")
        if not each:
            written = ""
        order = (written, second, "grad" if self.gradient else "", "x", "target", third)
        layouts = [self.layout(name) if name else None for name in order]
        flat = (0,) * len(self.shape)
        steps = [[s * x.natural for s in x.strides] if x and x.shape == self.shape else flat for x in layouts]
        extents, strides = collapse(self.shape, steps)
        index, computed = index_type(self.count), computed_in(self.element)
        kind = f"{self.layout(written).element.number}, " if written else ""
        types = f"{kind}{self.element.number}, {computed.cuda}, {self.result.digits}, {len(extents)}, {index}"
        number, param = np.dtype(computed.numpy).type, self.row.param
        args = (
            index_scalar(self.count, index), Run(param, computed.numpy) if param else number(0),
            number(1 / self.divisor if self.divisor else math.inf), Packed(pack_dims(extents, strides, index).data, 8),
            out, *(Ptr(name) if name else np.uint64(0) for name in order[1:]),
        )  # fmt: skip
        return Launch(Kernel(FILE, f"{kernel}<{types}>", self._prelude(outputs)), grid, (THREADS, 1, 1), args)

    def _prelude(self, outputs: tuple[str, ...]) -> str:
        """The functor of the loss, or of one or two gradients."""
        named = f"C grad, C x, C target, C {self.row.third or 'third'}, C {self.row.param or 'param'}, C scale"
        text, *more = (self.texts[name] for name in outputs)
        found = [self.expressions[name] for name in outputs]
        bodies = [("apply", found[0].cuda()), ("second", found[1].cuda() if more else "return C(0);")]
        functions = "".join(
            f"  template <int digits, class C> static __device__ __forceinline__ C {name}({named}) {{ {body} }}\n"
            for name, body in bodies
        )
        headers = dict.fromkeys(header for one in found for header in one.headers)
        includes = "".join(f'#include "{header}"\n' for header in headers)
        return f"{includes}struct Loss {{  // {'; '.join((text, *more))}\n{functions}}};\n"
