"""The cast from any kind of whole bytes to any other: a unary op whose result's kind is asked for."""

from __future__ import annotations

import inspect
from typing import Any

from ... import functional
from ...tensor.dispatch import trace_as
from ...types import ElementKind, ElementLike, PlanPreference
from . import oracle, samples
from ._family import publish
from ._row import BYTES, Row
from .two_kinds.scaled_cast import scaled_cast
from .unary import UnaryDescriptor, UnaryPlan

__all__ = ["cast"]

CAST = Row(
    "cast", "math::cast_bits<{of}, {to}>(x)", oracle.cast, "",
    "x in another dtype: floats to nearest even, beyond float8_e4m3fn's range NaN; floats to integers toward zero, to the end of "
    "the range beyond it and NaN to 0; integers to integers wrap; to bool, whether it is not 0.\n\n"
    "scale: of a cast to 8-bit floats or back, which is then `scaled_cast`.",
    result="given", header="math/cast.cuh", domain=tuple(kind for kind in BYTES if not kind.is_complex), instructions=(4, 6),
    peers={"cupy": "", "torch": ""}, gradient={"x": "grad"},
)  # fmt: skip


def cast(
    x: Any,
    /,
    dtype: ElementLike,
    *,
    scale: Any = None,
    out: Any = None,
    stream: Any = None,
    pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:
    if scale is not None:
        return scaled_cast(x, scale, dtype, out=out, stream=stream, pref=pref, device=device)
    kind = ElementKind.of(dtype)
    return functional.call(
        UnaryPlan, {"out": out, "x": x}, lambda: UnaryDescriptor.of("cast", x, out, kind), options=("cast", kind),
        stream=stream, pref=pref, device=device,
    )  # fmt: skip


publish(CAST, UnaryPlan, cast, samples.cast, __name__)
_signature: Any = inspect.signature(cast)
_parameters = list(_signature.parameters.values())
_parameters.insert(2, inspect.Parameter("scale", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Any))
cast.__signature__ = _signature.replace(parameters=_parameters)  # type: ignore[attr-defined]

_without_scale: Any = cast._torchdynamo_inline  # type: ignore[attr-defined]
_by_scale: Any = scaled_cast


def _traced(*given: Any, scale: Any = None, **named: Any) -> Any:
    """What TorchDynamo traces: with a scale, which may be an array, the custom op of `scaled_cast`, which has no gradient."""
    if scale is None:
        return _without_scale(*given, **named)
    return _by_scale(*given[:1], scale, *given[1:], **named)


trace_as(cast, _traced)
