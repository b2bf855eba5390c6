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
from ._int8_gemv import GemvConfig, additions_of, gemv_configs, gemv_launches, gemv_seconds, refused
from ._int8_guarantee import guarantee
from ._int8_problem import CODES, group_of
from .int8 import Int8MatmulPlan
from .quantize_int8 import QuantizeDescriptor, QuantizePlan

__all__ = ["FusedGemv", "ThreeProducts"]

PITCH = 16


class FusedGemv(Candidate[Any]):
    """Few tokens with i8 weights: the columns of all three in one launch (kernels/quantized/int8_gemv.cu)."""

    variant = "fused"
    launches = GEMV_LAUNCHES

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.weights != "int8":
            return no(f"weights are {desc.weights}")
        if desc.dynamic:
            return no("x is to be quantised first", "the variant three_products")
        parts = [matrix.desc for matrix in desc.matrices]
        alike = {(x.has("scale_b"), x.has("bias"), x.element_of("bias"), group_of(x)) for x in parts}
        if len(alike) > 1:
            return no("the three do not have the same kinds of scales and biases", "three of each, or none")
        return refused([x.product for x in parts], group_of(parts[0]))

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[GemvConfig]:
        return gemv_configs(_products(desc), device)

    def cost(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> Cost:
        seconds, limit = gemv_seconds(_products(desc), device, config)
        return Cost(desc.nbytes, sum(x.flops for x in _products(desc)), seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> PrecisionGuarantee:
        def of(part: Any) -> PrecisionGuarantee:
            if part.a_element in CODES:
                return guarantee(part, MathPrecision.INT8)
            return guarantee(part, MathPrecision.of(part.a_element.value), additions_of(part.product, config))

        return _by_output(desc, [of(matrix.desc) for matrix in desc.matrices])

    def lower(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> tuple[Step, ...]:
        return gemv_launches(desc.matrices, config, Ptr("x"))


def _products(desc: Any) -> tuple[Any, ...]:
    return tuple(matrix.desc.product for matrix in desc.matrices)


def _by_output(desc: Any, each: list[PrecisionGuarantee]) -> PrecisionGuarantee:
    return PrecisionGuarantee.by_output(**dict(zip(desc.outputs, each)))


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
    quantise = None
    parts = [matrix.desc for matrix in desc.matrices]
    if desc.dynamic:
        a = parts[0].product.a
        m, k = parts[0].product.m, parts[0].product.k
        made = QuantizeDescriptor(
            (m, k), a.element, x_strides=(a.row, a.col), x_align=a.align, codes_strides=(_pitch(k), 1)
        )  # type: ignore[call-arg]
        quantise = selected(QuantizePlan, made, None, device)
        parts = [desc.of_codes(part, _pitch(k)) for part in parts]
    return Products(quantise, tuple(selected(Int8MatmulPlan, part, None, device) for part in parts))


def _pitch(k: int) -> int:
    return max(1, -(-k // PITCH)) * PITCH


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
        subs, moved = [], {}
        if config.quantise is not None:
            m, k = desc.matrices[0].desc.product.m, desc.matrices[0].desc.product.k
            moved = {
                "a": Scratch.named("codes", m * _pitch(k)), "scale_a": Scratch.named("scales", ElementKind.F32.nbytes(m)),
            }  # fmt: skip
            subs.append(Sub(config.quantise, {"x": Ptr("x"), "codes": moved["a"], "scales": moved["scale_a"]}))
        for (part, called), one in zip(desc.matrices, config.each):
            places: dict[str, Place] = {o.name: Ptr(called.get(o.name, o.name)) for o in part.operands}
            subs.append(Sub(one, places | moved))
        return tuple(subs)
