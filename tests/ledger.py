"""The device ledger: ``python -m tests.ledger --check`` lists the ops whose present kernels no device run has passed.

``pytest --ledger kernels/ledger.json`` on a machine with a GPU writes it: per op, the digest of its kernels' sources, the
GPU, the driver, the date, and the device tests that passed. A failure takes the op's entry out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from baracuda_py.plan.ledger import op_digest, verified_on
from baracuda_py.plan.registry import all_ops

__all__ = ["machine", "record", "unverified"]

# Without these an op has not been through the gauntlet, however many other tests have passed.
REQUIRED = "test_gauntlet"


def machine() -> dict[str, str]:
    """The GPU and driver this run is on."""
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
    return {"gpu": properties["name"].decode(), "driver": driver}


def record(
    path: Path, passed: Mapping[str, set[str]], failed: set[str], on: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Merges one run into the ledger at `path`, and returns it."""
    try:
        entries: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        entries = {}
    ops = all_ops()
    where = dict(on) if on is not None else machine()
    for name in sorted(set(passed) | failed):
        if name not in ops:
            continue
        if name in failed:
            entries.pop(name, None)
        elif any(REQUIRED in test for test in passed[name]):
            date = datetime.now(UTC).strftime("%Y-%m-%d")
            entries[name] = {"digest": op_digest(ops[name]), **where, "date": date, "tests": sorted(passed[name])}
    entries = {name: entries[name] for name in sorted(entries) if name in ops}
    path.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    return entries


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
