"""Which ops' present kernels have passed the tests on a device: ``kernels/ledger.json``, read and keyed here.

An op's digest covers every ``.cu`` file that its candidates name, with the headers these reach, and the text generated
for the op itself (an elementwise functor). It is read off the candidates' modules, so it costs a few milliseconds.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
from functools import lru_cache
from itertools import islice
from typing import Any

from ..runtime.sources import kernels_dir, source_of
from ..runtime.steps import Kernel, Launch
from ..types import BaracudaError, DeviceSpec, PlanPreference
from .registry import Op
from .select import assess

__all__ = ["kernel_files", "op_digest", "verified_on"]

_CU = re.compile(r"\b(\w+/\w+\.cu)\b")
_SAMPLES = 3


def kernel_files(op: Op) -> list[str]:
    """The kernel files that the op's candidates name."""
    modules = {type(candidate).__module__ for candidate in op.plan.candidates}
    return sorted({file for module in modules for file in _named_in(module)} | {k.file for k in _lowered(op)})


@lru_cache(maxsize=64)
def _named_in(module: str) -> frozenset[str]:
    try:
        text = inspect.getsource(sys.modules[module])
    except OSError:  # no source beside the byte code: the lowered samples name their files
        return frozenset()
    return frozenset(file for file in _CU.findall(text) if (kernels_dir() / file).is_file())


@lru_cache(maxsize=512)
def _lowered_of(name: str) -> tuple[Kernel, ...]:
    from .registry import get_op

    op, device = get_op(name), DeviceSpec.named("sm_90a")
    kernels: dict[Kernel, None] = {}
    for sample in islice(op.samples(op.fixed), _SAMPLES):
        known = inspect.signature(op.plan.descriptor.of).parameters  # type: ignore[attr-defined]
        try:
            given = {k: v for k, v in {**sample.operands, **sample.options}.items() if k in known}
            desc = op.of(**given).canonical()
            answers = assess(op.plan.candidates, desc, PlanPreference(deterministic=False), device)
            steps = [a.candidate.lower(desc, device, a.config) for a in answers if a.feasibility]
        except BaracudaError:
            continue
        kernels |= {step.kernel: None for group in steps for step in group if isinstance(step, Launch)}
    return tuple(kernels)


def _lowered(op: Op) -> tuple[Kernel, ...]:
    return _lowered_of(op.name)


def op_digest(op: Op) -> str:
    """Names the present version of everything the op can launch; empty where it launches no kernel of ours."""
    files = kernel_files(op)
    if not files:
        return ""
    texts = [source_of(Kernel(file, "")).digest() for file in files]
    texts += sorted({kernel.prelude for kernel in _lowered(op) if kernel.prelude})
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def _entries() -> dict[str, Any]:
    try:
        entries: dict[str, Any] = json.loads((kernels_dir() / "ledger.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return entries


def verified_on(op: Op) -> str:
    """The GPU on which the op's present kernels passed the device tests, or an empty text."""
    entry = _entries().get(op.name, {})
    return str(entry["gpu"]) if entry and entry.get("digest") == op_digest(op) else ""
