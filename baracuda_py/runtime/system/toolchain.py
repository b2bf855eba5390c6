"""Finds the tools that compile and disassemble: NVRTC (through CuPy or cuda.bindings), CUDA and CCCL headers, cuobjdump or
nvdisasm."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import re
import shutil
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from ...types import UnsupportedError
from .libraries import package_folders
from .nvrtc import BindingsNvrtc, Nvrtc

__all__ = [
    "cccl_version",
    "cuda_major",
    "disassembler",
    "driver_version",
    "include_dirs",
    "install_hint",
    "install_hints",
    "installed_version",
    "nvrtc",
    "nvrtc_build",
    "nvrtc_version",
]

_DRIVER = re.compile(r"\b\d{3}\.\d+(\.\d+)?\b")
_VERSION, _BUILD = re.compile(rb"\bV(\d+\.\d+\.\d+)\b"), re.compile(rb"Build ID: (\S+)")  # in the head of PTX
_DRIVER_OF_CUDA_13 = 580  # the first driver that supports it
_WHEELS = {"cupy-cuda13x": 13, "cupy-cuda12x": 12, "nvidia-cuda-nvrtc": 13, "nvidia-cuda-nvrtc-cu12": 12}


@lru_cache(maxsize=1)
def cuda_major() -> int | None:
    """The CUDA major version of this installation: that of CuPy's or NVRTC's wheel, else the newest that the driver
    supports."""
    for wheel, major in _WHEELS.items():
        if installed_version(wheel):
            return major
    driver = driver_version()
    return None if driver is None else 13 if int(driver.partition(".")[0]) >= _DRIVER_OF_CUDA_13 else 12


def driver_version() -> str | None:
    """The version of NVIDIA's kernel module, ``"580.82.07"``, or None where none is loaded."""
    with contextlib.suppress(OSError):
        found = _DRIVER.search(Path("/proc/driver/nvidia/version").read_text())
        return found[0] if found else None
    return None


def install_hint(extra: str = "cuda") -> str:
    """The command that installs what is missing, in a checkout because no package index has this project: an extra (``cuda``,
    or ``full`` with all libraries and headers) for this CUDA version."""
    major = cuda_major()
    if major:
        return f"pip install '.[{extra}{major}]' in a checkout"
    return f"pip install '.[{extra}12]' in a checkout (or [{extra}13] for a CUDA 13 driver)"


def install_hints() -> str:
    """Both ways to install what is missing where neither CuPy nor cuda-bindings is here."""
    return f"{install_hint()}; without CuPy, for PyTorch's tensors: {install_hint('torch')}"


@lru_cache(maxsize=1)
def nvrtc() -> Nvrtc:
    """NVRTC through CuPy, or through cuda.bindings where CuPy cannot be imported; UnsupportedError with the fix where both are
    missing, or the library is missing or damaged."""
    through = "CuPy"
    try:
        from cupy.cuda import nvrtc as found

        module: Nvrtc = found
    except Exception as error:  # a damaged installation raises anything
        through, module = "cuda.bindings", _nvrtc_of_bindings(error)
    try:
        module.getVersion()
    except Exception as error:
        raise UnsupportedError(
            f"compiling a kernel needs the NVRTC library, which {through} cannot load ({_line(error)}): "
            f"{install_hint('cuda' if through == 'CuPy' else 'torch')}"
        ) from None
    return module


def _nvrtc_of_bindings(no_cupy: Exception) -> Nvrtc:
    try:
        return BindingsNvrtc(importlib.import_module("cuda.bindings.nvrtc"))
    except Exception as error:
        raise UnsupportedError(
            f"compiling a kernel needs CuPy or cuda-bindings, and neither can be imported ({_line(no_cupy)}; {_line(error)}): "
            f"{install_hints()}"
        ) from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@lru_cache(maxsize=1)
def nvrtc_version() -> tuple[int, int]:
    major, minor = nvrtc().getVersion()
    return int(major), int(minor)


@lru_cache(maxsize=1)
def nvrtc_build() -> str:
    """NVRTC's whole version and its build, ``"12.9.86 CL-36037853"``.

    Only PTX states them, so an empty program is compiled. Raises UnsupportedError if NVRTC cannot do that.
    """
    module = nvrtc()
    program = module.createProgram("", "", (), ())
    try:
        module.compileProgram(program, ())
        text = module.getPTX(program)
    except module.NVRTCError as error:
        raise UnsupportedError(
            f"NVRTC {'.'.join(map(str, nvrtc_version()))} is damaged: it does not compile an empty program "
            f"({_line(error)}: {' '.join(str(module.getProgramLog(program)).split())}): {install_hint()}"
        ) from None
    finally:
        module.destroyProgram(program)
    version, build = _VERSION.search(text), _BUILD.search(text)
    return f"{version[1].decode() if version else nvrtc_version()} {build[1].decode() if build else ''}".strip()


def _roots() -> Iterable[Path]:
    """Toolkit roots and the `nvidia` wheels, those of NVRTC's own major version first."""
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    for base in package_folders("nvidia"):
        yield base / f"cu{nvrtc_version()[0]}"
        yield base / "cuda_runtime"
        yield base / "cuda_cccl"
    nvcc = shutil.which("nvcc")
    if nvcc:
        yield Path(nvcc).resolve().parent.parent
    yield Path("/usr/local/cuda")


@lru_cache(maxsize=8)
def include_dirs(headers: frozenset[str]) -> tuple[str, ...]:
    """Folders that together hold every named system header. An UnsupportedError names a header that was not found."""
    found: list[str] = []
    for header in sorted(headers):
        for root in _roots():
            for folder in (root / "include", root / "include" / "cccl"):
                if os.access(folder / header, os.R_OK):  # is_file raises in a folder that may not be entered
                    break
            else:
                continue
            if str(folder) not in found:
                found.append(str(folder))
            break
        else:
            extra = "full" if header.startswith(("cub/", "cuda/", "thrust/")) else "cuda"
            raise UnsupportedError(f"<{header}> is in no CUDA wheel or toolkit found here: {install_hint(extra)}")
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
    folders = os.environ.get("PATH", "").split(os.pathsep)
    folders += [str(root / "bin") for root in _roots()]
    for base in package_folders("nvidia"):
        folders += sorted(map(str, base.glob("cu*/bin")), reverse=True)
    folders += [str(base / "backends" / "nvidia" / "bin") for base in package_folders("triton")]
    # cuobjdump selects one kernel of a cubin, but calls nvdisasm, which it looks for on PATH and in its own folder.
    for folder in filter(None, folders):
        tool = shutil.which("cuobjdump", path=folder)
        if tool and (shutil.which("nvdisasm") or shutil.which("nvdisasm", path=folder)):
            return tool
    return shutil.which("nvdisasm", path=os.pathsep.join(filter(None, folders)))


def installed_version(distribution: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
