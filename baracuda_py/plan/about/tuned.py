"""Tuned plans ("winners"): those that autotune found, in the cache directory, and those that the package ships for known GPUs.

A winner is valid on the device where it was measured (its full name, arch and number of SMs), for as long as it launches the same
code in the same way. The package ships one table per op, ``tuned/<gpu>/<op>.json``. In the cache directory each winner is a file
of its own, so that processes can tune at the same time. Malformed records are ignored, with one warning in the log.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...runtime.compile.cache import cache_dir
from ...runtime.compile.sources import source_of
from ...runtime.steps import Launch, Step
from ...runtime.system.files import read_trusted, write_atomic
from ...types import DeviceSpec, PlanPreference, known_devices
from ..candidate import OK, steps_of
from ..select import Assessment, best, serves
from ..selected import Selected
from .digest import lowered_digest

if TYPE_CHECKING:
    from ..candidate import Candidate, Cost
    from ..family import Family

__all__ = ["Winner", "code_digest", "entry", "key_of", "recommended", "record", "shipped_path", "source_digest"]

Winner = dict[str, str]
Stamp = tuple[int, int]
FIELDS = ("variant", "config", "sources", "provenance")
SHIPPED = Path(__file__).resolve().parents[2] / "tuned"
MAX_SLOWDOWN = 1.05  # the margin by which autotune requires a challenger to be faster
MAX_CODES = 1024
_codes: dict[tuple[Any, ...], str] = {}
MAX_BYTES = 8 << 20  # most bytes of a table, or of one winner's file
log = logging.getLogger("baracuda_py")


@lru_cache(maxsize=1)
def _version() -> str:
    try:
        return importlib.metadata.version("baracuda-py")
    except importlib.metadata.PackageNotFoundError:
        return "checkout"


class Key(NamedTuple):
    """The key of a problem's winner: a digest of its structure, the preference and the family, and its extent."""

    structure: str
    extent: int
    axis: str

    def __str__(self) -> str:
        return f"{self.structure}-{self.extent}" if self.extent else self.structure

    @property
    def range(self) -> tuple[int, int]:
        """The extents from one power of two to the next that contain this one: their winners may serve it as well."""
        most = 1 << (self.extent - 1).bit_length()
        return most // 2 + 1, most


@lru_cache(maxsize=64)
def _asked(pref: PlanPreference) -> tuple[str, ...]:
    return tuple(f"{f.name}={x}" for f in fields(pref) if (x := getattr(pref, f.name)) != f.default)


def _key(kind: type[Family[Any]], desc: Any, pref: PlanPreference) -> Key:
    problem = desc.problem_key()
    text = "\n".join((kind.__qualname__, problem.text, *_asked(pref)))
    digest = hashlib.sha256(text.encode(errors="surrogatepass"))  # a configuration asked for may be any text
    return Key(digest.hexdigest()[:24], problem.extent, problem.axis)


def key_of(kind: type[Family[Any]], desc: Any, pref: PlanPreference) -> str:
    """The key of a canonical problem in a table, and the name of its own file."""
    return str(_key(kind, desc, pref))


def source_digest(candidate: Candidate[Any], config: Any, desc: Any, device: DeviceSpec) -> str:
    """The digest of the steps of a candidate's configuration."""
    return lowered_digest(steps_of(candidate, desc, device, config))


def code_digest(steps: Sequence[Step]) -> str:
    """32 hex digits over the sources of the steps' kernels, whatever their launch arguments."""
    kernels = [step.kernel for step in steps if isinstance(step, Launch)]
    made = sorted({f"{kernel.file} {source_of(kernel).digest(kernel.entry)}" for kernel in kernels})
    return hashlib.sha256("\n".join(made).encode()).hexdigest()[:32]


# ---- where winners are -------------------------------------------------------------------------------------------------


def own_folder(device: DeviceSpec) -> Path:
    """The folder of winners that were tuned on such a device: one file per winner, named by its key."""
    return _folder_in(cache_dir(), device)


@lru_cache(maxsize=64)
def _folder_in(cache: Path, device: DeviceSpec) -> Path:
    name = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")
    return cache / "tuned" / f"{name}-{device.arch}-{device.sms}sm-{_version()}"


@lru_cache(maxsize=64)
def _shipped_folder(device: DeviceSpec) -> str:
    """The name of the folder for such a device, empty where there is none."""
    for name in known_devices():
        spec = DeviceSpec.named(name)
        if (spec.name, spec.arch, spec.sms) == (device.name, device.arch, device.sms):
            return name
    return ""


def shipped_path(device: DeviceSpec, op: str) -> Path | None:
    """An op's table that the package has a place for: only on a GPU with shipped figures, whole and not a slice of one."""
    name = _shipped_folder(device)
    return _table_in(SHIPPED, name, op) if name else None


@lru_cache(maxsize=256)
def _table_in(shipped: Path, name: str, op: str) -> Path:
    return shipped / name / f"{op}.json"


# ---- reading -----------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """A source of winners: this machine's own folder, or a shipped table. Its state on disk is read once per call."""

    path: Path
    stamp: Stamp
    shipped: bool


def _stamp(path: Path) -> Stamp | None:
    """A value that changes when the file does; None where there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - it takes half the time of Path.stat
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=512)
def _read(path: Path, _stamp: Stamp, *, shipped: bool) -> dict[str, Winner]:
    """The winners in a file by their keys. Malformed ones are left out, and logged once for each state of the file."""
    try:  # shipped files are trusted as the installed package is
        table = json.loads((path.read_bytes() if shipped else read_trusted(path, MAX_BYTES)) or b"{}")
    except (OSError, ValueError, RecursionError):
        table = None
    records = table if isinstance(table, dict) else {}
    winners = {key: record for key, record in records.items() if _is_winner(record)}
    if table is not records or len(winners) < len(records):
        log.warning("%s holds what is no record of a measured winner, and that is ignored", path)
    return winners


def _is_winner(record: Any) -> bool:
    """Whether each field is one line of text, because plans print their provenance and are restored from it."""
    values = [record.get(field) for field in FIELDS] if isinstance(record, dict) else [None]
    return all(isinstance(value, str) and value.isprintable() for value in values)


@lru_cache(maxsize=64)
def _extents(place: Place) -> dict[str, tuple[int, ...]]:
    """By structure, the extents for which a table, or a folder of winners' files, holds winners."""
    path, stamp, shipped = place
    names = _read(path, stamp, shipped=True) if shipped else [file.stem for file in path.glob("*-*.json")]
    found: dict[str, list[int]] = {}
    for name in names:
        structure, _, extent = name.partition("-")
        if extent.isdecimal():
            found.setdefault(structure, []).append(int(extent))
    return {structure: tuple(extents) for structure, extents in found.items()}


def _places(op: str, device: DeviceSpec) -> list[Place]:
    """The existing sources of winners, this machine's own first."""
    paths = (own_folder(device), False), (shipped_path(device, op), True)
    return [Place(p, stamp, shipped) for p, shipped in paths if p is not None and (stamp := _stamp(p))]


def _winners(key: str, places: Sequence[Place]) -> Iterator[Winner]:
    """The winners recorded under a key, this machine's own first."""
    for path, stamp, shipped in places:
        file = path if shipped else path / f"{key}.json"
        state = stamp if shipped else _stamp(file)
        winner = _read(file, state, shipped=shipped).get(key) if state else None
        if winner is not None:
            yield winner


def _neighbours(key: Key, places: Sequence[Place]) -> Iterator[Winner]:
    """The winners recorded for other extents of the key's range, this machine's own first, then the nearest."""
    low, high = key.range
    for place in places:
        within = [e for e in _extents(place).get(key.structure, ()) if low <= e <= high and e != key.extent]
        for extent in sorted(within, key=lambda e: abs(math.log(e / key.extent))):
            yield from _winners(str(key._replace(extent=extent)), places)


def recommended(
    kind: type[Family[Any]], candidates: Sequence[Candidate[Any]], desc: Any, pref: PlanPreference, device: DeviceSpec
) -> tuple[Assessment, str]:
    """The choice of `select`, and its provenance: a recorded winner that is still valid, else the cost model's best, or the
    correction by the winner of a neighbouring extent."""
    if device.is_host:
        return best(candidates, desc, pref, device), "model"
    key, places = _key(kind, desc, pref), _places(desc.op, device.chip)
    if measured := _recorded(key, places, candidates, desc, pref, device):
        return measured
    predicted = best(candidates, desc, pref, device)
    neighbours = _neighbours(key, places) if key.extent else iter(())
    return _corrected(key, neighbours, predicted, candidates, desc, pref, device) or (predicted, "model")


def _recorded(
    key: Key,
    places: Sequence[Place],
    candidates: Sequence[Candidate[Any]],
    desc: Any,
    pref: PlanPreference,
    device: DeviceSpec,
) -> tuple[Assessment, str] | None:
    """The winner of this problem, if there is one that is still admissible and whose steps are those that were measured."""
    for winner in _winners(str(key), places):
        found = _admissible(winner, candidates, desc, pref, device)
        if found and source_digest(found.candidate, found.config, desc, device) == winner["sources"]:
            return found, winner["provenance"]
    return None


def _corrected(
    key: Key,
    neighbours: Iterator[Winner],
    predicted: Assessment,
    candidates: Sequence[Candidate[Any]],
    desc: Any,
    pref: PlanPreference,
    device: DeviceSpec,
) -> tuple[Assessment, str] | None:
    """The winner of a neighbouring extent, in place of the model's choice.

    At the measured extent the model wrongly predicted the winner to take `slower` times as long as the model's own choice. It is
    assumed to err by at most as much at neighbouring extents: the winner is chosen where its prediction is at most `slower`
    times `MAX_SLOWDOWN` that of the choice, and where its kernels have the code that was measured. Launch arguments differ with
    the extent, so they are not compared.
    """
    for winner in neighbours:
        found = _admissible(winner, candidates, desc, pref, device)
        most = _seconds(predicted, desc, device) * _slower(winner) * MAX_SLOWDOWN
        if not found or _seconds(found, desc, device) > most:
            continue
        if _code_of(key, found, desc, device) == winner.get("code"):
            low, high = key.range
            return found, f"{winner['provenance']}, for {key.axis} {low}..{high}"
    return None


def _admissible(
    winner: Winner, candidates: Sequence[Candidate[Any]], desc: Any, pref: PlanPreference, device: DeviceSpec
) -> Assessment | None:
    """The winner's candidate and configuration, where they may serve the problem."""
    for candidate in candidates:
        if candidate.variant != winner["variant"] or not candidate.supports(desc, device):
            continue
        for config in candidate.configs(desc, device):
            if str(config) == winner["config"] and serves(candidate, desc, pref, device, config):
                return Assessment(candidate, config, OK)
    return None


def _code_of(key: Key, found: Assessment, desc: Any, device: DeviceSpec) -> str:
    """`code_digest` of a configuration's steps for problems of this structure. Cached, because lowering dominates the time of
    these checks."""
    known = key.structure, found.candidate.variant, found.config, device
    if known not in _codes:
        if len(_codes) >= MAX_CODES:
            _codes.clear()
        _codes[known] = code_digest(steps_of(found.candidate, desc, device, found.config))
    return _codes[known]


def _seconds(answer: Assessment, desc: Any, device: DeviceSpec) -> float:
    return answer.candidate.cost(desc, device, answer.config).seconds


def _slower(winner: Winner) -> float:
    """The winner's predicted time over that of the model's choice; 0, which admits nothing, where it was not recorded."""
    try:
        return float(winner.get("slower", 0.0))
    except ValueError:
        return 0.0


# ---- writing -----------------------------------------------------------------------------------------------------------


class Chosen(Selected, Protocol):
    """A selection, as its record needs it."""

    @property
    def family(self) -> type[Family[Any]]: ...

    @property
    def candidate(self) -> Candidate[Any]: ...

    @property
    def cost(self) -> Cost: ...


def entry(winner: Chosen, provenance: str) -> tuple[str, Winner]:
    """The key and the record of `winner` in a table."""
    candidate, config, desc = winner.candidate, winner.config, winner.canonical
    device, pref = winner.device, winner.pref
    steps = steps_of(candidate, desc, device, config)
    key = _key(winner.family, desc, pref)
    entry = {
        "variant": candidate.variant,
        "config": str(config),
        "sources": lowered_digest(steps),
        "provenance": provenance,
    }
    if key.extent:
        chosen = _seconds(best(winner.family.all_candidates(), desc, pref, device), desc, device)
        entry |= {"slower": f"{winner.cost.seconds / chosen:.4f}", "code": code_digest(steps)}
    return str(key), entry


def record(winner: Chosen, provenance: str) -> None:
    """Stores a winner in the cache directory. A folder that cannot be written is logged and is not an error."""
    key, won = entry(winner, provenance)
    path = own_folder(winner.device) / f"{key}.json"
    if not write_atomic(path, json.dumps({key: won}).encode()):
        log.warning("%s cannot be written: the winner is forgotten at the end of this process", path)
