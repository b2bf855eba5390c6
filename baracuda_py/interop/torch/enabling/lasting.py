"""`install`: this library's kernels under torch's operators until they are removed, by torch's own override registry.

Each operator gets a kernel at the keys of its device, above and below autograd, so that calls that record a gradient record this
library's. Calls of other operators cost nothing more. The kernel that was there before answers calls that the op does not take.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from typing import Any, Self

import torch

from ....types import InvalidProblemError, UnsupportedError
from .context import serve_eagerly
from .report import Report
from .rules import Rule, rules_of

__all__ = ["Installed", "install"]

DEVICES = ("CUDA", "CPU")

_lock = threading.Lock()
_installed: set[str] = set()  # names; a kernel that another installation put there would be lost with it
_inside = threading.local()  # `passed`: torch's own kernel runs, and what it calls is torch's own as well


def install(*names: str) -> Installed:
    """Puts this library's kernels under torch's operators in the whole process, for the names that `enable` takes, until
    `remove()` of the object that is returned; its `report` lists the calls. CPU tensors are served inside ``with bp.device``.

    Raises UnsupportedError where torch's version cannot override operators, and InvalidProblemError for a name that is unknown
    or installed already.
    """
    _require_registry()
    rules = rules_of(names)
    with _lock:
        twice = sorted(_installed.intersection(names))
        if twice:
            raise InvalidProblemError(f"install: {twice[0]!r} is installed already", "call .remove() of that one first")
        _installed.update(names)
    return Installed(names, rules)


class Installed:
    """Kernels that are installed. A context manager that removes them at its end."""

    def __init__(self, names: tuple[str, ...], rules: tuple[Rule, ...]) -> None:
        self.names, self.report = names, Report()
        self._operators = tuple(dict.fromkeys(rule.aten for rule in rules))
        self._library = torch.library.Library("aten", "IMPL")
        keys = [key for device in DEVICES for key in (device, f"Autograd{device}")]
        found = [(rule, key, torch.library.get_kernel(f"aten::{rule.aten}", key)) for rule in rules for key in keys]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators")  # that an operator is overridden
            for rule, key, before in found:
                _override(self._library, rule, key, before, self.report)
        _forget_kernels(self._operators)

    def remove(self) -> None:
        """Puts torch's own kernels back. A second call does nothing."""
        library, self._library = self._library, None
        if library is not None:
            library._destroy()
            _forget_kernels(self._operators)
            with _lock:
                _installed.difference_update(self.names)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.remove()

    def __repr__(self) -> str:
        state = "installed" if self._library is not None else "removed"
        return f"install({', '.join(map(repr, self.names))}): {state}\n{self.report}"


def _forget_kernels(operators: tuple[str, ...]) -> None:
    """Makes torch look up the kernels of operators again where it traces: it remembers them by dispatch key."""
    for name in operators:
        packet, _, overload = name.partition(".")
        found = getattr(getattr(torch.ops.aten, packet), overload or "default")
        getattr(found, "_dispatch_cache", {}).clear()


def _require_registry() -> None:
    impl = inspect.signature(torch.library.Library.impl).parameters
    if not hasattr(torch.library, "get_kernel") or "allow_override" not in impl:
        raise UnsupportedError(
            f"install: torch {torch.__version__} has no torch.library.get_kernel, by which an operator is overridden",
            "use the context manager of interop.torch, or a later torch",
        )


def _override(library: Any, rule: Rule, key: str, before: Any, report: Report) -> None:
    def pass_on(keys: Any, args: Any, kwargs: Any) -> Any:
        _inside.passed = True
        try:
            return before.call_boxed(keys, *args, **kwargs)
        finally:
            _inside.passed = False

    def run(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(_inside, "passed", False):
            return before.call_boxed(keys, *args, **kwargs)
        return serve_eagerly(report, rule.name, rule.serve, lambda: pass_on(keys, args, kwargs), args, kwargs)

    library.impl(rule.aten, run, key, with_keyset=True, allow_override=True)
