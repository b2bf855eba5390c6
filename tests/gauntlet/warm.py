"""Kernels made ready before they are needed: those of one file share a program, and NVRTC reads their headers once."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from baracuda_py.plan import Plan
from baracuda_py.runtime.compile.cache import cache_dir
from baracuda_py.runtime.compile.compiler import compile_kernels
from baracuda_py.runtime.steps import Launch

from .cases import Case, cases

__all__ = ["warm", "warm_op"]


def warm(plans: Sequence[Plan[Any]]) -> None:
    """Compiles the kernels of many plans at once."""
    by_arch: dict[str, list[Any]] = {}
    for plan in plans:
        by_arch.setdefault(plan.device.arch, []).extend(s.kernel for s in plan.selection.steps if isinstance(s, Launch))
    for arch, kernels in by_arch.items():
        compile_kernels(kernels, arch)


def warm_op(case: Case) -> None:
    """Compiles what the case and its siblings launch, once a process. Of several processes one compiles: the others wait, and
    find its cubins."""
    _warmed(case.op, case.backend, case.count, case.full)


@lru_cache(maxsize=1024)
def _warmed(op: str, backend: str, count: int, full: bool) -> None:
    plans = [case.problem.plan for case in cases(op, backend, count, full=full)]
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f"{op}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        warm(plans)
