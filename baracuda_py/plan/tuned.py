"""Measured winners: what autotune found, in the cache directory, and what the package ships for known GPUs.

A record is void once what it names would launch other code, or launch it otherwise.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.cache import cache_dir
from ..types import DeviceSpec
from .digest import lowered_digest

if TYPE_CHECKING:
    from .candidate import Candidate
    from .plan import Plan
    from .select import Assessment

__all__ = ["Winner", "apply", "entry", "key_of", "record", "shipped_path", "source_digest"]

Winner = dict[str, str]  # variant, config, sources, provenance


def _version() -> str:
    try:
        return importlib.metadata.version("baracuda-py")
    except importlib.metadata.PackageNotFoundError:
        return "checkout"


def _slug(device: DeviceSpec) -> str:
    return device.name.lower().removeprefix("nvidia ").split(" ")[0].replace("/", "_")


def key_of(kind: type[Plan[Any]], desc: Any, pref: Any) -> str:
    text = json.dumps([kind.__qualname__, desc.to_dict(), repr(pref)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def source_digest(candidate: Candidate[Any], config: Any, desc: Any, device: DeviceSpec) -> str:
    """Names what a candidate's configuration would launch."""
    return lowered_digest(candidate.lower(desc, device, config))


def _own_path(device: DeviceSpec) -> Path:
    return cache_dir() / "tuned" / f"{_slug(device)}-{device.arch}-{_version()}.json"


def shipped_path(device: DeviceSpec) -> Path:
    """The table that the package brings for a GPU of that name, where it brings one."""
    return Path(__file__).resolve().parent.parent / "tuned" / f"{_slug(device)}.json"


def _stamp(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


@lru_cache(maxsize=16)
def _read(path: Path, _stamp: float) -> dict[str, Winner]:
    try:
        data = json.loads(path.read_text())
        return data if isinstance(data, dict) else {}
    except (OSError, ValueError):
        return {}


def _tables(device: DeviceSpec) -> list[dict[str, Winner]]:
    return [_read(path, _stamp(path)) for path in (_own_path(device), shipped_path(device))]


def apply(
    kind: type[Plan[Any]], desc: Any, pref: Any, device: DeviceSpec, answers: list[Assessment]
) -> tuple[Assessment, str] | None:
    """The recorded winner among admissible `answers` and its provenance, if there is one and it still stands."""
    tables = [t for t in _tables(device) if t] if not device.is_host else []
    if not tables:
        return None
    key = key_of(kind, desc, pref)
    for table in tables:
        winner = table.get(key)
        if winner is None:
            continue
        for answer in answers:
            same = (answer.candidate.variant, str(answer.config)) == (winner["variant"], winner["config"])
            if not same or not answer.feasibility:
                continue
            if source_digest(answer.candidate, answer.config, desc, device) == winner["sources"]:
                return answer, winner["provenance"]
    return None


def entry(winner: Plan[Any], provenance: str) -> tuple[str, Winner]:
    """What a table holds for the problem and preference of `winner`, and under which key."""
    candidate, config, desc = winner._candidate, winner._config, winner._canonical
    return key_of(type(winner), desc, winner.pref), {
        "variant": candidate.variant,
        "config": str(config),
        "sources": source_digest(candidate, config, desc, winner.device),
        "provenance": provenance,
    }


def record(winner: Plan[Any], provenance: str) -> None:
    """Adds a winner to the cache directory's table, atomically; a folder that cannot be written is no error."""
    path = _own_path(winner.device)
    table = {**_read(path, _stamp(path)), **dict([entry(winner, provenance)])}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            json.dump(table, file)
        Path(temporary).replace(path)
    except OSError:
        return
    _read.cache_clear()
