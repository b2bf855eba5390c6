"""The kernel cache: content-addressed, atomic, bounded, and shared by threads, processes and users.

An entry is ``<key>.json`` (mangled name, resources, which code) beside the code: ``<digest>.cubin``, which kernels that
compiled together share, or ``<digest>.ptx``. A seal in the JSON is the digest of the key, of all that the JSON says and of the
code. The JSON is written last, so a reader sees a whole entry or none. An entry that does not match its seal counts as missing
and is rebuilt. `files` decides whose files are trusted. If the folder cannot be written, one warning is issued and kernels are
loaded from memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..system.files import TEMPORARY, read_trusted, write_whole

__all__ = ["Hit", "cache_dir", "contents", "key", "load", "store"]

LIMIT_BYTES = 512 << 20
_LARGEST_ENTRY, _LARGEST_CODE = 1 << 16, 64 << 20
_OURS = re.compile(r"[0-9a-f]{40}\.(json|cubin|ptx)")
_UNFINISHED = re.compile(re.escape(TEMPORARY) + "[0-9a-f]{16}")
_STALE_SECONDS = 3600.0  # a temporary file this old was left behind
_warned: set[Path] = set()
_sizes: dict[Path, int] = {}  # bytes in a folder: counted once, then updated

Kind: TypeAlias = Literal["cubin", "ptx"]  # of code; each key is for one kind


@dataclass(frozen=True)
class Hit:
    code: bytes
    meta: dict[str, Any]


def cache_dir() -> Path:
    """``BARACUDA_CACHE_DIR``, else ``baracuda_py`` under ``XDG_CACHE_HOME`` or ``~/.cache``; absolute.

    A user without a home directory (in a container) gets a folder in the temporary directory.
    """
    return _cache_dir(*map(os.environ.get, _DECIDING))


_DECIDING = ("BARACUDA_CACHE_DIR", "XDG_CACHE_HOME", "USERPROFILE" if os.name == "nt" else "HOME")


@lru_cache(maxsize=8)
def _cache_dir(own: str | None, shared: str | None, _home: str | None) -> Path:
    if own:
        return _absolute(own)
    if shared:
        return _absolute(shared) / "baracuda_py"
    home = _absolute("~")
    return home / ".cache" / "baracuda_py" if home.name != "~" else Path(tempfile.gettempdir()) / _homeless()


def _homeless() -> str:
    return f"baracuda_py-{os.getuid()}" if hasattr(os, "getuid") else "baracuda_py"


def _absolute(folder: str) -> Path:
    path = Path(os.path.expanduser(folder))  # noqa: PTH111 - Path.expanduser raises where there is no home
    return path if path.is_absolute() else _anchored(path)


@lru_cache(maxsize=8)
def _anchored(path: Path) -> Path:
    """A relative folder made absolute at its first use, so that a change of the working directory does not move it."""
    return path.absolute()


def key(*parts: str) -> str:
    return _digest("\0".join(parts).encode())


def _digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()[:40]


def _seal(entry: str, meta: Mapping[str, Any], code: bytes) -> str:
    said = json.dumps({**meta, "key": entry}, sort_keys=True).encode()
    return _digest(said, b"\0", code)


def load(entry: str, kind: Kind = "cubin") -> Hit | None:
    """The entry, if it is whole and its files are trusted; None if it is absent, damaged or another user's."""
    path = cache_dir() / f"{entry}.json"
    text = read_trusted(path, _LARGEST_ENTRY)
    if text is None:
        return None
    try:
        meta = json.loads(text)
        seal, name = meta.pop("seal"), f"{meta[kind]}.{kind}"
        code = read_trusted(path.with_name(name), _LARGEST_CODE) if _OURS.fullmatch(name) else None
        if code is None or _seal(entry, meta, code) != seal:
            return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    for used in (path, path.with_name(name)):  # marks the files as used: the least recently used are dropped first
        with contextlib.suppress(OSError, NotImplementedError):
            os.utime(used, follow_symlinks=False)
    return Hit(code, meta)


def store(code: bytes, entries: Mapping[str, Mapping[str, Any]], kind: Kind = "cubin") -> None:
    """Writes code, and the entries of its kernels by their keys; one warning where the folder cannot be written."""
    folder, name = cache_dir(), _digest(code)
    try:
        _write(folder / f"{name}.{kind}", code)
        for entry, known in entries.items():
            meta = {**known, kind: name}
            _write(folder / f"{entry}.json", json.dumps({**meta, "seal": _seal(entry, meta, code)}).encode())
    except OSError as error:
        if folder not in _warned:
            _warned.add(folder)
            warnings.warn(
                f"the kernel cache {folder} cannot be written ({error.strerror or error}): kernels are compiled again "
                "in every process; set BARACUDA_CACHE_DIR to a folder that can",
                RuntimeWarning,
                stacklevel=2,
            )


def _write(path: Path, data: bytes) -> None:
    write_whole(path, data)
    # The bytes of other threads and processes may be missing here, so a writer that crosses the limit counts again.
    known = _sizes.get(path.parent)
    _sizes[path.parent] = _evict(path.parent) if known is None else known + len(data)
    if _sizes[path.parent] > LIMIT_BYTES:
        _sizes[path.parent] = _evict(path.parent)


def contents(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The files of a folder that have names of this module's form; other files are left alone."""
    with contextlib.suppress(OSError):
        for item in folder.iterdir():
            if _OURS.fullmatch(item.name) or _UNFINISHED.fullmatch(item.name):
                with contextlib.suppress(OSError):
                    status = item.lstat()
                    if stat.S_ISREG(status.st_mode):
                        yield item, status


def _evict(folder: Path) -> int:
    """Deletes stale temporary files and, above the limit, the least recently used files down to three quarters of the limit.

    Returns the remaining bytes.
    """
    now, total, held = time.time(), 0, []
    for item, status in contents(folder):
        unfinished = item.name.startswith(TEMPORARY)
        if unfinished and now - status.st_mtime > _STALE_SECONDS and _removed(item):
            continue
        total += status.st_size
        if not unfinished:
            held.append((status.st_mtime, status.st_size, item))
    if total > LIMIT_BYTES:
        for _, size, item in sorted(held):
            if total <= LIMIT_BYTES * 3 // 4:
                break
            total -= size if _removed(item) else 0
    return total


def _removed(item: Path) -> bool:
    with contextlib.suppress(OSError):
        item.unlink()
        return True
    return False
