"""A group of parameters that was checked, and its launches. The next step finds with a few calls whether all is as it was."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from operator import is_
from typing import Any

from ....call.operands.list_key import torch_guards

__all__ = ["CheckedGroup", "Part"]


class Part:
    """What one launch takes: parameters, their gradients and states, by the names of the function of lists."""

    __slots__ = ("count", "grads", "params", "states")

    def __init__(self, params: Sequence[Any], grads: list[Any], states: Mapping[str, list[Any]], count: Any) -> None:
        self.params, self.grads, self.states, self.count = params, grads, states, count


class CheckedGroup:
    """The tensors of a group after a step, by identity; their layouts, and those of the gradients, by torch's guards. `keys` are
    the states that a parameter with a gradient has; `asked` is what else the checks depended on."""

    def __init__(
        self, state: Mapping[Any, dict[str, Any]], params: Sequence[Any], parts: Sequence[Part], keys: Sequence[str],
        asked: Any,
    ) -> None:  # fmt: skip
        self._params, self._asked, self._keys = list(params), asked, tuple(keys)
        self._owners, self._states = list(state), list(state.values())
        self._held = [state[p] for p in params if p in state]
        self._counts = [held.get("step") for held in self._held]
        place = {id(p): i for i, p in enumerate(params)}
        self._places = [[place[id(p)] for p in part.params] for part in parts]
        self._parts = [Part(part.params, [], part.states, part.count) for part in parts]  # no gradient is kept alive
        self._with = [i for i, p in enumerate(params) if p.grad is not None]
        self._without = [i for i, p in enumerate(params) if p.grad is None]
        self._of = [state[params[i]] for i in self._with]
        self._kept = [[held[key] for held in self._of] for key in self._keys]
        grads = [params[i].grad for i in self._with]
        counts = list({id(count): count for count in self._counts if count is not None}.values())
        self._guards = [_guard(x) for x in (self._params, grads, *self._kept, counts)]
        self._unique_counts = counts

    def parts(self, state: Mapping[Any, dict[str, Any]], params: Sequence[Any], asked: Any) -> list[Part] | None:
        """The launches of a step; None if a tensor is another one, or has another layout."""
        if asked != self._asked or not _same(params, self._params) or not _same(state, self._owners):
            return None
        if not (_same(state.values(), self._states) and _same([x.get("step") for x in self._held], self._counts)):
            return None
        whole = [p.grad for p in params]
        if any(whole[i] is not None for i in self._without):
            return None
        grads = whole if not self._without else [whole[i] for i in self._with]
        if any(map(is_, grads, repeat(None))):
            return None
        for key, kept in zip(self._keys, self._kept):
            if not _same([held.get(key) for held in self._of], kept):
                return None
        lists = (self._params, grads, *self._kept, self._unique_counts)
        if not all(map(_holds, self._guards, lists)):
            return None
        return [
            Part(part.params, [whole[i] for i in places], part.states, part.count)
            for part, places in zip(self._parts, self._places)
        ]


def _same(given: Collection[Any], kept: list[Any]) -> bool:
    """Whether these are the same objects."""
    return len(given) == len(kept) and all(map(is_, given, kept))


def _holds(guard: Any, tensors: Sequence[Any]) -> bool:
    """Whether tensors are laid out as those that a guard was made of."""
    try:
        return guard is not None and guard.check(*tensors) is True
    except (TypeError, RuntimeError):  # no tensor, or one without strides
        return False


def _guard(tensors: Sequence[Any]) -> Any:
    """torch's guards on tensors; None where torch has none for them."""
    guards = torch_guards()
    try:
        return None if guards is None else guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    except (TypeError, RuntimeError):
        return None
