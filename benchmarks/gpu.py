"""The machine a run was made on, and the GPU's clock and power while it runs (NVML, read only)."""

from __future__ import annotations

import contextlib
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["Sensor", "machine", "made_by"]

MADE = ("date", "baracuda_py", "commit", "driver", "nvrtc", "cupy", "torch")


class Sensor:
    """SM clock and power of the current device; silent where NVML cannot be had."""

    def __init__(self) -> None:
        self._samples: dict[str, list[tuple[float, float]]] = {}
        self._nvml: Any = None
        self._handle: Any = None
        with contextlib.suppress(Exception):
            import cupy
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(cupy.cuda.Device().pci_bus_id)
            self._nvml = pynvml

    def sample(self, name: str) -> None:
        """Reads both once, while the contender of that name runs."""
        if self._nvml is None:
            return
        with contextlib.suppress(self._nvml.NVMLError):
            clock = self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM)
            self._samples.setdefault(name, []).append((clock, self._nvml.nvmlDeviceGetPowerUsage(self._handle) / 1e3))

    def take(self) -> dict[str, tuple[float | None, float | None]]:
        """Each contender's median clock and power since the last `take`, and all of them together under ``""``."""
        samples, self._samples = self._samples, {}
        samples[""] = [s for each in samples.values() for s in each]
        return {name: _medians(each) for name, each in samples.items()}

    def driver(self) -> str | None:
        """The driver's version."""
        if self._nvml is None:
            return None
        version = self._nvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else str(version)


def _medians(samples: list[tuple[float, float]]) -> tuple[float | None, float | None]:
    if not samples:
        return None, None
    return median(s[0] for s in samples), round(median(s[1] for s in samples))


def machine(sensor: Sensor, torch: Any, commit: str | None = None) -> dict[str, Any]:
    """The meta line of a results file; `commit` is what is measured, where git cannot be asked."""
    import cupy

    from baracuda_py import __version__

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "kind": "meta",
        "gpu": properties["name"].decode(),
        "sms": properties["multiProcessorCount"],
        "l2_bytes": properties["l2CacheSize"],
        "memory_bytes": properties["totalGlobalMem"],
        "driver": sensor.driver(),
        "cuda_driver_api": _dotted(cupy.cuda.runtime.driverGetVersion()),
        "cuda_runtime": _dotted(cupy.cuda.runtime.runtimeGetVersion()),
        "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
        "cupy": cupy.__version__,
        "torch": None if torch is None else torch.__version__,
        "python": platform.python_version(),
        "baracuda_py": __version__,
        "commit": commit or checked_out(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def made_by(meta: dict[str, Any]) -> dict[str, Any]:
    """What of the meta line each row carries: files are put together of several runs."""
    return {name: meta.get(name) for name in MADE}


def checked_out() -> str | None:
    """The commit of this checkout, with ``+`` where files differ from it; None outside a checkout."""

    def git(*arguments: str) -> str:
        root = Path(__file__).parent
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
