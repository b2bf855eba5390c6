"""The device ledger: ``python -m tests.ledger --check`` lists the ops whose present kernels no device run has passed.

``pytest --ledger kernels/records`` on a machine with a GPU writes it: per op, the digest of what it launches there, the
GPU, its arch, the driver, NVRTC, the commit, the date, whether ``--all`` was given, how many of the op's heavy tests were left
out, in how many elements the emulator gives other bits, and the device tests that passed. A failure takes the op's entry out.
Where there is no repository, say ``--commit``.

A test that runs once a sample is one line, ``test_gauntlet[cuda-add]``, once all samples of the op have passed it; ``samples``
says how many they were. An entry without ``samples`` is of a run whose tests each took all samples, and stands for what it lists.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from baracuda_py.plan.about.ledger import op_digest, verified_on
from baracuda_py.plan.registry import all_ops
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.runtime.system.toolchain import nvrtc_version

from . import records

__all__ = ["Sampled", "commit_of", "machine", "record", "required", "unverified"]


SAME = ("digest", "gpu", "arch", "driver", "nvrtc", "commit")  # what two parts of one run have in common


def required(op: str) -> set[str]:
    """The tests without any of which an op has not been through the gauntlet, however many others have passed."""
    both = {f"registry_test.py::{test}[cuda-{op}]" for test in ("test_gauntlet", "test_gauntlet_refusals")}
    return both | {f"registry_test.py::test_gauntlet_{test}[{op}]" for test in ("variants", "graph_and_streams")}


class Sampled:
    """Tests of an op that run once a sample: by their name without the sample, which samples passed, and of how many."""

    def __init__(self) -> None:
        self._passed: dict[tuple[str, str], set[str]] = {}
        self._of: dict[tuple[str, str], int] = {}

    def add(self, op: str, sample: str, test: str, of: int) -> None:
        self._passed.setdefault((op, test), set()).add(sample)
        self._of[op, test] = of

    def complete(self, op: str) -> dict[str, int]:
        """The op's tests that every sample has passed, and how many samples they took; a part of them shows nothing."""
        return {t: n for (o, t), n in self._of.items() if o == op and len(self._passed[o, t]) == n}


def commit_of(folder: Path) -> str:
    """The commit that is checked out, with "-dirty" where files differ from it; empty where there is none."""
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine() -> dict[str, str]:
    """The GPU, its arch, the driver and the compiler this run is on."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    version = cupy.cuda.runtime.driverGetVersion()
    driver = f"CUDA {version // 1000}.{version % 1000 // 10}"
    try:
        import pynvml

        pynvml.nvmlInit()
        text = pynvml.nvmlSystemGetDriverVersion()
        driver = f"{text.decode() if isinstance(text, bytes) else text} ({driver})"
    except Exception:
        pass  # the version of the driver's API has to do
    nvrtc = ".".join(map(str, nvrtc_version()))
    return {"gpu": properties["name"].decode(), "arch": spec_of(None).arch, "driver": driver, "nvrtc": nvrtc}


def record(
    folder: Path, passed: Mapping[str, set[str]], failed: set[str], run: Mapping[str, Any], skipped: Mapping[str, int],
    emulator: Mapping[str, str], sampled: Sampled | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Merges one run into the records in `folder`, and returns all their entries. `run` is what it has to say of itself, the arch
    among it; `skipped` counts the heavy tests of an op that it left out; `emulator` says in how many elements the emulator's
    results are other bits than the device's; `sampled` are the tests that ran once a sample."""
    ops = all_ops()
    for name in sorted((set(passed) | failed) & ops.keys()):
        samples = sampled.complete(name) if sampled else {}
        tests = passed.get(name, set()) | set(samples)
        held = records.read(folder, name).get("device", {})
        date = datetime.now(UTC).strftime("%Y-%m-%d")
        entry = {
            "digest": op_digest(ops[name], run["arch"]),
            **run,
            "date": date,
            "heavy_skipped": skipped.get(name, 0),
        }
        if name in failed:
            held = None
        elif all(held.get(key) == entry[key] for key in SAME):  # a run in parts: the first part speaks for it
            emulated = {"emulator": emulator[name]} if name in emulator else {}
            held = held | emulated | _listed(tests | set(held["tests"]), held.get("samples", {}) | samples)
        elif required(name) <= tests:
            held = entry | {"emulator": emulator.get(name, "not compared")} | _listed(tests, samples)
        records.put(folder, name, "device", held)
    return {name: entry for name in ops if (entry := records.read(folder, name).get("device"))}


def _listed(tests: set[str], samples: Mapping[str, int]) -> dict[str, Any]:
    return {"tests": sorted(tests)} | ({"samples": dict(samples)} if samples else {})


def unverified() -> list[str]:
    """Ops whose present kernels have passed no device run."""
    return [name for name, op in all_ops().items() if op_digest(op) and not verified_on(op)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if an op is unverified")
    check = parser.parse_args().check
    missing = unverified()
    for name in missing:
        print(f"{name}: its present kernels have passed no device run")
    print(f"{len(missing)} of {len(all_ops())} ops are unverified")
    return int(check and bool(missing))


if __name__ == "__main__":
    raise SystemExit(main())
