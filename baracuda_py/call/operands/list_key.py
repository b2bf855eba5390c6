"""Keys of lists of arrays: what `read` reads of each. What cannot have changed since a list was last seen is not read again.

Reading an array's attributes takes most of the host time of a call on thousands of arrays. A CuPy array cannot change its memory,
dtype or strides, only its shape: of the same objects the shapes alone are read again. A torch tensor may change all of that
(``p.data = x``, `set_`, `resize_`), so each address is read, and everything else is compared in one call of torch's own guards.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import compress
from operator import attrgetter, is_, not_
from threading import Lock
from typing import Any
from weakref import ref

from ...tensor.pytorch import is_grad_enabled
from .key import array_type, is_intercepted, is_tensor_type, read

__all__ = ["ListKey", "key_of_list", "torch_guards"]

KEPT = 256  # lists that were seen
QUICK_RANKS = (1, 2)  # in which the rank and the first extent fix the shape of an array whose size cannot change

_ranks, _shapes = attrgetter("ndim"), attrgetter("shape")
_target: Callable[[Any], Any] = ref.__call__


class ListKey:
    """The layouts and the addresses of a list's arrays. Lists that agree in these have equal keys."""

    __slots__ = ("_hash", "_read", "has_tensors")

    def __init__(self, layouts: tuple[Any, ...], pointers: tuple[int, ...], has_tensors: bool) -> None:
        self._read, self.has_tensors = (layouts, pointers), has_tensors
        self._hash = hash(self._read)  # once: that of a tuple is computed at each look-up

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ListKey) and self._hash == other._hash and self._read == other._read)


class _CupyList:
    """CuPy arrays in C order, as they were when they were read."""

    __slots__ = ("_exact", "_first", "_quick", "_ranks", "_refs", "_shapes", "key")

    def __init__(self, arrays: list[Any], key: ListKey) -> None:
        self.key, self._refs = key, [*map(ref, arrays)]
        self._ranks = [*map(_ranks, arrays)]
        self._quick = [rank in QUICK_RANKS and x.size > 0 for rank, x in zip(self._ranks, arrays)]
        self._exact = [*map(not_, self._quick)]
        self._first = [*map(len, compress(arrays, self._quick))]
        self._shapes = [*map(_shapes, compress(arrays, self._exact))]

    def holds(self, arrays: list[Any]) -> bool:
        """Whether these are the same arrays, of the same shapes."""
        return (
            all(map(is_, map(_target, self._refs), arrays))
            and [*map(_ranks, arrays)] == self._ranks
            and [*map(len, compress(arrays, self._quick))] == self._first
            and (not self._shapes or [*map(_shapes, compress(arrays, self._exact))] == self._shapes)
        )


class _TorchList:
    """torch tensors by what torch's guards compare: class, dispatch keys, dtype, device, sizes, strides, requires_grad."""

    __slots__ = ("_guards", "_recorded", "key")

    def __init__(self, arrays: list[Any], key: ListKey, guards: Any) -> None:
        self.key, self._guards = key, guards(*arrays, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        self._recorded = any(x.requires_grad for x in arrays)

    def holds(self, arrays: list[Any]) -> bool:
        """Whether these tensors, which are at the same addresses, have the same layouts, and autograd records none of them."""
        return not (self._recorded and is_grad_enabled()) and self._guards.check(*arrays) is True


_seen: OrderedDict[Hashable, _CupyList | _TorchList] = OrderedDict()
_misses: dict[Hashable, int] = {}  # in a row, of the lists of a place and a length
_lock = Lock()


def key_of_list(arrays: list[Any], place: Hashable) -> ListKey | None:
    """The key of a list's arrays; None if one of them requires the long path. `place` is what the list is in its call."""
    if not arrays:
        return ListKey((), (), False)
    at, place = _name_of(arrays), (place, len(arrays))
    seen = None if at is None else _seen.get(at)
    if seen is not None and seen.holds(arrays):
        with _lock:
            _misses.pop(place, None)
            if at in _seen:
                _seen.move_to_end(at)
        return seen.key
    layouts, pointers = list[Any](), list[int]()
    if read(arrays, None, layouts, pointers) is None:
        return None
    kinds = {*map(type, arrays)}
    key = ListKey(tuple(layouts), tuple(pointers), any(map(is_tensor_type, kinds)))
    if at is not None and _is_worth_keeping(place):
        _keep(at, arrays, kinds, key)
    return key


def _name_of(arrays: list[Any]) -> Hashable | None:
    """By what a list is looked up; None if it is not kept."""
    kind = type(arrays[0])
    if kind is array_type():
        return id(arrays[0]), len(arrays)
    if not is_tensor_type(kind) or is_intercepted():
        return None
    try:
        return tuple(map(kind.data_ptr, arrays))
    except (TypeError, RuntimeError):  # another array type, or a tensor without an address
        return None


def _is_worth_keeping(place: Hashable) -> bool:
    """Whether to keep a list that was not found: always at first, and ever less often where each call has a new one."""
    with _lock:
        if len(_misses) > KEPT:
            _misses.clear()
        count = _misses[place] = _misses.get(place, 0) + 1
    return count & (count - 1) == 0


def _keep(at: Hashable, arrays: list[Any], kinds: set[type], key: ListKey) -> None:
    seen: _CupyList | _TorchList
    if kinds == {array_type()} and all(x._c_contiguous for x in arrays):
        seen = _CupyList(arrays, key)
    elif all(map(is_tensor_type, kinds)) and (guards := torch_guards()) is not None:
        try:
            seen = _TorchList(arrays, key, guards)
        except (TypeError, RuntimeError):  # guards of another version
            return
    else:
        return
    with _lock:
        _seen[at] = seen
        while len(_seen) > KEPT:
            _seen.popitem(last=False)


def torch_guards() -> Any:
    """torch's guards on tensors, which are private to it; None in a version that lacks them."""
    dynamo = getattr(sys.modules.get("torch._C"), "_dynamo", None)
    return getattr(getattr(dynamo, "guards", None), "TensorGuards", None)
