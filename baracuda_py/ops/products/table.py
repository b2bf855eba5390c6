"""Prices of all configurations at once: one array operation per term of the cost model, instead of one call per configuration.

So `select` takes some tens of array operations for a new problem, however long the menu is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import fields
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from ...plan.candidate import Candidate, Cost
from ...types import DeviceSpec
from ...types.keeping import complete

__all__ = ["Array", "Table", "Tabled", "across", "larger", "longest", "smaller", "spread", "with_splits"]

C = TypeVar("C")
Array = Any  # np.ndarray of float64 or int64, one entry per configuration


class Table(Generic[C]):
    """A menu priced for one problem. `seconds` is infinite where a configuration does not fit the problem; `config` makes the
    configuration at a place, and `limit` names the resource that sets its time."""

    seconds: Array

    def __init__(self, seconds: Array, config: Callable[[int], C], limit: Callable[[int], str]) -> None:
        self.seconds, self._config, self._limit = seconds, config, limit

    def config(self, place: int) -> C:
        return self._config(place)

    def limit(self, place: int) -> str:
        return self._limit(place)

    def __len__(self) -> int:
        return len(self.seconds)

    def least(self) -> tuple[int, float]:
        """The index of the fastest configuration (the first of several), and its seconds."""
        place = int(self.seconds.argmin())
        return place, float(self.seconds[place])

    @cached_property
    def places(self) -> dict[C, int]:
        """The index of each configuration that fits, in the menu's order."""
        return {self.config(i): i for i in map(int, np.flatnonzero(np.isfinite(self.seconds)))}

    def ranked(self) -> Iterator[tuple[C, float]]:
        """Configurations that fit, with their seconds, fastest first, ties in the menu's order. The first needs no sort."""
        if not len(self):
            return
        first, least = self.least()
        if least < math.inf:
            yield self.config(first), least
            for i in map(int, np.argsort(self.seconds, kind="stable")):
                if i != first and np.isfinite(self.seconds[i]):
                    yield self.config(i), float(self.seconds[i])


class Tabled(Candidate[Any]):
    """A variant of matmul that prices its menu as a table."""

    def table(self, desc: Any, device: DeviceSpec) -> Table[Any]:
        """The menu, priced. Implementations cache it, because it is asked for once per configuration."""
        raise NotImplementedError

    def moved(self, desc: Any) -> tuple[int, int]:
        """Useful bytes and FLOPs, whatever the configuration."""
        return desc.gemm.nbytes, desc.gemm.flops

    def configs(self, desc: Any, device: DeviceSpec) -> list[Any]:
        return list(self.table(desc, device).places)

    def cost(self, desc: Any, device: DeviceSpec, config: Any) -> Cost:
        table = self.table(desc, device)
        place = table.places[config]
        return Cost(*self.moved(desc), float(table.seconds[place]), table.limit(place))

    def ranked(self, desc: Any, device: DeviceSpec) -> Iterator[tuple[Any, float]]:
        return self.table(desc, device).ranked()


def spread(configs: Sequence[Any], **given: Any) -> Any:
    """A configuration whose fields are arrays over `configs` (or what is `given`), so that a formula for one configuration
    prices all."""
    kind = type(configs[0])
    columns = object.__new__(kind)
    for field in fields(kind):
        values = [getattr(config, field.name) for config in configs]
        held = tuple(map(np.array, zip(*values))) if isinstance(values[0], tuple) else np.array(values)
        complete(columns, **{field.name: given.get(field.name, held)})
    return columns


def with_splits(columns: Any, splits: Array) -> Any:
    """The same columns with K in so many parts."""
    split = copy(columns)
    complete(split, split_k=splits)
    return split


def larger(one: Any, other: Any) -> Any:
    """The larger of two numbers, or of each pair where one is an array."""
    return np.maximum(one, other) if isinstance(one, np.ndarray) or isinstance(other, np.ndarray) else max(one, other)


def smaller(one: Any, other: Any) -> Any:
    """The smaller, likewise."""
    return -larger(-one, -other)


def across(extent: Any, step: Array) -> Array:
    """How many steps cover an extent."""
    return -(-extent // step)


def longest(times: dict[str, Any]) -> tuple[Array, Callable[[int], str]]:
    """For each configuration the largest of several times, and a function that names it; ties go to the first."""
    stacked = np.stack(np.broadcast_arrays(*times.values()))
    names = tuple(times)
    return stacked.max(axis=0), lambda place: names[int(stacked[:, place].argmax())]
