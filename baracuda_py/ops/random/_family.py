"""From a distribution's descriptor to its plan and public function."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from ...plan.candidate import exact_results
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import PrecisionGuarantee
from .._function import function_of
from . import oracle, samples
from ._drawn import VALUES, Drawn, FillRandom

__all__ = ["FILLS", "DrawnPlan", "published"]

COLUMNS = 125  # of the documentation
FILLS = set[Callable[..., Any]]()  # the functions of all distributions


class DrawnPlan(Plan[Drawn]):
    """What the plans of random fills share: operand `x`, and `position` where the offset is in memory."""

    candidates = (FillRandom(),)
    measures = oracle.MEASURES

    @staticmethod
    def reference_guarantee(desc: Drawn) -> PrecisionGuarantee:
        return oracle.guarantee(desc) if desc.errors else exact_results(desc)


def published(
    descriptor: type[Drawn],
    what: str,
    law: str,
    probes: Mapping[str, tuple[int, ...]],
    peer: str = "",
    kinds: str = "f16, bf16, f32 or f64",
) -> tuple[type[DrawnPlan], Callable[..., Any]]:
    """The plan and the function of a distribution, which are registered. `what` are its numbers, `law` tells how they are made of
    the random bits, and what it raises; `peer` is the function in PyTorch."""
    name = str(descriptor.name)  # type: ignore[attr-defined]
    own = {
        "__doc__": f"{what[0].upper()}{what[1:]}: operand `x`, and `position` where the offset is in memory.",
        "__module__": descriptor.__module__, "declared_as": DrawnPlan, "descriptor": descriptor,
        "reference": getattr(oracle, name),
        "probes": tuple({"shape": shape, "element": kind} for kind, shape in probes.items()),
    }  # fmt: skip
    plan: type[DrawnPlan] = type(descriptor.__name__.removesuffix("Descriptor") + "Plan", (DrawnPlan,), own)

    def template() -> Any: ...

    template.__signature__ = _signature(descriptor)  # type: ignore[attr-defined]
    template.__module__ = descriptor.__module__
    made, raises, raised = law.partition("Raises ")
    first = f"Sets the elements of `x` to {what}, in place, and returns `x`; `{name.removeprefix('fill_')}` makes the array."
    rest = f"""x: an array of {kinds}, any strides. {made} position: an array of one i64 in x's memory, which is added to `offset`
        when the kernel runs. {raises}{raised}"""
    doc = "\n\n".join(textwrap.fill(" ".join(text.split()), COLUMNS, break_long_words=False) for text in (first, rest))
    function = function_of(plan, called=name, doc=doc + "\n")(template)
    FILLS.add(function)
    register(Op(name, plan, function, getattr(samples, name), peers={"torch": peer} if peer else {}))
    return plan, function


def _signature(descriptor: type[Drawn]) -> inspect.Signature:
    """x and the distribution's numbers by position, the place in the stream by name."""
    word, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    values = [field for field in fields(descriptor) if field.name in descriptor.values]
    parameters = [inspect.Parameter("x", word, annotation="Any")]
    for field in values:
        kind = by_name if field.name in VALUES else word
        parameters.append(inspect.Parameter(field.name, kind, default=field.default, annotation=field.type))
    parameters.append(inspect.Parameter("position", by_name, default=None, annotation="Any"))
    return inspect.Signature(parameters, return_annotation="Any")
