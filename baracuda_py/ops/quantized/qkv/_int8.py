"""Queries, keys and values of few tokens and i8 weights in one launch, which reads the tokens once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ....plan.candidate import Candidate, Cost, Feasibility, no
from ....plan.lowering import Sub
from ....plan.selection import Selection
from ....runtime.steps import Ptr, Step
from ....types import DeviceSpec, MathPrecision, PrecisionGuarantee
from ..int8.gemv import LAUNCHES as GEMV_LAUNCHES
from ..int8.gemv import (
    MOST_HELD,
    GemvConfig,
    Matrix,
    additions_of,
    gemv_configs,
    gemv_launches,
    gemv_seconds,
    quantising_seconds,
    refused,
    tokens_bytes,
)  # fmt: skip
from ..int8.guarantee import guarantee
from ..int8.problem import CODES, Product, group_of
from ..int8.quantize_kernels import QuantizeRows
from ..int8.quantized_tokens import of_codes, quantized, quantizing
from ._projections import by_output, unturned

__all__ = ["FusedGemv"]


@dataclass(frozen=True)
class Fused:
    """A configuration of one launch for all three; `quantize` is what quantises x ahead, where CTAs do not do so themselves."""

    gemv: GemvConfig
    quantize: Selection | None

    def __str__(self) -> str:
        return f"{self.gemv}{' quantize=' + self.quantize.candidate.variant if self.quantize else ''}"


class FusedGemv(Candidate[Any]):
    """Few tokens with i8 weights: the columns of all three in one launch (kernels/quantized/int8_gemv.cu)."""

    variant = "fused"
    launches = (*GEMV_LAUNCHES, *QuantizeRows.launches)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.weights != "int8":
            return no(f"weights are {desc.weights}")
        if not (said := unturned(desc)):
            return said
        parts = _parts(desc)
        alike = {(x.has("scale_b"), x.has("bias"), x.element_of("bias"), group_of(x)) for x in parts}
        if len(alike) > 1:
            return no("the three do not have the same kinds of scales and biases", "three of each, or none")
        return refused(_products(desc), group_of(parts[0]))

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Fused]:
        ahead = quantizing(desc.matrices[0].desc, device) if desc.dynamic else None
        yield from (Fused(config, ahead) for config in gemv_configs(_products(desc), device))
        floats = _floats(desc)
        if desc.dynamic and tokens_bytes(floats[0]) <= MOST_HELD:
            yield from (Fused(config, None) for config in gemv_configs(floats, device))

    def cost(self, desc: Any, device: DeviceSpec, config: Fused) -> Cost:
        seconds, limit = gemv_seconds(_products(desc), device, config.gemv)
        ahead = 0.0
        if desc.dynamic:
            alone = config.quantize
            ahead = alone.cost.seconds if alone else quantising_seconds(_floats(desc), device, config.gemv)
        return Cost(desc.nbytes, sum(x.flops for x in _products(desc)), ahead + seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Fused) -> PrecisionGuarantee:
        def of(part: Any) -> PrecisionGuarantee:
            if part.a_element in CODES or desc.dynamic:
                return guarantee(part, MathPrecision.INT8)
            return guarantee(part, MathPrecision.of(part.a_element.value), additions_of(part.product, config.gemv))

        return by_output(desc, [of(matrix.desc) for matrix in desc.matrices])

    def lower(self, desc: Any, device: DeviceSpec, config: Fused) -> tuple[Step | Sub, ...]:
        if config.quantize is None:
            return gemv_launches(desc.matrices, config.gemv, Ptr("x"))
        ahead, places = quantized(desc.matrices[0].desc.product, config.quantize, Ptr("x"))
        matrices = [Matrix(x, {**m.renames, **places}) for x, m in zip(_parts(desc), desc.matrices)]
        return (ahead, *gemv_launches(matrices, config.gemv, places["a"]))


def _parts(desc: Any) -> tuple[Any, ...]:
    """The products, of codes where x is quantised first."""
    parts = tuple(matrix.desc for matrix in desc.matrices)
    return tuple(of_codes(part).canonical() for part in parts) if desc.dynamic else parts


def _floats(desc: Any) -> tuple[Product, ...]:
    return tuple(matrix.desc.product for matrix in desc.matrices)


def _products(desc: Any) -> tuple[Product, ...]:
    return tuple(part.product for part in _parts(desc))
