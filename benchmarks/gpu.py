"""The machine a run was made on, and the GPU's clock and power while it runs (NVML, read only)."""

from __future__ import annotations

import contextlib
import platform
from datetime import UTC, datetime
from importlib import metadata
from statistics import median
from typing import Any

__all__ = ["Sensor", "machine"]


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


def machine(sensor: Sensor, torch: Any) -> dict[str, Any]:
    """The meta line of a results file."""
    import cupy

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
        "baracuda_py": _installed("baracuda-py"),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
