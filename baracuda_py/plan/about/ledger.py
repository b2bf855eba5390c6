"""Reads which ops' current kernels have passed the tests on a device: ``kernels/records/<op>.json``.

A record is valid for one digest of the op. The digest covers the sources of all kernels that the op's candidates may launch, and
everything that each candidate launches for the family's probes: kernels, grids, shared bytes, packed arguments, tensor maps. So a
change of the host code that decides these invalidates a record, as a change of a kernel does. It needs no GPU and no compiler.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...runtime.compile.sources import kernels_dir, source_of
from ...runtime.steps import Kernel, Launch, Step
from ...runtime.system.libraries import FILES
from ...types import BaracudaError, DeviceSpec
from ..candidate import steps_of
from ..registry import Op, get_op
from .digest import lowered_digest

__all__ = ["lowered", "op_digest", "records_dir", "verified_on"]

LONG = 16  # a menu of more configurations is sampled


def lowered(op: Op, arch: str) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Each candidate that supports a probe on a nominal GPU of `arch`, and its steps. From a long menu, each probe takes every
    n-th configuration, with a different offset per probe."""
    device = DeviceSpec.named(arch).with_libraries(frozenset(FILES))
    for probe_index, probe in enumerate(op.plan.probes):
        try:
            desc = op.describe(**probe)
            desc.validate()
        except BaracudaError:  # the op does not take this type
            continue
        desc = desc.canonical()
        for candidate in op.plan.candidates:
            if candidate.supports(desc, device):
                menu = list(candidate.configs(desc, device))
                step = 1 + len(menu) // LONG
                for config in menu[probe_index % step :: step]:
                    yield f"{candidate.variant}[{config}]", steps_of(candidate, desc, device, config)


@lru_cache(maxsize=1024)
def _digest_of(name: str, arch: str) -> str:
    op = get_op(name)
    launched = list(lowered(op, arch))
    if not any(isinstance(step, Launch) for _, steps in launched for step in steps):
        return ""
    serving = {candidate.partition("[")[0] for candidate, _ in launched}
    declared = {kernel for c in op.plan.candidates if c.variant in serving for kernel in c.launches}
    parts = [f"{kernel} {_made_of(*kernel.split(':'))}" for kernel in sorted(declared)]
    # The configuration's text is not digested: its steps are what runs.
    parts += [f"{candidate.partition('[')[0]} {lowered_digest(steps)}" for candidate, steps in launched]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _made_of(file: str, kernel: str) -> str:
    return source_of(Kernel(file, kernel)).digest(kernel)


def op_digest(op: Op, arch: str = "sm_90a") -> str:
    """The digest of everything the op can launch on `arch`; empty where it launches no kernel of this library."""
    return _digest_of(op.name, arch)


def records_dir() -> Path:
    """The folder of the records of ops' kernels, one file per op."""
    return kernels_dir() / "records"


@lru_cache(maxsize=1024)
def _entry(name: str) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads((records_dir() / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record.get("device", {})  # type: ignore[no-any-return]


def verified_on(op: Op) -> str:
    """The GPU on which the op's present kernels passed the device tests, or an empty text."""
    entry = _entry(op.name)
    stands = "arch" in entry and entry.get("digest") == op_digest(op, entry["arch"])
    return str(entry["gpu"]) if stands else ""
