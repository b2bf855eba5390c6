"""`quantize`: the linear layers of a model as layers of few bits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ....types import BaracudaError, InvalidProblemError
from .gguf import GgufLinear
from .int4 import Int4Linear
from .int8 import Int8Linear
from .nf4 import Nf4Linear

__all__ = ["KINDS", "ends_in", "quantize"]

KINDS: dict[str, Any] = {"int8": Int8Linear, "int4": Int4Linear, "nf4": Nf4Linear, "gguf": GgufLinear}


def quantize(model: Any, kind: str, *, skip: tuple[str, ...] = ("lm_head",), **options: Any) -> dict[str, str]:
    """Replaces the torch.nn.Linear layers of a model, in place, by those of a kind: "int8", "int4", "nf4" or "gguf". `options`
    are those of the kind's `of`; layers whose name ends in one of `skip` stay.

    Returns the layers that stay, by name, with the reason: weights of shapes that the kind does not have, and those skipped.
    """
    if kind not in KINDS:
        raise InvalidProblemError(f"quantize: {kind!r} is no kind of weight", f"name one of {', '.join(KINDS)}")
    stay: dict[str, str] = {}
    every = model.named_modules(remove_duplicate=False)  # a layer that has two names is replaced at both
    found = [(name, layer) for name, layer in every if type(layer) is torch.nn.Linear]
    known: dict[int, Any] = {}  # the new layers, by the id of the old ones
    for name, layer in found:
        if ends_in(name, skip):
            stay[name] = "skipped"
            continue
        if not name:
            raise InvalidProblemError(
                "quantize: the model is a torch.nn.Linear itself", f"use {kind}'s layer: .of(model)"
            )
        try:
            made = known[id(layer)] if id(layer) in known else KINDS[kind].of(layer, **options)
        except BaracudaError as error:
            stay[name] = str(error)
            continue
        known[id(layer)] = made.train(layer.training)
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, made)
    return stay


def ends_in(name: str, ends: Iterable[str]) -> bool:
    """Whether a module's dotted name is one of `ends`, or its last parts are."""
    return any(name == end or name.endswith(f".{end}") for end in ends)
