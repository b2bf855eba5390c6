"""The variant of linear cross entropy: rows in chunks, whose logits are scratch.

For every chunk: a product gives its logits, rounded to the operands' kind; the kernels of cross entropy give the losses and
overwrite the logits with their gradients; two products give grad_hidden's rows, and add to grad_weight, in the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ....plan.candidate import Candidate, Cost
from ....plan.lowering import Sub
from ....plan.select import cheapest
from ....plan.selection import Selection, selected
from ....runtime.steps import Arg, Fill, Launch, Ptr, Scratch, Step
from ....types import BackendKind, DeviceSpec, PlanPreference, PrecisionGuarantee
from ..._fill import FILL, filled
from ...gemm.matmul import MatmulDescriptor, MatmulPlan
from .. import _guarantee as rows_guarantee
from ..cross_entropy import CrossEntropyBackwardPlan, CrossEntropyPlan
from . import _guarantee
from ._problem import LinearProblem

__all__ = ["Chunked"]

PRODUCTS = tuple(each for each in MatmulPlan.candidates if each.backend is BackendKind.BESPOKE)
ANY = PlanPreference()
ALIGN = 256  # bytes


@dataclass(frozen=True)
class Chunks:
    """A configuration: the rows of a chunk, and what is launched for chunks of a size, the first one and later ones."""

    rows: int
    parts: Mapping[tuple[int, bool], Mapping[str, Selection]]

    def __str__(self) -> str:
        named = next(iter(self.parts.values()), {}).items()
        said = (f"{name}={part.candidate.variant}[{part.config}]" for name, part in named)
        return " ".join((f"rows={self.rows}", *said))

    def each(self, name: str) -> Iterator[Selection]:
        return (parts[name] for parts in self.parts.values())


@lru_cache(maxsize=1024)
def _product(desc: MatmulDescriptor, device: DeviceSpec) -> Selection | None:
    """The product's kernel of ours that is predicted to be fastest."""
    found = cheapest(PRODUCTS, desc.canonical(), ANY, device)
    return Selection.of(MatmulPlan, desc, ANY, device, found[0]) if found else None


def _parts(
    desc: LinearProblem, size: int, rows: int, device: DeviceSpec, *, first: bool
) -> Iterator[tuple[str, Selection]]:
    """What serves a chunk of `size` rows; without a product that no kernel serves."""
    for name in ("logits", *desc.gradients):
        if (product := _product(desc.product(name, size, rows, first=first), device)) is not None:
            yield name, product
    if not desc.given:
        lse = desc.has("lse") or bool(desc.gradients)
        yield "losses", selected(CrossEntropyPlan, desc.losses(size, lse=lse), None, device)
    if desc.gradients:
        yield "slopes", selected(CrossEntropyBackwardPlan, desc.slopes(size), None, device)


def _launch_of(step: Step, places: Mapping[str, Arg]) -> Launch:
    """A launch with operands at other places."""
    assert isinstance(step, Launch)
    args = (places.get(arg.operand, arg) if isinstance(arg, Ptr) else arg for arg in step.args)
    return replace(step, args=tuple(args))


def _rows_launch(part: Selection, name: str, types: str, scratch: Arg) -> Step:
    """The launch over the rows of a chunk."""
    launched: Step = part.desc.rows_launch(name, types, part.config, scratch, unaligned=part.candidate.unaligned)[-1]
    return launched


class _Regions:
    """Scratch, one region behind the other."""

    def __init__(self) -> None:
        self.end = 0

    def region(self, nbytes: int) -> Scratch:
        made = Scratch(self.end, max(nbytes, 1))
        self.end += -(-made.nbytes // ALIGN) * ALIGN
        return made


def _behind(place: Scratch, nbytes: int) -> Scratch:
    return Scratch(place.offset + nbytes, place.nbytes - nbytes)


class Chunked(Candidate[LinearProblem]):
    """Products of chunks of rows, and the kernels of cross entropy between them."""

    variant = "chunked"
    launches = tuple(
        dict.fromkeys(
            (
                *(kernel for each in PRODUCTS for kernel in each.launches),
                *(kernel for each in CrossEntropyPlan.candidates for kernel in each.launches),
                *(kernel for each in CrossEntropyBackwardPlan.candidates for kernel in each.launches),
                FILL,
            )
        )
    )

    def configs(self, desc: LinearProblem, device: DeviceSpec) -> Iterator[Chunks]:
        for rows in desc.chunk_rows():
            parts: dict[tuple[int, bool], dict[str, Selection]] = {}
            for start, size in desc.pieces(rows):
                if (size, start == 0) not in parts:
                    parts[size, start == 0] = dict(_parts(desc, size, rows, device, first=start == 0))
            if all(each.keys() >= {"logits", *desc.gradients} for each in parts.values()):
                yield Chunks(rows, parts)

    def cost(self, desc: LinearProblem, device: DeviceSpec, config: Chunks) -> Cost:
        costs = [
            part.cost
            for start, size in desc.pieces(config.rows)
            for part in config.parts[size, start == 0].values()
        ]  # fmt: skip
        if not costs:
            return Cost.streaming(device, desc.nbytes)
        longest = max(costs, key=lambda cost: cost.seconds)
        return Cost(desc.nbytes, sum(c.flops for c in costs), sum(c.seconds for c in costs), longest.limit)

    def guarantee(self, desc: LinearProblem, device: DeviceSpec, config: Chunks) -> PrecisionGuarantee:
        products = {
            name: _guarantee.Product.of([part.guarantee for part in config.each(name)])
            for name in ("logits", *desc.gradients)
        }
        row = 0
        if not desc.given and config.parts:
            row = max(part.config.depth(desc.shape[1]) for part in config.each("losses"))
        chunks = sum(1 for _ in desc.pieces(config.rows))
        return _guarantee.guarantee(desc, products, row=row, rows=rows_guarantee.depth(desc.count), chunks=chunks)

    def lower(self, desc: LinearProblem, device: DeviceSpec, config: Chunks) -> tuple[Step | Sub, ...]:
        return tuple(_steps(desc, config))


def _steps(desc: LinearProblem, config: Chunks) -> Iterator[Step | Sub]:
    computed, regions, whole = desc.computed, _Regions(), desc.losses(desc.count, chunk=False)
    reduced = not desc.given and desc.reduction != "none"
    losses = regions.region(computed.nbytes(desc.count)) if reduced else None
    one, sums = regions.region(computed.nbytes(1)), regions.region(computed.nbytes(2))
    lse, logits = regions.region(computed.nbytes(config.rows)), regions.region(desc.logits_bytes(config.rows))
    if desc.has("status"):
        yield Fill(Ptr("status"), 0, 4)
    if desc.gradients and not desc.given:
        yield filled(one, (1,), (1,), computed, 1)
    if desc.gradients and desc.reduction == "mean":
        yield whole.total_launch(np.uint64(0), sums)
    if "grad_weight" in desc.gradients and not desc.count:
        x = desc.layout("grad_weight")
        yield filled(Ptr("grad_weight"), x.shape, x.strides, x.element, 0)
    for start, size in desc.pieces(config.rows):
        parts = config.parts[size, start == 0]

        def of(name: str, start: int = start) -> Ptr:
            return Ptr(name, start * desc.row_bytes(name))

        places: dict[str, Arg] = {"labels": of("labels"), "logits": logits, "grad_logits": logits}
        places["lse"] = of("lse") if desc.has("lse") else lse
        yield Sub(parts["logits"], {"a": of("hidden"), "b": Ptr("weight"), "out": logits})
        if not desc.given:
            places["out"] = _behind(losses, computed.nbytes(start)) if losses else of("out")
            part = parts["losses"]
            yield _launch_of(_rows_launch(part, "cross_entropy", part.desc.types(), np.uint64(0)), places)
        if not desc.gradients:
            continue
        part, mean = parts["slopes"], desc.reduction == "mean"
        places["grad"] = of("grad") if desc.given else one
        types, factor = f"{part.desc.types()}, {str(mean).lower()}", sums if mean else np.uint64(0)
        yield _launch_of(_rows_launch(part, "cross_entropy_backward", types, factor), places)
        if "grad_hidden" in parts:
            yield Sub(parts["grad_hidden"], {"a": logits, "b": Ptr("weight"), "out": of("grad_hidden")})
        if "grad_weight" in parts:
            total = Ptr("grad_weight")
            yield Sub(parts["grad_weight"], {"a": logits, "b": of("hidden"), "out": total, "c": total})
    if losses:
        yield whole.total_launch(losses, Ptr("out"))
