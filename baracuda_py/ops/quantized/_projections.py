"""The variants of a projection to queries, keys and values: one launch that reads the tokens once, or three products."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.lowering import Place, Sub
from ...plan.selection import Selection, selected
from ...runtime.steps import Ptr, Scratch, Step
from ...types import BaracudaError, DeviceSpec, ElementKind, MathPrecision, PrecisionGuarantee
from ._int8_gemv import LAUNCHES as GEMV_LAUNCHES
from ._int8_gemv import (
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
from ._int8_guarantee import guarantee
from ._int8_problem import CODES, Product, across, group_of
from ._quantise import QuantiseRows
from .int8 import Int8MatmulPlan
from .quantize_int8 import QuantizeDescriptor, QuantizePlan

__all__ = ["FusedGemv", "ThreeProducts"]

PITCH = 16


@dataclass(frozen=True)
class Fused:
    """A configuration of one launch for all three; `quantise` is what quantises x ahead, where CTAs do not do so themselves."""

    gemv: GemvConfig
    quantise: Selection | None

    def __str__(self) -> str:
        return f"{self.gemv}{' quantise=' + self.quantise.candidate.variant if self.quantise else ''}"


class FusedGemv(Candidate[Any]):
    """Few tokens with i8 weights: the columns of all three in one launch (kernels/quantized/int8_gemv.cu)."""

    variant = "fused"
    launches = (*GEMV_LAUNCHES, *QuantiseRows.launches)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.weights != "int8":
            return no(f"weights are {desc.weights}")
        parts = _parts(desc)
        alike = {(x.has("scale_b"), x.has("bias"), x.element_of("bias"), group_of(x)) for x in parts}
        if len(alike) > 1:
            return no("the three do not have the same kinds of scales and biases", "three of each, or none")
        return refused(_products(desc), group_of(parts[0]))

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Fused]:
        quantise = _quantise(desc, device)
        yield from (Fused(config, quantise) for config in gemv_configs(_products(desc), device))
        floats = _floats(desc)
        if desc.dynamic and tokens_bytes(floats[0]) <= MOST_HELD:
            yield from (Fused(config, None) for config in gemv_configs(floats, device))

    def cost(self, desc: Any, device: DeviceSpec, config: Fused) -> Cost:
        seconds, limit = gemv_seconds(_products(desc), device, config.gemv)
        ahead = 0.0
        if desc.dynamic:
            alone = config.quantise
            ahead = alone.cost.seconds if alone else quantising_seconds(_floats(desc), device, config.gemv)
        return Cost(desc.nbytes, sum(x.flops for x in _products(desc)), ahead + seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Fused) -> PrecisionGuarantee:
        def of(part: Any) -> PrecisionGuarantee:
            if part.a_element in CODES or desc.dynamic:
                return guarantee(part, MathPrecision.INT8)
            return guarantee(part, MathPrecision.of(part.a_element.value), additions_of(part.product, config.gemv))

        return _by_output(desc, [of(matrix.desc) for matrix in desc.matrices])

    def lower(self, desc: Any, device: DeviceSpec, config: Fused) -> tuple[Step | Sub, ...]:
        if config.quantise is None:
            return gemv_launches(desc.matrices, config.gemv, Ptr("x"))
        ahead, places = _quantised(desc, config.quantise)
        matrices = [Matrix(x, m.called | places) for x, m in zip(_parts(desc), desc.matrices)]
        return (ahead, *gemv_launches(matrices, config.gemv, places["a"]))


def _parts(desc: Any) -> tuple[Any, ...]:
    """The products, of codes where x is quantised first."""
    parts = tuple(matrix.desc for matrix in desc.matrices)
    return tuple(desc.of_codes(x, _pitch(x.product.k)).canonical() for x in parts) if desc.dynamic else parts


def _floats(desc: Any) -> tuple[Product, ...]:
    return tuple(matrix.desc.product for matrix in desc.matrices)


def _products(desc: Any) -> tuple[Product, ...]:
    return tuple(part.product for part in _parts(desc))


@lru_cache(maxsize=256)
def _quantise(desc: Any, device: DeviceSpec) -> Selection | None:
    """How x is quantised, where that is asked for."""
    if not desc.dynamic:
        return None
    product = desc.matrices[0].desc.product
    a, shape = product.a, (product.m, product.k)
    made = QuantizeDescriptor(
        shape, a.element, x_strides=(a.row, a.col), x_align=a.align, codes_strides=(_pitch(product.k), 1)
    )  # type: ignore[call-arg]
    return selected(QuantizePlan, made, None, device)


def _quantised(desc: Any, selection: Selection) -> tuple[Sub, dict[str, Place]]:
    """The step that quantises x, and where the codes and scales are for the products."""
    product = desc.matrices[0].desc.product
    codes = Scratch.named("codes", product.m * _pitch(product.k))
    scales = Scratch.named("scales", ElementKind.F32.nbytes(product.m))
    return Sub(selection, {"x": Ptr("x"), "codes": codes, "scales": scales}), {"a": codes, "scale_a": scales}


def _by_output(desc: Any, each: list[PrecisionGuarantee]) -> PrecisionGuarantee:
    return PrecisionGuarantee.by_output(**dict(zip(desc.outputs, each)))


def _pitch(k: int) -> int:
    return max(1, across(k, PITCH)) * PITCH


@dataclass(frozen=True)
class Products:
    """A configuration: how x is quantised, if at all, and the three products."""

    quantise: Selection | None
    each: tuple[Selection, ...]

    def __str__(self) -> str:
        ahead = [f"quantise={self.quantise.candidate.variant}"] if self.quantise else []
        names = (f"{name}={one.candidate.variant}[{one.config}]" for name, one in zip("qkv", self.each))
        return " ".join((*ahead, *names))


@lru_cache(maxsize=256)
def _three(desc: Any, device: DeviceSpec) -> Products:
    each = tuple(selected(Int8MatmulPlan, part, None, device) for part in _parts(desc))
    return Products(_quantise(desc, device), each)


class ThreeProducts(Candidate[Any]):
    """Three products, each the best for its shape; floats that are to be quantised are so once."""

    variant = "three_products"
    launches = tuple(
        dict.fromkeys(k for c in (*QuantizePlan.candidates, *Int8MatmulPlan.candidates) for k in c.launches)
    )

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return OK if desc.weights == "int8" else no(f"weights are {desc.weights}")

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Products]:
        try:
            yield _three(desc, device)
        except BaracudaError:  # one of them has no kernel
            return

    def cost(self, desc: Any, device: DeviceSpec, config: Products) -> Cost:
        costs = [one.cost for one in (*((config.quantise,) if config.quantise else ()), *config.each)]
        return Cost(desc.nbytes, sum(c.flops for c in costs), sum(c.seconds for c in costs), costs[-1].limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Products) -> PrecisionGuarantee:
        if desc.dynamic:
            return _by_output(desc, [guarantee(matrix.desc, MathPrecision.INT8) for matrix in desc.matrices])
        return _by_output(desc, [one.guarantee.of("out") for one in config.each])

    def lower(self, desc: Any, device: DeviceSpec, config: Products) -> tuple[Sub, ...]:
        subs: list[Sub] = []
        moved: dict[str, Place] = {}
        if config.quantise is not None:
            ahead, moved = _quantised(desc, config.quantise)
            subs.append(ahead)
        for part, matrix, one in zip(_parts(desc), desc.matrices, config.each):
            places = {o.name: matrix.called.get(o.name, Ptr(o.name)) for o in part.operands}
            subs.append(Sub(one, places | moved))
        return tuple(subs)
