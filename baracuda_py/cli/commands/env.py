"""Shows what was found on this machine, what is missing, and how to get it. Never fails: a probe that raises becomes a line."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["SUMMARY", "Finding", "arguments", "findings", "run"]

SUMMARY = "what was found here, what is missing, how to get it"

_EXTRA = "pip install '.[{}]' in a checkout"
_DRIVER = "install NVIDIA's driver on a machine with a GPU of compute capability 8.0 or later"


@dataclass(frozen=True)
class Finding:
    """The result of one probe. `value` is None if the thing is missing, and `get` says how to install it; `extra` is for
    JSON."""

    group: str
    name: str
    value: str | None
    get: str = ""
    note: str = ""
    extra: Mapping[str, Any] | None = None


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="JSON")


def run(given: argparse.Namespace) -> int:
    found = findings()
    able = abilities(found)
    if given.json:
        print(json.dumps({"findings": [asdict(f) for f in found], "abilities": able}, indent=2))
    else:
        _show(found, able)
    return 0


def findings() -> list[Finding]:
    """The results of all probes, in the order of the output."""
    from ...runtime.system.toolchain import cuda_major, install_hint

    cuda, full = install_hint(), install_hint("full")
    probes: list[tuple[str, str, Callable[[], Any], str]] = [
        (
            "here",
            "Python",
            lambda: f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})",
            "",
        ),
        ("here", "OS", platform.platform, ""),
        ("here", "baracuda_py", _ourselves, ""),
        ("here", "NumPy", lambda: _version("numpy"), "pip install numpy"),
        ("here", "ml_dtypes", lambda: _version("ml_dtypes"), "pip install ml_dtypes"),
        ("GPU", "CuPy", _cupy, f"{cuda}; PyTorch's tensors need only {install_hint('torch')}"),
        ("GPU", "cuda.bindings", lambda: _version("cuda-bindings"), cuda),
        ("GPU", "driver", _driver, _DRIVER),
        ("compile", "NVRTC", _nvrtc, cuda),
        ("compile", "CUDA headers", lambda: _headers("cuda_fp16.h", "cuda_bf16.h"), cuda),
        ("compile", "CCCL headers", _cccl, full),
        (
            "compile",
            "disassembler",
            _disassembler,
            "pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm (for SASS only)",
        ),
        ("compile", "kernel cache", _cache, "set BARACUDA_CACHE_DIR to a folder that can be written"),
        ("optional", "cuBLAS", _cublas, full),
        ("optional", "torch", lambda: _version("torch"), "pip install torch"),
        ("optional", "jax", lambda: _version("jax"), f"pip install 'jax[cuda{cuda_major() or 12}]'"),
        ("optional", "matplotlib", lambda: _version("matplotlib"), _EXTRA.format("bench")),
        ("optional", "NVML", lambda: _version("nvidia-ml-py"), _EXTRA.format("bench")),
    ]
    found = [_probe(*p) for p in probes]
    place = next(i for i, f in enumerate(found) if f.name == "driver") + 1
    return [*found[:place], *_gpus(), *found[place:]]


def abilities(found: list[Finding]) -> dict[str, bool]:
    """Each ability of this library, and whether this machine has it."""
    have = {f.name for f in found if f.value is not None}
    compiles = {"NVRTC", "CUDA headers"} <= have
    return {
        "select and explain": True,
        "run on NumPy": True,
        "compile": compiles,
        "emulate kernels": compiles,
        "run on a GPU": compiles and any(f.name.startswith("GPU ") and f.value for f in found),
        "show SASS": compiles and "disassembler" in have,
    }


def _probe(group: str, name: str, probe: Callable[[], Any], get: str) -> Finding:
    try:
        answer = probe()
    except Exception as error:  # any failure is a finding
        return Finding(group, name, None, get, _one_line(error))
    value, note = answer if isinstance(answer, tuple) else (answer, "")
    return Finding(group, name, value, "" if value else get, note)


def _one_line(error: Exception) -> str:
    # This library's errors end in an install hint, which the `get` column already shows.
    return " ".join(str(getattr(error, "reason", error)).split()).partition(": pip install")[0] or type(error).__name__


def _version(distribution: str) -> str | None:
    from ...runtime.system.toolchain import installed_version

    return installed_version(distribution)


def _ourselves() -> str:
    from ... import __version__
    from .demo import checkout

    root = checkout()
    return f"{__version__} ({f'checkout {root}' if root else f'installed in {Path(__file__).resolve().parents[2]}'})"


def _cupy() -> tuple[str | None, str]:
    from ...runtime.gpu.driver import cupy_or_none

    wheels = [name for name in ("cupy-cuda12x", "cupy-cuda13x", "cupy-cuda11x", "cupy") if _version(name)]
    module = cupy_or_none()
    if module is None:
        return None, f"{wheels[0]} is installed and cannot be imported" if wheels else ""
    clash = (
        f"{' and '.join(wheels)} are both installed and share a folder: uninstall all but one"
        if len(wheels) > 1
        else ""
    )
    return f"{module.__version__} ({', '.join(wheels) or 'built from source'})", clash


def _driver() -> tuple[str | None, str]:
    from ...runtime.gpu.driver import device_count, gpu_or_none
    from ...runtime.system.toolchain import driver_version

    found, version = gpu_or_none(), driver_version()
    speaks = found.cuda.runtime.driverGetVersion() if found is not None and (version or device_count()) else 0
    if not speaks:
        return version, "" if found is not None else "its CUDA version is read through CuPy or cuda.bindings"
    return f"{version or 'unknown version'}, CUDA {speaks // 1000}.{speaks % 1000 // 10}", ""


def _gpus() -> list[Finding]:
    try:
        from ...runtime.gpu.device import Device
        from ...runtime.gpu.driver import device_count

        return [_gpu(i, Device(i).spec) for i in range(device_count())] or [
            Finding(
                "GPU",
                "GPU 0",
                None,
                'device="cpu" runs on NumPy, device="ptx" the kernels, emulated, device="sm_90a" selects and compiles',
            )
        ]
    except Exception as error:
        return [Finding("GPU", "GPU 0", None, _DRIVER, _one_line(error))]


def _gpu(ordinal: int, spec: Any) -> Finding:
    text = f"{spec}, {spec.sms} SMs, {spec.bandwidth / 1e12:.2f} TB/s, {spec.l2_bytes >> 20} MiB L2, tier {spec.tier}"
    names = ("name", "arch", "sms", "shared_bytes", "l2_bytes", "bandwidth")
    extra = {**{name: getattr(spec, name) for name in names}, "tier": spec.tier.value}
    return Finding("GPU", f"GPU {ordinal}", text, extra=extra)


def _nvrtc() -> str:
    from ...runtime.system.toolchain import nvrtc_build

    return nvrtc_build()


def _headers(*names: str) -> str:
    from ...runtime.system.toolchain import include_dirs

    return ", ".join(include_dirs(frozenset(names)))


def _cccl() -> tuple[str | None, str]:
    from ...runtime.system.toolchain import cccl_version

    code = cccl_version()  # 3000001 is 3.0.1
    version = (
        f"{int(code) // 1_000_000}.{int(code) // 1000 % 1000}.{int(code) % 1000}" if code.isdigit() else code or None
    )
    return version, "only the kernels that use CUB's block primitives need them"


def _cublas() -> tuple[str | None, str]:
    from ...runtime.system.libraries import installed_libraries

    return "found" if "cublas" in installed_libraries() else None, "one of the variants of matmul"


def _disassembler() -> str | None:
    from ...runtime.system.toolchain import disassembler

    return disassembler()


def _cache() -> tuple[str | None, str]:
    from ...runtime.compile.cache import LIMIT_BYTES, cache_dir, contents
    from ..terminal import bytes_text

    folder = cache_dir()
    there = next(p for p in (folder, *folder.parents) if p.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        return None, f"{folder} cannot be written: kernels are compiled again in every process"
    sizes = [status.st_size for _, status in contents(folder)]
    return f"{folder} ({len(sizes)} files, {bytes_text(sum(sizes))} of at most {bytes_text(LIMIT_BYTES)})", ""


def _show(found: list[Finding], able: Mapping[str, bool]) -> None:
    from rich.text import Text

    from ..terminal import console, show_table

    rows = []
    group = ""
    for f in found:
        value = Text(f.value) if f.value else Text("missing", style="dim" if f.group == "optional" else "yellow")
        if f.get:
            value.append(": ", style="default").append(f.get, style="cyan")
        if f.note:
            value.append(f" ({f.note})", style="dim")
        rows.append((Text("" if f.group == group else f.group, style="bold"), Text(f.name, no_wrap=True), value))
        group = f.group
    screen = console()
    show_table(screen, ("", "what", "found, or how to get it"), rows)
    line = Text("\nhere you can: ")
    for i, (name, can) in enumerate(able.items()):
        line.append(f"{', ' if i else ''}{name} ").append("yes" if can else "no", style="green" if can else "yellow")
    screen.print(line)
