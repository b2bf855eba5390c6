"""The cubin cache: content-addressed, atomic, shared by threads and processes, bounded, and never in the way.

An entry is ``<key>.json`` (mangled name, resources, digest) beside ``<digest>.cubin``, which kernels that compiled
together share. The JSON is written last, so a reader sees a whole entry or none; a cubin that does not match its digest
counts as missing and is rebuilt. A folder that cannot be written is one warning, and kernels are loaded from memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["Hit", "cache_dir", "key", "load", "store_cubin", "store_entry"]

LIMIT_BYTES = 512 << 20
_warned: set[str] = set()


@dataclass(frozen=True)
class Hit:
    cubin: bytes
    path: str
    meta: dict[str, Any]


def cache_dir() -> Path:
    """``BARACUDA_CACHE_DIR``, else ``baracuda_py`` under ``XDG_CACHE_HOME`` or ``~/.cache``."""
    override = os.environ.get("BARACUDA_CACHE_DIR")
    if override:
        return Path(override)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "baracuda_py"


def key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def _digest(cubin: bytes) -> str:
    return hashlib.sha256(cubin).hexdigest()[:40]


def load(entry: str) -> Hit | None:
    """The entry, if it is whole; None if it is absent, damaged or unreadable."""
    folder = cache_dir()
    try:
        meta = json.loads((folder / f"{entry}.json").read_bytes())
        path = folder / f"{meta['digest']}.cubin"
        cubin = path.read_bytes()
        if _digest(cubin) != meta["digest"] or not {"name", "resources"} <= meta.keys():
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Hit(cubin, str(path), meta)


def store_cubin(cubin: bytes) -> str | None:
    """Writes a cubin and returns its path, or None (with one warning) where the folder cannot be written."""
    path = cache_dir() / f"{_digest(cubin)}.cubin"
    return str(path) if _write(path, cubin) else None


def store_entry(entry: str, cubin: bytes, meta: dict[str, Any]) -> None:
    """Records that `entry` is found in `cubin`, which store_cubin wrote."""
    _write(cache_dir() / f"{entry}.json", json.dumps({**meta, "digest": _digest(cubin)}).encode())


def _write(path: Path, data: bytes) -> bool:
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _evict(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        if str(path.parent) not in _warned:
            _warned.add(str(path.parent))
            warnings.warn(
                f"the kernel cache {path.parent} cannot be written ({error.strerror or error}): kernels are compiled again "
                "in every process; set BARACUDA_CACHE_DIR to a folder that can",
                RuntimeWarning,
                stacklevel=2,
            )
        return False
    return True


@lru_cache(maxsize=8)
def _evict(folder: Path) -> None:
    """Once a process and folder: drops the oldest entries until three quarters of the limit are left."""
    entries = []
    for item in folder.iterdir():
        with contextlib.suppress(OSError):
            status = item.stat()
            entries.append((status.st_mtime, status.st_size, item))
    total = sum(size for _, size, _ in entries)
    if total <= LIMIT_BYTES:
        return
    for _, size, item in sorted(entries):
        with contextlib.suppress(OSError):
            item.unlink()
        total -= size
        if total <= LIMIT_BYTES * 3 // 4:
            return
