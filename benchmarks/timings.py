"""Measured times of kernels, from committed files, each with what its cost model is asked. Needs no GPU."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baracuda_py import MatmulPlan
from baracuda_py.plan.candidate import Candidate
from baracuda_py.plan.selection import Selection
from baracuda_py.runtime.system.libraries import FILES
from baracuda_py.types import DeviceSpec, known_devices

from .results import DIRECTORY, Record, read
from .run import chosen
from .selection import read_sweep
from .shapes import ROWS, SHAPES
from .stale import selections

__all__ = ["Timing", "committed", "device_of", "of_results", "of_sweep", "timings_of"]


@dataclass(frozen=True)
class Timing:
    """The seconds that one configuration of a candidate took for a problem."""

    problem: str
    candidate: Candidate[Any]
    desc: Any
    config: Any
    seconds: float

    def predicted(self, device: DeviceSpec) -> float:
        return float(self.candidate.cost(self.desc, device, self.config).seconds)


def device_of(gpu: str) -> DeviceSpec:
    """The GPU with shipped figures of that short name (``"h200"``), with every library."""
    return DeviceSpec.named(gpu).with_libraries(frozenset(FILES))


def of_sweep(records: Iterable[Record], device: DeviceSpec) -> Iterator[Timing]:
    """The times of a sweep of products (`benchmarks.sweep`); configurations that are on no menu any more are left out."""
    products = {shape.name: shape.product for shape in (*SHAPES, *ROWS)}
    candidates = {c.variant: c for c in MatmulPlan.all_candidates()}
    for record in records:
        product, menus = products.get(record["name"]), dict[str, dict[str, Any]]()
        if product is None:
            continue
        desc = product.descriptor().canonical()
        for timed in record.get("timed", ()):
            variant = timed["variant"]
            candidate = candidates.get(variant)
            if candidate is None:
                continue
            if variant not in menus:
                supported = candidate.supports(desc, device)
                menus[variant] = {str(c): c for c in candidate.configs(desc, device)} if supported else {}
            if timed["config"] in menus[variant]:
                config = menus[variant][timed["config"]]
                yield Timing(record["name"], candidate, desc, config, timed["us"] * 1e-6)


def of_results(path: Path, gpu: str) -> Iterator[Timing]:
    """The times of benchmark rows that launch one plan, where `select` still takes the kernel that was measured."""
    rows = {row.key: row for row in chosen([])}
    for record in read(path).rows:
        row = rows.get(record["row"])
        if row is None or "sku" not in record or not record.get("us"):
            continue
        found = [each for each in selections(row, gpu) or () if isinstance(each, Selection)]
        if found and {str(each.sku) for each in found} == {record["sku"]}:
            first = found[0]
            yield Timing(record["row"], first.candidate, first.desc.canonical(), first.config, record["us"] * 1e-6)


def timings_of(path: Path, gpu: str) -> list[Timing]:
    """The times in a file: a sweep's, whose lines are shapes, or results', whose lines are rows."""
    kinds = {json.loads(line)["kind"] for line in path.read_text().splitlines() if line.strip()}
    found = of_sweep(read_sweep(path), device_of(gpu)) if "shape" in kinds else of_results(path, gpu)
    return list(found)


def committed(gpu: str) -> list[Path]:
    """The committed files of a GPU: its sweeps, and its benchmark rows."""
    if gpu not in known_devices():
        raise SystemExit(f"{gpu} has no figures in the package: give one of {', '.join(known_devices())}")
    name = DeviceSpec.named(gpu).name
    files = sorted([*DIRECTORY.glob("sweeps/*.jsonl"), *DIRECTORY.glob("*.jsonl")])
    return [path for path in files if _gpu(path) == name]


def _gpu(path: Path) -> str:
    with path.open() as file:
        return str(json.loads(file.readline()).get("gpu", ""))
