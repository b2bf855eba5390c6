"""An op for the gradients of every elementwise row that states them. Its descriptor, plan and function are made from the row."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import make_dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

from ....plan.descriptor import Operand
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import InvalidProblemError, OpCategory, PrecisionGuarantee
from ... import elementwise
from ..._function import CallArgs, function_of
from .. import two_kinds
from .._descriptor import MapDescriptor
from .._family import PUBLISHED, GraphPlan, signature_of
from .._promotion import WEAK, guarantee_of, propagated
from .._row import ROWS, functor
from . import oracle, samples
from ._row import BackwardRow, backward_row

__all__: list[str] = []  # the ops that are published below


class BackwardDescriptor(MapDescriptor):
    """Arrays that broadcast, or numbers, and gradients of the common shape. An argument of the function that is a number, or is
    left out, has none."""

    own_row: ClassVar[BackwardRow]

    def __post_init__(self) -> None:
        self._prepare(None)

    @property
    def row(self) -> BackwardRow:
        return self.own_row

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        row, argument = self.row, len("grad_")
        held = (*self.arrays, *(name for name in row.forward.arguments if name not in row.arguments))
        return tuple(output for output in row.formulas if output[argument:] in held)

    def check(self) -> None:
        super().check()
        if not self.outputs:
            named = " and ".join(output.removeprefix("grad_") for output in self.row.formulas)
            raise InvalidProblemError(
                f"{self.op}: {named} is a number, which has no gradient", f"pass {named} as an array"
            )

    @property
    def instructions(self) -> tuple[float, float]:
        each = [self.row.formulas[output].instructions() for output in self.outputs]
        return sum(n for n, _ in each), sum(n for _, n in each)

    def guarantee(self) -> PrecisionGuarantee:
        """The rounding of each part, carried through the expression, and that of the result to 16 bits."""
        kind = self.kind_of("out")
        one = guarantee_of(self.row, kind)
        flushed = self.row.flushed
        made = PrecisionGuarantee(one.math_precision, one.accumulator, True, True, True, flushed, propagated(kind))
        several = len(self.outputs) > 1
        return PrecisionGuarantee.by_output(**dict.fromkeys(self.outputs, made)) if several else made

    def functors(self) -> tuple[Mapping[str, str], tuple[str, ...]]:
        row, made, headers = self.row, {}, dict[str, None]()
        for place, output in enumerate(self.outputs):
            name, formula = f"Op{place or ''}", row.formulas[output]
            made[name] = functor(name, f"{row.name}: {output}", (*row.arguments, *row.params), formula.cuda())
            headers |= dict.fromkeys(formula.headers)
        return made, tuple(headers)


class BackwardPlan(GraphPlan, Plan[BackwardDescriptor]):
    """What the plans of gradients share."""

    measures = oracle.MEASURES
    evaluate = staticmethod(oracle.evaluate)


def descriptor_of(row: BackwardRow) -> type[BackwardDescriptor]:
    """The descriptor class of a gradient: the fields of its inputs, of its outputs, and its run-time numbers."""
    ints, kind, inputs, outputs = "tuple[int, ...] | None", "ElementKind | None", row.arguments, tuple(row.formulas)
    fields: list[Any] = [(f"{name}_shape", ints) for name in inputs] + [(f"{name}_element", kind) for name in inputs]
    fields += [("out_element", kind, None)]
    fields += [(f"{name}_strides", ints, None) for name in (*inputs, *outputs)]
    fields += [(f"{name}_align", "int | None", None) for name in (*inputs, *outputs)]
    fields += [("numbers", "tuple[float, ...] | None", None)]
    operands = (*(Operand(name, optional=name in row.absent) for name in inputs), *(Operand(n, "out") for n in outputs))
    own = {
        "own_row": row, "inputs": inputs, "signature_operands": operands, "values": (*inputs, *row.params),
        "of": classmethod(_reader(row)), "__doc__": BackwardDescriptor.__doc__, "__module__": __name__,
        "declared_as": BackwardDescriptor,
    }  # fmt: skip
    name = _class_name(row, "Descriptor")
    return make_dataclass(name, fields, bases=(BackwardDescriptor,), namespace=own, frozen=True)


def _class_name(row: BackwardRow, what: str) -> str:
    return "".join(part.capitalize() for part in row.name.split("_")) + what


def _parameters(row: BackwardRow) -> list[inspect.Parameter]:
    """Inputs by position, then params, then the outputs by name."""
    kinds = inspect.Parameter
    made = [p for p in signature_of(row).parameters.values() if p.name not in ("out", "stream", "pref", "device")]
    return [*made, *(kinds(name, kinds.KEYWORD_ONLY, default=None, annotation="Any") for name in row.formulas)]


def _reader(row: BackwardRow) -> Callable[..., Any]:
    """The descriptor's `of`."""
    word = inspect.Parameter.POSITIONAL_OR_KEYWORD
    plain = [p.replace(kind=word) if p.kind is p.POSITIONAL_ONLY else p for p in _parameters(row)]
    signature = inspect.Signature([inspect.Parameter("cls", word), *plain])

    def of(cls: Any, *arrays: Any, **given: Any) -> Any:
        bound = signature.bind(cls, *arrays, **given).arguments
        inputs = {name: bound.get(name) for name in row.arguments}
        params = {name: bound[name] for name in row.params if name in bound}
        return cls._of_row(row, (), inputs, {name: bound.get(name) for name in row.formulas}, params)

    of.__doc__ = "The descriptor of arrays as they lie, and of numbers beside them."
    of.__signature__ = signature  # type: ignore[attr-defined]
    return of


def _body(row: BackwardRow, descriptor: type[BackwardDescriptor]) -> Callable[..., Any]:
    """What gathers the arguments of a call: arrays, the gradients of what is an array or not an operand, and run-time numbers."""
    count = len(row.arguments)

    def body(*given: Any, **outputs: Any) -> CallArgs:
        inputs = dict(zip(row.arguments, given))
        values = {name: x for name, x in inputs.items() if type(x) in WEAK}
        without = {f"grad_{name}" for name, x in inputs.items() if x is None or name in values}
        operands = {name: x for name, x in outputs.items() if x is not None or name not in without}
        operands |= {name: x for name, x in inputs.items() if x is not None and name not in values}
        values |= zip(row.params, given[count:])
        types = tuple([type(x) if x is None or type(x) in WEAK else "array" for x in given[:count]])
        return operands, partial(descriptor.of, *given, **outputs), types, values, None

    body.__signature__ = inspect.Signature(_parameters(row), return_annotation="CallArgs")  # type: ignore[attr-defined]
    body.__name__, body.__module__, body.__doc__ = row.name, __name__, _documentation(row)
    return body


def _documentation(row: BackwardRow) -> str:
    saved = [name for name in row.arguments if name not in ("grad", *row.mask, *row.integers)]
    result = ", y its result" if row.takes_result else ""
    arrays = f"{'an array' if len(row.formulas) == 1 else 'arrays'} of the common shape and type"
    lines = [row.doc, "", "grad: the gradient of the result."]
    lines += [f"{', '.join(row.mask)}: an array of bool."] if row.mask else []
    lines += [f"{name}: an array of any integer type, or an int." for name in row.integers]
    lines += [f"{', '.join(saved)}: as in the call of {row.forward.name}{result}."] if saved else []
    lines += [f"{name}: a number given at run time, {default} by default." for name, default in row.params.items()]
    lines += [
        "Shapes broadcast, with any strides; f16, bf16, f32, f64. Numbers beside arrays take their type, and have no gradient.",
        f"{', '.join(row.formulas)}: {arrays}, grad or an input itself included;",
        "allocated in the axis order of the first full input if not given. Where the call broadcast an argument, its gradient",
        "is to be summed over the axes that it was broadcast along.",
        f"Returns {' and '.join(row.formulas)}. Raises InvalidProblemError where the shapes do not broadcast, OperandTypeError",
        "for a dtype that is not taken (integers have no gradient), OverlapError where an output partly overlaps an input.",
    ]
    return "\n".join(lines) + "\n"


def plan_of(
    row: BackwardRow, descriptor: type[BackwardDescriptor], category: OpCategory, **own: Any
) -> type[BackwardPlan]:
    """The plan class of a gradient."""
    own |= {"descriptor": descriptor, "category": category, "__module__": __name__, "declared_as": BackwardPlan}
    made: type[BackwardPlan] = type(_class_name(row, "Plan"), (BackwardPlan,), own)
    return made


def _probes(row: BackwardRow) -> tuple[dict[str, Any], ...]:
    """Problems of each type, and of operands that are broadcast."""

    def probe(kind: str, shape: tuple[int, ...], other: tuple[int, ...]) -> dict[str, Any]:
        own = dict.fromkeys(row.mask, "bool") | dict.fromkeys(row.integers, "i32")
        kinds = {f"{name}_element": own.get(name, kind) for name in row.arguments}
        return {f"{name}_shape": shape if name == "grad" else other for name in row.arguments} | kinds

    same = tuple(probe(kind, (3, 1030), (3, 1030)) for kind in ("f32", "bf16", "f16", "f64"))
    return (*same, probe("f32", (7, 64), (64,)), probe("bf16", (5, 4, 8), (4, 1)))


def _publish(forward: Op) -> None:
    """Registers the op of the gradients of an elementwise op."""
    known: Any = forward.plan.descriptor
    row = backward_row(ROWS[forward.name])
    descriptor = descriptor_of(row)
    doc = f"The gradients of {forward.name}: operands {', '.join((*row.arguments, *row.formulas))}."
    plan = plan_of(row, descriptor, forward.plan.category, probes=_probes(row), __doc__=doc)
    function = function_of(plan)(_body(row, descriptor))
    problems = partial(samples.backward, row, dict(zip(row.forward.arguments, known.inputs)), forward.samples)
    globals().update({descriptor.__name__: descriptor, plan.__name__: plan, row.name: function})
    __all__.append(row.name)
    register(Op(row.name, plan, function, problems, peers={"cupy": "", "torch": ""}))


for _folder in (elementwise, two_kinds):
    for _module in pkgutil.iter_modules(_folder.__path__, f"{_folder.__name__}."):
        if not _module.ispkg and not _module.name.endswith(".wanted"):
            importlib.import_module(_module.name)  # the tables
for _op in list(PUBLISHED.values()):
    if _op.gradient is not None and _op.gradient.op == f"{_op.name}_backward":
        _publish(_op)
