"""An optimizer as a row of a table, and the signatures of its functions: of a step of one array, and of a step of lists."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from textwrap import fill
from typing import Any

import numpy as np

from ...plan.registry import Samples
from ...types import InvalidProblemError
from .oracle import Parts, Step

__all__ = ["SHARED", "Rule", "plural"]

AS_OF_ADAMW = "All other arguments, the result and errors are as of `adamw_update`."
BY_FORMULA = ": by the formula of `{op}`, with all else as of `adamw`."
DOC_COLUMNS = 125
MOST = float(np.finfo(np.float32).max)
SHARED = ("grad_scale", "found_inf")  # scalars in device memory that functions for lists pass on
BETAS = ("beta1", "beta2")  # which functions for lists take as one pair

Parameters = Iterator[tuple[str, str, Any]]
NO_DEFAULT = inspect.Parameter.empty


@dataclass(frozen=True)
class Rule:
    """One optimizer.

    `cuda` is the type in kernels/include/optim/rules.cuh, where ``{name}`` is whether a problem has that state or flag. `states`
    are arrays that every problem has, `optional` ones follow them in the kernel's order. `hyper` are the run-time values behind
    lr in the order of the kernel, with their defaults; those `below_one` must be less than 1. `flags` are further options.
    `normed` is whether an array's step size comes from the norms of its parameters and of their update. `blockwise` states are
    8-bit codes, of which 256 share an f32 absmax; those in `squares` are never negative.
    `refuse` raises for a problem with its values. `doc` and `lists` continue "A step of ... on one array, in place: " and
    "A step of ... on lists of arrays, in place".
    """

    name: str
    title: str
    cuda: str
    oracle: Callable[[Parts], Step]
    samples: Samples
    states: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    lr: float = 1e-3
    hyper: Mapping[str, float] = field(default_factory=dict)
    below_one: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    normed: bool = False
    blockwise: bool = False
    squares: tuple[str, ...] = ()
    refuse: Callable[[Any, Mapping[str, float]], None] | None = None
    peers: Mapping[str, str] = field(default_factory=dict)
    doc: str = ""
    lists: str = BY_FORMULA
    variants: str = ""
    probes: tuple[Mapping[str, Any], ...] = ()

    @property
    def op(self) -> str:
        return f"{self.name}_update"

    def class_name(self, what: str) -> str:
        return f"{self.op.title().replace('_', '')}{what}"

    def refuse_values(self, op: str, values: Mapping[str, float]) -> None:
        """Raises for run-time values that are out of range."""
        for name, value in values.items():
            if name != "seed" and not (0 <= value < 1 if name in self.below_one else 0 <= value <= MOST):
                upper = "less than 1" if name in self.below_one else "that f32 holds"
                raise InvalidProblemError(f"{op}: {name}={value}", f"give a number of 0 or more, {upper}")

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """All states, in the kernel's order."""
        return (*self.states, *self.optional)

    @property
    def absmaxes(self) -> tuple[str, ...]:
        """The greatest sizes of blocks of 8-bit states, in the order of these."""
        return tuple(f"{name}_absmax" for name in self.states) if self.blockwise else ()

    @property
    def given(self) -> tuple[str, ...]:
        """The states that every call passes."""
        return (*self.states, *self.absmaxes)

    @property
    def fields(self) -> Parameters:
        """The descriptor's own."""
        kind = "ElementKind | None"
        yield from (("shape", "tuple[int, ...]", NO_DEFAULT), ("element", "ElementKind", NO_DEFAULT))
        yield "grad_element", kind, None
        yield from [("state_element", kind, None)] if self.states and not self.blockwise else []
        yield from ((name, "bool", False) for name in (*self.flags, "maximize", "stochastic"))
        yield from ((name, "float", default) for name, default in {"lr": self.lr, **self.hyper}.items())
        yield "seed", "int", 0

    def signature(self) -> inspect.Signature:
        """Of the function of one array."""
        given = [(name, "Any", NO_DEFAULT) for name in ("param", "grad", *self.given, "step")]
        options: list[tuple[str, str, Any]] = [(name, "Any", None) for name in (*self.optional, "master")]
        options += [(name, "float", default) for name, default in {"lr": self.lr, **self.hyper}.items()]
        options += [(name, "bool", False) for name in (*self.flags, "maximize", "stochastic")]
        options += [("seed", "int", 0), *((name, "Any", None) for name in ("learning_rate", *SHARED, "table"))]
        return _signature(given, options, "Any")

    def signature_of_lists(self) -> inspect.Signature:
        """Of the function for lists: states in the plural, lr a number or an array, two betas as a pair."""
        given = [(name, "Any", NO_DEFAULT) for name in ("params", "grads", *map(plural, self.given), "step")]
        options: list[tuple[str, str, Any]] = [(plural(name), "Any", None) for name in (*self.optional, "master")]
        options += [("lr", "Any", self.lr)]
        if self.has_betas:
            options += [("betas", "tuple[float, float]", tuple(self.hyper[name] for name in BETAS))]
        options += [(name, "float", x) for name, x in self.hyper.items() if not (self.has_betas and name in BETAS)]
        options += [(name, "bool", False) for name in (*self.flags, "maximize", "stochastic")]
        options += [("seed", "int", 0), *((name, "Any", None) for name in (*SHARED, "stream"))]
        options += [("pref", "PlanPreference | None", None), ("device", "Any", None)]
        return _signature(given, options, "None")

    @property
    def has_betas(self) -> bool:
        return set(BETAS) <= self.hyper.keys()

    def documentation(self) -> str:
        head, _, body = self.doc.partition("\n\n")
        text = fill(f"{body} {AS_OF_ADAMW}", DOC_COLUMNS) if body and "\n" not in body else body
        return f"A step of {self.title} on one array, in place: {head}\n\n{text}\n"

    def documentation_of_lists(self) -> str:
        return f"A step of {self.title} on lists of arrays, in place{self.lists.format(op=self.op)}\n"

    def documentation_of_plan(self) -> str:
        always, may_be = (", ".join(f"`{name}`" for name in names) for names in (self.given, self.optional))
        text = (
            f"A step of {self.title}: operands `param`, {always}{', ' if always else ''}`step` in place, `grad`, and as the "
            f"problem has them {may_be}{' and ' if may_be else ''}`master` in place, `learning_rate`, `grad_scale`, "
            "`found_inf`, `table`."
        )
        return fill(text, DOC_COLUMNS)


def plural(name: str) -> str:
    """What a list of these arrays is called."""
    return f"{name}{'es' if name.endswith('x') else 's'}"


def _signature(
    given: list[tuple[str, str, Any]], options: list[tuple[str, str, Any]], result: str
) -> inspect.Signature:
    word, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    made = [inspect.Parameter(name, word, annotation=kind) for name, kind, _ in given]
    made += [inspect.Parameter(name, by_name, default=default, annotation=kind) for name, kind, default in options]
    return inspect.Signature(made, return_annotation=result)
