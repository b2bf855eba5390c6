"""NVTX ranges around launches, named ``op/variant``: with ``BARACUDA_NVTX=1`` and the module `nvtx`, or CuPy's own."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = ["VARIABLE", "in_ranges"]

VARIABLE = "BARACUDA_NVTX"


class _Ranges(NamedTuple):
    push: Callable[[str], Any]
    pop: Callable[[], Any]


@lru_cache(maxsize=1)
def _ranges() -> _Ranges | None:
    """The functions that begin and end a range; None, with one warning, where no module has them."""
    try:
        import nvtx

        return _Ranges(nvtx.push_range, nvtx.pop_range)
    except ImportError:
        pass
    try:
        from cupy.cuda import nvtx as cupy_nvtx

        return _Ranges(cupy_nvtx.RangePush, cupy_nvtx.RangePop)
    except (ImportError, AttributeError):
        warnings.warn(
            f"{VARIABLE} is set, and neither nvtx nor CuPy's nvtx is installed: pip install nvtx", RuntimeWarning, 2
        )
        return None


def in_ranges(executable: Any, name: str) -> Any:
    """`executable`, which runs in a range of that name if the variable is set when it is made. Otherwise nothing is changed, so
    that a launch costs no more."""
    ranges = _ranges() if os.environ.get(VARIABLE, "0") not in ("", "0") else None
    if ranges is None:
        return executable
    run, prepare, (push, pop) = executable.run, executable.prepare, ranges

    def run_in_range(*arguments: Any) -> None:
        push(name)
        try:
            run(*arguments)
        finally:
            pop()

    def prepare_in_range(*arguments: Any) -> tuple[Callable[[int], None], ...]:
        calls = prepare(*arguments)

        def call(stream: int) -> None:
            push(name)
            try:
                for one in calls:
                    one(stream)
            finally:
                pop()

        return (call,)

    executable.run, executable.prepare = run_in_range, prepare_in_range
    return executable
