"""Measured winners: what autotune found, in the cache directory, and what the package ships for known GPUs.

A winner counts on the device it was measured on (its full name, arch and number of SMs) and is void once what it names would
launch other code, or launch it otherwise. The package ships a table an op, ``tuned/<gpu>/<op>.json``. In the cache directory each
winner is a file of its own, so that processes which tune at the same time lose nothing. A record that is none is ignored, with
one warning in the log.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.cache import cache_dir
from ...runtime.files import read_trusted, write_atomic
from ...types import DeviceSpec, PlanPreference, known_devices
from ..candidate import OK, steps_of
from ..select import Assessment, best, serves
from .digest import lowered_digest

if TYPE_CHECKING:
    from ..candidate import Candidate
    from ..family import Family
    from ..selection import Selection

__all__ = ["Winner", "apply", "entry", "key_of", "recommended", "record", "shipped_path", "source_digest"]

Winner = dict[str, str]
FIELDS = ("variant", "config", "sources", "provenance")
SHIPPED = Path(__file__).resolve().parents[2] / "tuned"
MOST_BYTES = 8 << 20  # of a table, or of one winner
log = logging.getLogger("baracuda_py")


@lru_cache(maxsize=1)
def _version() -> str:
    try:
        return importlib.metadata.version("baracuda-py")
    except importlib.metadata.PackageNotFoundError:
        return "checkout"


def key_of(kind: type[Family[Any]], desc: Any, pref: Any) -> str:
    text = json.dumps([kind.__qualname__, desc.to_dict(), repr(pref)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def source_digest(candidate: Candidate[Any], config: Any, desc: Any, device: DeviceSpec) -> str:
    """Names what a candidate's configuration would launch."""
    return lowered_digest(steps_of(candidate, desc, device, config))


# ---- where winners are -------------------------------------------------------------------------------------------------


def own_folder(device: DeviceSpec) -> Path:
    """The folder of what was tuned on such a device: one file a winner, named by its key."""
    name = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")
    return cache_dir() / "tuned" / f"{name}-{device.arch}-{device.sms}sm-{_version()}"


def shipped_path(device: DeviceSpec, op: str) -> Path | None:
    """An op's table that the package has a place for: only on a GPU with shipped figures, whole and not a slice of one."""
    for name in known_devices():
        spec = DeviceSpec.named(name)
        if (spec.name, spec.arch, spec.sms) == (device.name, device.arch, device.sms):
            return SHIPPED / name / f"{op}.json"
    return None


# ---- reading -----------------------------------------------------------------------------------------------------------


def _stamp(path: Path) -> tuple[int, int]:
    """What changes with a file; zeros where there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=512)
def _read(path: Path, _stamp: tuple[int, int], *, shipped: bool) -> dict[str, Winner]:
    """The winners in a file by their keys; what is none is left out, and that is logged once for each state of the file."""
    try:  # whoever installed the package is trusted already
        table = json.loads((path.read_bytes() if shipped else read_trusted(path, MOST_BYTES)) or b"{}")
    except (OSError, ValueError, RecursionError):
        table = None
    records = table if isinstance(table, dict) else {}
    winners = {key: record for key, record in records.items() if _is_winner(record)}
    if table is not records or len(winners) < len(records):
        log.warning("%s holds what is no record of a measured winner, and that is ignored", path)
    return winners


def _is_winner(record: Any) -> bool:
    """Whether each field is a line of text: a plan shows its provenance, and is restored with it."""
    values = [record.get(field) for field in FIELDS] if isinstance(record, dict) else [None]
    return all(isinstance(value, str) and value.isprintable() for value in values)


def _winners(key: str, op: str, device: DeviceSpec) -> Iterator[Winner]:
    """What is recorded under a key, this machine's own winner first."""
    for path, shipped in ((own_folder(device) / f"{key}.json", False), (shipped_path(device, op), True)):
        if path is not None and any(stamp := _stamp(path)):
            winner = _read(path, stamp, shipped=shipped).get(key)
            if winner is not None:
                yield winner


def recommended(
    kind: type[Family[Any]], candidates: Sequence[Candidate[Any]], desc: Any, pref: PlanPreference, device: DeviceSpec
) -> tuple[Assessment, str]:
    """What `select` chooses, and by what: the recorded winner where there is one that still stands, else the model's best."""
    measured = None if device.is_host else apply(kind, candidates, desc, pref, device)
    return measured or (best(candidates, desc, pref, device), "model")


def apply(
    kind: type[Family[Any]], candidates: Sequence[Candidate[Any]], desc: Any, pref: PlanPreference, device: DeviceSpec
) -> tuple[Assessment, str] | None:
    """The recorded winner and its provenance, if there is one that is still admissible and launches what was measured."""
    for winner in _winners(key_of(kind, desc, pref), desc.op, device.chip):
        for candidate in candidates:
            if candidate.variant != winner["variant"] or not candidate.supports(desc, device):
                continue
            for config in candidate.configs(desc, device):
                if str(config) != winner["config"] or not serves(candidate, desc, pref, device, config):
                    continue
                if source_digest(candidate, config, desc, device) == winner["sources"]:
                    return Assessment(candidate, config, OK), winner["provenance"]
    return None


# ---- writing -----------------------------------------------------------------------------------------------------------


def entry(winner: Selection, provenance: str) -> tuple[str, Winner]:
    """What a table holds for the problem and preference of `winner`, and under which key."""
    candidate, config, desc = winner.candidate, winner.config, winner.canonical
    return key_of(winner.family, desc, winner.pref), {
        "variant": candidate.variant,
        "config": str(config),
        "sources": source_digest(candidate, config, desc, winner.device),
        "provenance": provenance,
    }


def record(winner: Selection, provenance: str) -> None:
    """Puts a winner into the cache directory; a folder that cannot be written is no error, and is logged."""
    key, won = entry(winner, provenance)
    path = own_folder(winner.device) / f"{key}.json"
    if not write_atomic(path, json.dumps({key: won}).encode()):
        log.warning("%s cannot be written: the winner is forgotten at the end of this process", path)
