"""``python -m tests.ones --seconds N``: products of matrices of ones, whose every element must be K.

A library that loses the end of K gives less than K. cuBLASLt 12.8 to 13.1 does at some shapes (facebookexperimental/triton#2767),
by a few parts in ten thousand, so that no comparison with a tolerance shows it; ones do. Each shape goes through what `select`
takes among our kernels and, with ``--ways own library``, through the library as variant `cublas` calls it, whatever the variant
refuses. Needs a GPU; prints and writes how many shapes were multiplied, how many came back short, and the first of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import random
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

import baracuda_py as bp
from baracuda_py.types import PlanPreference

from .ledger import commit_of, machine
from .places import TESTS

ELEMENTS = 1 << 24  # of the matrices that every operand is a part of
SHOWN = 40  # short products that are written down
CHECKED = 64  # products between two looks at what came back
OWN = PlanPreference(backend="bespoke")

# Counts elements that differ from `wanted`, and leaves NaN for the next product to overwrite.
_CHECK = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <class T> __global__ void check(T* out, long long n, float wanted, unsigned long long* wrong) {
    unsigned int mine = 0;
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
        mine += float(out[i]) != wanted;
        out[i] = T(__int_as_float(0x7fffffff));
    }
    if (mine) atomicAdd(wrong, (unsigned long long)mine);
}
"""
_TYPES = {"f32": "float", "f16": "__half", "bf16": "__nv_bfloat16"}


class Product(NamedTuple):
    """One product of ones: its extents, types, and which operands are transposed views."""

    m: int
    n: int
    k: int
    element: str
    out: str
    a_transposed: bool
    b_transposed: bool

    def descriptor(self) -> bp.MatmulDescriptor:
        """The problem, with every operand contiguous in one of both orders."""
        m, n, k = self[:3]
        a_strides, b_strides = (1, m) if self.a_transposed else (k, 1), (1, k) if self.b_transposed else (n, 1)
        return bp.MatmulDescriptor(
            (m, k), (k, n), self.element, self.element, out_element=self.out, a_strides=a_strides, b_strides=b_strides
        )


def products(rng: random.Random, multiple: int = 1) -> Iterator[Product]:
    """Small outputs with a long K, which libraries split, and larger ones; one in three extents a multiple of 8, and every K one
    of `multiple`."""
    while True:
        small = rng.random() < 0.7
        m = rng.randint(1, 256 if small else 1024)
        n = rng.randint(1, 256 if small else 2048)
        k = rng.randint(64, 65536 if small else 16384)
        n = max(n // 8 * 8, 8) if rng.random() < 0.3 else n
        k = k // 8 * 8 if rng.random() < 0.3 else k
        k = max(k // multiple, 1) * multiple
        element = rng.choice(("f16", "bf16"))
        # f16 tells K from K - 32 up to 65,504, bf16 up to 8,192; f32 always.
        narrow = rng.random() < 0.25 and k <= (65504 if element == "f16" else 8192)
        if m * k <= ELEMENTS and n * k <= ELEMENTS:
            yield Product(m, n, k, element, element if narrow else "f32", rng.random() < 0.5, rng.random() < 0.5)


class Way:
    """How products are made, and which of them came back with an element that is not K."""

    def __init__(self, name: str, cupy: Any) -> None:
        self.name, self._cupy = name, cupy
        self.shapes = self.short = 0
        self.found: list[Product] = []
        self._waiting: list[Product] = []
        self._wrong = cupy.zeros(CHECKED, "u8")
        names = [f"check<{t}>" for t in _TYPES.values()]
        module = cupy.RawModule(code=_CHECK, options=("--std=c++17",), name_expressions=names)
        self._check = {kind: module.get_function(f"check<{t}>") for kind, t in _TYPES.items()}
        self._outs = {kind: cupy.full(1 << 21, np.nan, _dtype(kind)) for kind in _TYPES}

    def out(self, product: Product) -> Any:
        """The place of the result, which holds NaN."""
        return self._outs[product.out][: product.m * product.n].reshape(product.m, product.n)

    def made(self, product: Product) -> None:
        """Queues the check of a product that was launched into `out(product)`."""
        size = product.m * product.n
        wanted = np.float32(np.float64(product.k).astype(_dtype(product.out)))
        slot = self._wrong[len(self._waiting) :]
        self._check[product.out]((min(-(-size // 256), 264),), (256,), (self._outs[product.out], size, wanted, slot))
        self._waiting.append(product)
        if len(self._waiting) == CHECKED:
            self.look()

    def look(self) -> None:
        """Waits for the checks that are queued."""
        for product, wrong in zip(self._waiting, self._wrong.get().tolist()):
            self.shapes += 1
            if wrong:
                self.short += 1
                self.found.append(product)
        self._waiting.clear()
        self._wrong.fill(0)


def _dtype(kind: str) -> np.dtype[Any]:
    return bp.ElementKind.of(kind).dtype


def _own(_product: Product, a: Any, b: Any, out: Any) -> None:
    bp.matmul(a, b, out=out, pref=OWN)


def _library(product: Product, a: Any, b: Any, out: Any) -> None:
    """Variant `cublas`'s own call, whatever it refuses."""
    from baracuda_py.ops.gemm._variants.cublas import Cublas
    from baracuda_py.runtime.steps import WORKSPACE

    spec = bp.Device(0).spec
    (step,) = Cublas().lower(product.descriptor().canonical(), spec, None)
    scratch = _scratch(step.scratch.nbytes)
    pointers = {"a": a.data.ptr, "b": b.data.ptr, "out": out.data.ptr, WORKSPACE: scratch.data.ptr}
    step.function(pointers, {"alpha": 1.0}, 0)


_held: dict[int, Any] = {}


def _scratch(nbytes: int) -> Any:
    import cupy

    return _held.setdefault(nbytes, cupy.empty(nbytes, "u1"))


WAYS = {"own": _own, "library": _library}


def work(seed: int, seconds: float, names: Sequence[str], multiple: int) -> list[dict[str, Any]]:
    """One process's share: its own random shapes for so many seconds."""
    import cupy

    rng = random.Random(seed)
    ones = {kind: cupy.full(ELEMENTS, 1, _dtype(kind)) for kind in ("f16", "bf16")}
    ways = [Way(name, cupy) for name in names]
    began = time.monotonic()
    for product in products(rng, multiple):
        if time.monotonic() - began >= seconds:
            break
        m, n, k = product[:3]
        flat = ones[product.element]
        a = flat[: m * k].reshape(k, m).T if product.a_transposed else flat[: m * k].reshape(m, k)
        b = flat[: n * k].reshape(n, k).T if product.b_transposed else flat[: n * k].reshape(k, n)
        for way in ways:
            WAYS[way.name](product, a, b, way.out(product))
            way.made(product)
    for way in ways:
        way.look()
    return [
        {"way": w.name, "shapes": w.shapes, "short": w.short, "found": [p._asdict() for p in w.found]} for w in ways
    ]


def main() -> None:
    """Multiplies until the time is over, in several processes."""
    parser = argparse.ArgumentParser(prog="python -m tests.ones", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commit", help="what is tested, where this is no git checkout")
    parser.add_argument("--multiple", type=int, default=1, help="of which every K is a multiple")
    parser.add_argument("--ways", nargs="+", default=["own"], choices=list(WAYS))
    parser.add_argument("--out", type=Path, help="a JSON file to write")
    given = parser.parse_args()
    with mp.get_context("spawn").Pool(given.jobs) as pool:
        seeds = [(given.seed * 1000 + i, given.seconds, given.ways, given.multiple) for i in range(given.jobs)]
        parts = [part for share in pool.starmap(work, seeds) for part in share]
    record: dict[str, Any] = {
        "date": date.today().isoformat(),
        "commit": given.commit or commit_of(TESTS),
        "machine": machine(),
        "seed": given.seed,
        "multiple": given.multiple,
    }
    for name in given.ways:
        mine = [p for p in parts if p["way"] == name]
        found = [f for p in mine for f in p["found"]]
        record[name] = {
            "shapes": sum(p["shapes"] for p in mine),
            "short": sum(p["short"] for p in mine),
            "short_by_k_mod_64": _counted(f["k"] % 64 for f in found),
            "found": found[:SHOWN],
        }
        Console().print(f"{name}: {record[name]['shapes']} shapes, {record[name]['short']} short", highlight=False)
    if given.out:
        given.out.write_text(json.dumps(record, indent=1) + "\n")


def _counted(values: Iterator[int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for value in values:
        counts[str(value)] = counts.get(str(value), 0) + 1
    return dict(sorted(counts.items(), key=lambda item: int(item[0])))


if __name__ == "__main__":
    main()
