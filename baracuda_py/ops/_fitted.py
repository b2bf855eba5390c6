"""Quantities of cost models that were fitted to measurements: read from ``fitted/<gpu>/<family>.toml``, looked up by device.

A file says the GPU; each of its tables says the date and the way of the fit, and each quantity its value and unit (and its own
date, where it was fitted another time). Rule for a GPU without a file of the family: it takes the H200's values unchanged,
scaled by nothing, except that a quantity with ``unmeasured = { tier = value }`` has for devices of that tier this value, an
estimate. Quantities are relative to the device's own figures (bandwidth, rates, SMs, launch overhead) wherever a unit says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from ..types import DeviceSpec, known_devices

__all__ = ["FITTED", "Fitted", "Trial", "measured", "read_table", "trial"]

FITTED = Path(__file__).resolve().parents[1] / "fitted"
MEASURED = "h200"  # the GPU whose values apply where a device has none of its own
T = TypeVar("T", bound="Fitted")


class Fitted:
    """The fitted quantities of one cost model, one annotation per quantity, by device: ``Subclass.of(device)``.

    A subclass names its table, ``class Costs(Fitted, table="gemm.wgmma")``: file and table of it.
    """

    table: ClassVar[str]
    _last: ClassVar[tuple[DeviceSpec, Any] | None] = (
        None  # costs of many configurations are asked for one device in a row
    )

    def __init_subclass__(cls, table: str) -> None:
        cls.table = table

    @classmethod
    def of(cls: type[T], device: DeviceSpec) -> T:
        """The values for a device, read once per process."""
        last = cls._last
        if last is None or last[0] is not device:
            last = cls._last = (device, _made(cast(Any, cls), device))
        return cast(T, last[1])


@lru_cache(maxsize=1024)
def _made(cls: type[Fitted], device: DeviceSpec) -> Fitted:
    tried = _trials.get(device.name)
    if tried is not None:
        tried.read.add(cls)
        return _object(cls, tried.values[cls]) if cls in tried.values else _made(cast(Any, cls), tried.base)
    family, _, name = cls.table.partition(".")
    quantities = measured(read_table(family, _folder(device)), name)
    if quantities.keys() != cls.__annotations__.keys():
        raise KeyError(f"{cls.table}: the table has {sorted(quantities)}, and the class {sorted(cls.__annotations__)}")
    values = {
        name: said.get("unmeasured", {}).get(device.tier.value, said["value"]) for name, said in quantities.items()
    }
    return _object(cls, {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _object(cls: type[Fitted], values: Mapping[str, Any]) -> Fitted:
    made = object.__new__(cls)
    vars(made).update(values)
    return made


class Trial:
    """A device for which models have other values than those of their tables. Costs are asked with `device` in the place of
    `base`; `read` are the models whose values were asked for."""

    def __init__(self, base: DeviceSpec, values: Mapping[type[Fitted], Mapping[str, Any]]) -> None:
        self.base, self.values = base, values
        self.device = replace(base, name=f"{base.name}, trial {next(_numbers)}")  # costs are cached by device
        self.read: set[type[Fitted]] = set()


_trials: dict[str, Trial] = {}
_numbers = count()


@contextmanager
def trial(base: DeviceSpec, values: Mapping[type[Fitted], Mapping[str, Any]]) -> Iterator[Trial]:
    """A device on which some models have these values, to see what they would predict. Other models have those of `base`."""
    tried = Trial(base, values)
    _trials[tried.device.name] = tried
    try:
        yield tried
    finally:
        del _trials[tried.device.name]


@lru_cache(maxsize=64)
def _folder(device: DeviceSpec) -> str:
    """The folder of the device's own values, or of the H200's."""
    names = (name for name in known_devices() if DeviceSpec.named(name).name == device.chip.name)
    return next((name for name in names if (FITTED / name).is_dir()), MEASURED)


@lru_cache(maxsize=64)
def read_table(family: str, gpu: str = MEASURED) -> dict[str, Any]:
    """A family's file for a GPU; the H200's where the GPU has none."""
    import tomllib  # only a new problem's ranking needs it

    path = FITTED / gpu / f"{family}.toml"
    path = path if path.exists() else FITTED / MEASURED / path.name
    return tomllib.loads(path.read_text(encoding="utf-8"))


def measured(file: Mapping[str, Any], name: str) -> dict[str, Mapping[str, Any]]:
    """The quantities of one table by name: what is said of each."""
    return {quantity: said for quantity, said in file[name].items() if isinstance(said, dict)}
