"""Finds the installed CUDA libraries by their files. Nothing is loaded, so `select` stays host-only."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

__all__ = ["FILES", "installed_libraries", "package_folders"]

FILES = {"cublas": "libcublas.so*"}  # library -> the pattern of its file's name


def package_folders(name: str) -> list[Path]:
    """The folders of a package, which need not be importable. `nvidia` has several, because many wheels share it."""
    with contextlib.suppress(ImportError, ValueError):  # an import hook that raises; a module without a spec
        spec = importlib.util.find_spec(name)
        return [Path(base) for base in (spec.submodule_search_locations or [])] if spec else []
    return []


def _folders() -> Iterator[Path]:
    """The folders that may hold CUDA libraries: the `nvidia` wheels, a Conda environment, a toolkit, the loader's folders."""
    for base in package_folders("nvidia"):
        yield from base.glob("*/lib")
    yield Path(sys.prefix) / "lib"
    for variable in ("CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX"):
        if os.environ.get(variable):
            yield from (Path(os.environ[variable]) / name for name in ("lib64", "lib"))
    yield Path("/usr/local/cuda/lib64")
    yield from (Path(f) for f in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if f)
    yield from (Path(f) for f in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"))


@lru_cache(maxsize=1)
def installed_libraries() -> frozenset[str]:
    """The libraries of `FILES` that are here, as `DeviceSpec.libraries` names them."""
    folders = [folder for folder in dict.fromkeys(_folders()) if folder.is_dir()]
    return frozenset(name for name, pattern in FILES.items() if any(any(f.glob(pattern)) for f in folders))
