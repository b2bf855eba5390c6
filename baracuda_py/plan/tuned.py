"""Measured winners: what autotune found, in the cache directory, and what the package ships for known GPUs.

A record is void once the source of the kernels it names has changed.
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
from ..runtime.sources import source_of
from ..runtime.steps import Launch
from ..types import DeviceSpec

if TYPE_CHECKING:
    from .plan import Plan
    from .select import Assessment

__all__ = ["Winner", "apply", "record", "source_digest"]

Winner = dict[str, str]  # variant, config, sources, provenance


def _version() -> str:
    try:
        return importlib.metadata.version("baracuda-py")
    except importlib.metadata.PackageNotFoundError:
        return "checkout"


def _slug(device: DeviceSpec) -> str:
    return device.name.lower().removeprefix("nvidia ").split(" ")[0].replace("/", "_")


def _key(kind: type[Plan[Any]], desc: Any, pref: Any) -> str:
    text = json.dumps([kind.__qualname__, desc.to_dict(), repr(pref)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def source_digest(answer: Assessment, desc: Any, device: DeviceSpec) -> str:
    """One hash over the sources of every kernel an answer lowers to."""
    steps = answer.candidate.lower(desc, device, answer.config)
    parts = sorted(source_of(s.kernel).digest(s.kernel.prelude) for s in steps if isinstance(s, Launch))
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:24]


def _own_path(device: DeviceSpec) -> Path:
    return cache_dir() / "tuned" / f"{_slug(device)}-{device.arch}-{_version()}.json"


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
    shipped = Path(__file__).resolve().parent.parent / "tuned" / f"{_slug(device)}.json"
    return [_read(path, _stamp(path)) for path in (_own_path(device), shipped)]


def apply(
    kind: type[Plan[Any]], desc: Any, pref: Any, device: DeviceSpec, answers: list[Assessment]
) -> tuple[Assessment, str] | None:
    """The recorded winner among admissible `answers` and its provenance, if there is one and it still stands."""
    tables = [t for t in _tables(device) if t] if not device.is_host else []
    if not tables:
        return None
    key = _key(kind, desc, pref)
    for table in tables:
        winner = table.get(key)
        for answer in answers if winner else ():
            same = (answer.candidate.variant, str(answer.config)) == (winner["variant"], winner["config"])  # type: ignore[index]
            if same and answer.feasibility and source_digest(answer, desc, device) == winner["sources"]:  # type: ignore[index]
                return answer, winner["provenance"]  # type: ignore[index]
    return None


def record(
    kind: type[Plan[Any]], desc: Any, pref: Any, device: DeviceSpec, answer: Assessment, provenance: str
) -> None:
    """Adds a winner to the cache directory's table, atomically; a folder that cannot be written is no error."""
    path = _own_path(device)
    winner = {
        "variant": answer.candidate.variant,
        "config": str(answer.config),
        "sources": source_digest(answer, desc, device),
        "provenance": provenance,
    }
    table = {**_read(path, _stamp(path)), _key(kind, desc, pref): winner}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            json.dump(table, file)
        Path(temporary).replace(path)
    except OSError:
        return
    _read.cache_clear()
