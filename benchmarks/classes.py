"""The 200 products of the selection set by class, and how our best kernel stands to cuBLAS in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .products import Product
from .results import Record
from .selection import admitted, best_of
from .shapes import SHAPES
from .stats import geometric_mean

__all__ = ["ALIGNED", "CLASSES", "Duel", "duels", "split", "split_rows"]


def _plain(product: Product) -> bool:
    return product.dtype != "float32" and not product.ragged


ALIGNED = "16 bits, aligned"
CLASSES: dict[str, Callable[[Product], bool]] = {
    "decode, M ≤ 8": lambda p: _plain(p) and p.m <= 8,
    "8 < M ≤ 512": lambda p: _plain(p) and 8 < p.m <= 512,
    "M > 512": lambda p: _plain(p) and p.m > 512,
    "ragged pitch\n(cuBLAS unpadded)": lambda p: p.dtype != "float32" and p.ragged,
    "f32": lambda p: p.dtype == "float32",
}
"""Each product is in one of them; those of 16 bits are told apart by their rows and their pitch."""


class Duel(NamedTuple):
    """One product: microseconds of our best kernel and of cuBLAS."""

    product: Product
    source: str
    ours: float
    cublas: float

    @property
    def speedup(self) -> float:
        return self.cublas / self.ours

    @property
    def group(self) -> str:
        """The class that the product is in."""
        return next(name for name, holds in CLASSES.items() if holds(self.product))


def duels(records: Iterable[Record]) -> list[Duel]:
    """The products of a sweep that both were timed on."""
    shapes = {shape.name: shape for shape in SHAPES}
    found = []
    for record in records:
        ours, theirs = admitted(record, "bespoke"), admitted(record, "cublas")
        if ours and theirs:
            shape = shapes[record["name"]]
            found.append(Duel(shape.product, shape.source, best_of(ours)["us"], best_of(theirs)["us"]))
    return found


def split(found: Sequence[Duel]) -> list[tuple[str, list[float]]]:
    """The speed-ups of all products, of every class, and of the layers of models. A ragged pitch is no multiple of 16 bytes,
    which cuBLAS's fast kernels do not take; its user would pad, so that the aligned ones say more."""

    def of(holds: Callable[[Duel], bool]) -> list[float]:
        return [d.speedup for d in found if holds(d)]

    parts = {
        "all": of(lambda _: True),
        ALIGNED: of(lambda d: _plain(d.product)),
        **{" ".join(name.split()): of(lambda d, name=name: d.group == name) for name in CLASSES},
        "layers of named models": of(lambda d: d.source != "random"),
    }
    return [(name, speedups) for name, speedups in parts.items() if speedups]


def split_rows(found: Sequence[Duel]) -> list[tuple[str, ...]]:
    """`split` as the cells of a table."""
    return [
        (name, str(len(s)), f"{geometric_mean(s):.2f}×", str(sum(q < 1 for q in s)), f"{min(s):.2f}×")
        for name, s in split(found)
    ]
