"""The variants of matmul_backward: both gradients by one variant of matmul, or each by the best of those with kernels of ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...plan.candidate import OK, Candidate, Cost, Feasibility
from ...plan.lowering import Sub
from ...plan.select import Assessment, assess
from ...plan.selection import Selection
from ...runtime.steps import Ptr
from ...types import BackendKind, DeviceSpec, PlanPreference, PrecisionGuarantee
from ._candidates import CANDIDATES
from .matmul import MatmulPlan

__all__ = ["TWO_PRODUCTS"]

ANY = PlanPreference()


@dataclass(frozen=True)
class Pair:
    """A configuration: what is launched for each gradient."""

    parts: tuple[tuple[str, Selection], ...]

    def __str__(self) -> str:
        return " ".join(
            f"{name}={part.candidate.variant}" + (f"[{part.config}]" if str(part.config) else "")
            for name, part in self.parts
        )


@lru_cache(maxsize=64)
def _answers(desc: Any, device: DeviceSpec) -> tuple[Assessment, ...]:
    """What serves a product, the least predicted time first."""
    found = [a for a in assess(CANDIDATES, desc, ANY, device) if a.feasibility and a.cost is not None]
    return tuple(sorted(found, key=lambda a: a.cost.seconds if a.cost else 0.0))


class TwoProducts(Candidate[Any]):
    """Two products of transposed views, each a plan of `matmul` by one of `products`."""

    def __init__(self, variant: str, backend: BackendKind, products: Sequence[Candidate[Any]]) -> None:
        self.variant, self.backend, self._products = variant, backend, products  # type: ignore[misc]
        self.launches = tuple(dict.fromkeys(kernel for each in products for kernel in each.launches))  # type: ignore[misc]

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        for name, part in desc.parts.items():
            answers = [each.supports(part.canonical(), device) for each in self._products]
            if not any(answers):
                first = answers[0]
                return Feasibility(f"{name}: {first.reason}", first.fix, first.error)
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Pair]:
        """The fastest as predicted, and the fastest of which a row does not depend on the batch."""
        served = {
            name: [a for a in _answers(part.canonical(), device) if a.candidate in self._products]
            for name, part in desc.parts.items()
        }
        pairs = [self._pair(desc, device, served, invariant=invariant) for invariant in (False, True)]
        return {str(pair): pair for pair in pairs if pair is not None}.values()

    def _pair(self, desc: Any, device: DeviceSpec, served: Any, *, invariant: bool) -> Pair | None:
        parts = []
        for name, part in desc.parts.items():
            fit = (a for a in served[name] if not invariant or (a.guarantee and a.guarantee.batch_invariant))
            best = next(fit, None)
            if best is None:
                return None
            parts.append((name, Selection.of(MatmulPlan, part, ANY, device, best)))
        return Pair(tuple(parts))

    def cost(self, desc: Any, device: DeviceSpec, config: Pair) -> Cost:
        costs = [part.cost for _, part in config.parts]
        longest = max(costs, key=lambda cost: cost.seconds)
        return Cost(
            sum(c.bytes for c in costs), sum(c.flops for c in costs), sum(c.seconds for c in costs), longest.limit
        )

    def guarantee(self, desc: Any, device: DeviceSpec, config: Pair) -> PrecisionGuarantee:
        return PrecisionGuarantee.by_output(**{name: part.guarantee for name, part in config.parts})

    def lower(self, desc: Any, device: DeviceSpec, config: Pair) -> tuple[Sub, ...]:
        return tuple(_steps(desc, config))


def _steps(desc: Any, config: Pair) -> Iterator[Sub]:
    for name, part in config.parts:
        product = desc.products[name]
        yield Sub(part, {"a": Ptr(product.first.name), "b": Ptr(product.second.name), "out": Ptr(name)})


TWO_PRODUCTS: tuple[Candidate[Any], ...] = (
    TwoProducts("two_products", BackendKind.BESPOKE, [c for c in CANDIDATES if c.backend is BackendKind.BESPOKE]),
    *(TwoProducts(each.variant, each.backend, [each]) for each in CANDIDATES),
)
