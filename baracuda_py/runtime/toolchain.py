"""Finding what compiles and disassembles: NVRTC (through CuPy), CUDA and CCCL headers, cuobjdump or nvdisasm."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..types import UnsupportedError

__all__ = ["cccl_version", "disassembler", "include_dirs", "install_hint", "nvrtc", "nvrtc_version"]


def install_hint() -> str:
    return "pip install 'baracuda-py[cuda12]' (or [cuda13] for a CUDA 13 driver)"


@lru_cache(maxsize=1)
def nvrtc() -> Any:
    """CuPy's NVRTC bindings; UnsupportedError with the mend where CuPy or the library is missing."""
    try:
        from cupy.cuda import nvrtc as module
    except ImportError as error:
        raise UnsupportedError(
            f"compiling a kernel needs CuPy, which cannot be imported ({error}): {install_hint()}"
        ) from None
    try:
        module.getVersion()
    except Exception as error:
        raise UnsupportedError(
            f"compiling a kernel needs the NVRTC library, which CuPy cannot load ({error}): {install_hint()}"
        ) from None
    return module


@lru_cache(maxsize=1)
def nvrtc_version() -> tuple[int, int]:
    major, minor = nvrtc().getVersion()
    return int(major), int(minor)


def _roots() -> Iterable[Path]:
    """Toolkit roots and the `nvidia` wheels, those of NVRTC's own major version first."""
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    spec = importlib.util.find_spec("nvidia")
    for base in (spec.submodule_search_locations or []) if spec else []:
        yield Path(base) / f"cu{nvrtc_version()[0]}"
        yield Path(base) / "cuda_runtime"
        yield Path(base) / "cuda_cccl"
    nvcc = shutil.which("nvcc")
    if nvcc:
        yield Path(nvcc).resolve().parent.parent
    yield Path("/usr/local/cuda")


@lru_cache(maxsize=8)
def include_dirs(headers: frozenset[str]) -> tuple[str, ...]:
    """Folders that together hold every system header named; UnsupportedError names the one that is nowhere."""
    found: list[str] = []
    for header in sorted(headers):
        for root in _roots():
            for folder in (root / "include", root / "include" / "cccl"):
                if (folder / header).is_file():
                    break
            else:
                continue
            if str(folder) not in found:
                found.append(str(folder))
            break
        else:
            raise UnsupportedError(f"<{header}> is in no CUDA wheel or toolkit found here: {install_hint()}")
    return tuple(found)


@lru_cache(maxsize=1)
def cccl_version() -> str:
    """The CCCL version that ``<cub/...>`` would come from, or an empty text."""
    try:
        for folder in include_dirs(frozenset({"cuda/__cccl_config"})):
            text = (Path(folder) / "cuda" / "std" / "__cccl" / "version.h").read_text()
            return next((line.split()[-1] for line in text.splitlines() if "CCCL_VERSION " in line), "")
    except (UnsupportedError, OSError):
        pass
    return ""


@lru_cache(maxsize=1)
def disassembler() -> str | None:
    """The path of cuobjdump or nvdisasm, or None: PATH, a toolkit, a CUDA wheel of any version, or Triton's own copy."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += [root / "bin" for root in _roots()]
    nvidia = importlib.util.find_spec("nvidia")
    for base in (nvidia.submodule_search_locations or []) if nvidia else []:
        folders += sorted(Path(base).glob("cu*/bin"), reverse=True)
    triton = importlib.util.find_spec("triton")
    for base in (triton.submodule_search_locations or []) if triton else []:
        folders.append(Path(base) / "backends" / "nvidia" / "bin")
    # cuobjdump picks one kernel of a cubin, but only calls nvdisasm, which it looks for on PATH and beside itself.
    for folder in folders:
        if _runs(folder / "cuobjdump") and (shutil.which("nvdisasm") or _runs(folder / "nvdisasm")):
            return str(folder / "cuobjdump")
    return next((str(folder / "nvdisasm") for folder in folders if _runs(folder / "nvdisasm")), None)


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def installed_version(distribution: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
