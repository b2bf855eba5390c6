"""The identity of a selected kernel, and the caller's preferences for selection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from .deprecated import present_config, present_variant
from .elements import ElementKind
from .errors import InvalidProblemError, UnsupportedError, shown
from .keeping import complete, said_fields
from .kinds import OpCategory
from .precision import PrecisionGuarantee
from .vocabulary import ArchSku, BackendKind, EpilogueKind, LayoutSku, MathPrecision

__all__ = ["KernelSku", "PlanPreference"]


@dataclass(frozen=True)
class KernelSku:
    """The identity of the kernel that a plan launches. It prints as one line:
    ``shape_layout.write_slice/bf16/memcpy.contiguous_chunk@sm_90a``."""

    category: OpCategory
    op: str
    element: ElementKind
    arch: ArchSku
    backend: BackendKind
    variant: str
    config: str
    target: str
    precision_guarantee: PrecisionGuarantee = field(compare=False)
    aux_element: ElementKind | None = None
    layout: LayoutSku | None = None
    epilogue: EpilogueKind | None = None

    def __repr__(self) -> str:
        return f"<KernelSku {self}>"

    def __str__(self) -> str:
        element = f"{self.element}" + (f"->{self.aux_element}" if self.aux_element else "")
        extras = "".join(f"/{part}" for part in (self.layout, self.epilogue) if part is not None)
        config = f"[{self.config}]" if self.config else ""
        return f"{self.category}.{self.op}/{element}{extras}/{self.backend}.{self.variant}{config}@{self.target}"


@dataclass(frozen=True)
class PlanPreference:
    """Requirements of the caller. A preference that no candidate satisfies raises UnsupportedError.

    A candidate whose result depends on scheduling is admitted only with ``deterministic=False``. A variant ranks its own
    configurations, which are written as ``128x256 cluster=2 ping_pong``: extents of a tile, ``name=value``, flags that are set.
    ``print(baracuda_py.plan.glossary())`` explains each term. ``exact_weights=True`` admits no variant that rounds quantised
    weights to the activations' type before it multiplies them. `config` admits that configuration alone, of the variant that is
    named or of any; ``plan.options()`` lists those that serve.
    """

    backend: BackendKind | None = None
    variant: str | None = None
    math: MathPrecision | None = None
    deterministic: bool = True
    bit_stable: bool = False
    batch_invariant: bool = False
    exact_weights: bool = False
    max_workspace_bytes: int | None = None
    config: str | None = None

    given: ClassVar[frozenset[str]] = frozenset()  # of an instance: the fields that its constructor was given

    def __new__(cls, *args: Any, **fields: Any) -> Self:
        made = super().__new__(cls)
        names = tuple(cls.__dataclass_fields__)
        complete(made, given=frozenset((*names[: len(args)], *fields)) & frozenset(names))
        return made

    def __post_init__(self) -> None:
        for name, kind in (("backend", BackendKind), ("math", MathPrecision)):
            value = getattr(self, name)
            if isinstance(value, str):
                try:
                    complete(self, **{name: kind(value.lower())})
                except ValueError:
                    known = ", ".join(m.value for m in kind)
                    raise UnsupportedError(f"PlanPreference: {name}={shown(value)} is not one of {known}") from None
            elif value is not None and not isinstance(value, kind):
                raise _refused(name, value, f"give None or one of {', '.join(m.value for m in kind)}")
        if self.variant is not None and not isinstance(self.variant, str):
            raise _refused("variant", self.variant, "give a variant's name, as plan.explain() lists them, or None")
        if self.variant is not None:
            object.__setattr__(self, "variant", present_variant("PlanPreference", self.variant))
        if self.config is not None:
            if not isinstance(self.config, str):
                raise _refused(
                    "config", self.config, "give a configuration's text, as plan.options() lists them, or None"
                )
            complete(self, config=present_config(self.config))
        for name in ("deterministic", "bit_stable", "batch_invariant", "exact_weights"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise _refused(name, getattr(self, name), "give True or False")
            complete(self, **{name: bool(getattr(self, name))})
        most = self.max_workspace_bytes
        if most is not None:
            if not isinstance(most, (int, np.integer)) or isinstance(most, bool) or most < 0:
                raise _refused("max_workspace_bytes", most, "give a number of bytes, 0 or more, or None")
            complete(self, max_workspace_bytes=min(int(most), (1 << 63) - 1))  # no memory is larger

    def __repr__(self) -> str:
        return said_fields(self)

    @staticmethod
    def of(pref: object) -> PlanPreference:
        """`pref`, or the default for None; InvalidProblemError for anything else."""
        if pref is None:
            return _ANY
        if isinstance(pref, PlanPreference):
            return pref
        hint = f"PlanPreference(variant={shown(pref)})" if isinstance(pref, str) else "PlanPreference(...)"
        raise InvalidProblemError(f"pref must be a PlanPreference, got {shown(pref)}", hint)


_ANY = PlanPreference()


def _refused(name: str, value: object, fix: str) -> InvalidProblemError:
    return InvalidProblemError(f"PlanPreference: {name}={shown(value)}", fix)
