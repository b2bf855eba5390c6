"""The variants of matmul_backward: both gradients by one variant of matmul, or each by the best of those with kernels of ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...plan.candidate import OK, Candidate, Cost, Feasibility
from ...plan.lowering import Sub
from ...plan.select import Assessment, cheapest
from ...plan.selection import Selection
from ...runtime.steps import Ptr
from ...types import BackendKind, DeviceSpec, PlanPreference, PrecisionGuarantee
from ._candidates import CANDIDATES
from .matmul import MatmulPlan

__all__ = ["TWO_PRODUCTS"]

ANY, INVARIANT = PlanPreference(), PlanPreference(batch_invariant=True)


@dataclass(frozen=True)
class Pair:
    """A configuration: what is launched for each gradient."""

    parts: tuple[tuple[str, Selection], ...]

    def __str__(self) -> str:
        return " ".join(
            f"{name}={part.candidate.variant}" + (f"[{part.config}]" if str(part.config) else "")
            for name, part in self.parts
        )


@lru_cache(maxsize=256)
def _fastest(
    products: tuple[Candidate[Any], ...], desc: Any, pref: PlanPreference, device: DeviceSpec
) -> tuple[Assessment, float] | None:
    """The product variant that is predicted to be fastest for one gradient, with its seconds."""
    return cheapest(products, desc, pref, device)


class TwoProducts(Candidate[Any]):
    """Two products of transposed views, each a plan of `matmul` by one of `products`."""

    def __init__(self, variant: str, backend: BackendKind, products: Sequence[Candidate[Any]]) -> None:
        self.variant, self.backend, self._products = variant, backend, tuple(products)  # type: ignore[misc]
        self.launches = tuple(dict.fromkeys(kernel for each in products for kernel in each.launches))  # type: ignore[misc]

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        for name, part in desc.canonical_parts.items():
            if not any(each.supports(part, device) for each in self._products):
                first = self._products[0].supports(part, device)
                return Feasibility(f"{name}: {first.reason}", first.fix, first.error)
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Pair]:
        return [pair for pair, _ in self._pairs(desc, device)]

    def floor(self, desc: Any, device: DeviceSpec) -> float:
        return sum(min(each.floor(part, device) for each in self._products) for part in desc.canonical_parts.values())

    def ranked(self, desc: Any, device: DeviceSpec) -> Iterator[tuple[Pair, float]]:
        return iter(sorted(self._pairs(desc, device), key=lambda priced: priced[1]))

    def _pairs(self, desc: Any, device: DeviceSpec) -> list[tuple[Pair, float]]:
        """The pair that is predicted to be fastest, and the fastest batch-invariant one, with their seconds."""
        pairs: dict[str, tuple[Pair, float]] = {}
        for pref in (ANY, INVARIANT):
            parts, total = [], 0.0
            for name, part in desc.parts.items():
                found = _fastest(self._products, desc.canonical_parts[name], pref, device)
                if found is None:
                    break
                parts.append((name, Selection.of(MatmulPlan, part, ANY, device, found[0])))
                total += found[1]
            else:
                pair = Pair(tuple(parts))
                pairs.setdefault(str(pair), (pair, total))
        return list(pairs.values())

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
