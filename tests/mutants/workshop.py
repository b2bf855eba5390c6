"""Copies of the checkout in which one mutant at a time is tried: its own tests first, wider ones where these notice nothing."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from baracuda_py.runtime.compile.cache import cache_dir, contents

from ..gauntlet import PER_VARIANT, SAMPLES, cases
from ..places import file_of
from .catalogue import ROOT, Mutant

__all__ = ["TIERS", "Outcome", "Workshop"]

# These compare what is with what was recorded: they notice that something was edited, and not that it is wrong.
RECORDED = (f"{file_of('compile')}::test_resources_are_not_stale",)
TIERS = ("targeted", "wider", "whole")
SECONDS = {"targeted": 600, "wider": 900, "whole": 2400}
SLOWEST = 240  # seconds of one test
GAUNTLET = file_of("emulated_gauntlet")
ASKED = {
    "test_gauntlet": SAMPLES,
    "test_one_of_each_variant": PER_VARIANT,
}  # of a kernel's mutants, by samples of an op
# What is asked of a host file's mutants after their own tests, by the folder under baracuda_py.
NEAR = {
    "ops/elementwise": ("elementwise", "walked", "registry", "align", "launchable"),
    "ops/shape_layout": (
        "copy_lowering", "contiguize", "write_slice", "kv_append", "walked", "phase", "align", "launchable", "short_path",
        "copies_sweep", "registry",
    ),
    "ops/gemm": (
        "gemm_access", "gemm_problem", "matmul", "matmul_types", "matmul_fp8", "matmul_guarantee", "matmul_probable",
        "matmul_range", "matmul_backward", "advice", "wgmma", "staged", "staged_copy", "split_k", "gemv", "cublas", "large",
        "exact_products", "shared_bytes", "overlap", "launchable", "registry",
    ),
    "ops/products": (
        "gemm_access", "gemm_problem", "matmul_guarantee", "matmul_probable", "matmul_range", "split_k", "gemv", "gguf_panels",
        "exact_products", "registry",
    ),
    "ops/position": ("rope", "registry", "align", "arguments", "launchable"),
    "ops": ("walked", "copy_lowering", "index", "launchable"),
    "plan": (
        "plan", "descriptor", "selection", "saved_plan", "tuned", "autotune", "advice", "short_path", "runtime",
        "shared_bytes", "foreign", "arguments", "phase", "align", "emulated_device", "ledger",
    ),
    "call": ("short_path", "torch_calls", "plan", "runtime", "overlap", "foreign", "cache", "buffer"),
    "runtime": (
        "runtime", "cache", "ptx_cache", "device", "short_path", "overlap", "compile", "ledger", "generated", "cublas",
        "definitions", "reach",
    ),
    "tensor": ("tensor", "foreign", "buffer", "shared_bytes", "axes", "phase", "align", "short_path"),
    "numerics": ("types", "elementwise", "matmul", "registry"),
    "types": ("types", "matmul_guarantee", "device", "emulated_device", "faults"),
    "": ("short_path", "plan", "runtime", "cli", "cli_run"),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: ``noticed`` by a test of a tier, ``hung`` in one, ``survived`` as far as `tier`, or ``broken``
    where pytest could not run."""

    name: str
    digest: str
    outcome: str
    tier: str
    by: str
    why: str
    seconds: float

    @property
    def lives(self) -> bool:
        return self.outcome == "survived"


class Workshop:
    """A copy of the checkout, with a kernel cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.cache = folder / "tree", folder / "cache"
        shutil.rmtree(self.tree, ignore_errors=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
        )  # fmt: skip
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)
        if not self.cache.exists():
            self.cache.mkdir(parents=True)
            for path, _ in contents(cache_dir()):
                shutil.copy2(path, self.cache)
        # Compiled code that is checked by its source's hash: a mutant has its file's size and second all too often.
        quiet = ["-q", "--invalidation-mode", "checked-hash", "baracuda_py", "tests"]
        subprocess.run([sys.executable, "-m", "compileall", *quiet], cwd=self.tree, check=False)

    def try_on(self, mutant: Mutant, digest: str, tiers: Sequence[str]) -> Outcome:
        """Applies a mutant, asks the tests of each tier until one notices, and takes it back."""
        path = self.tree / mutant.file
        original, began = path.read_bytes(), time.monotonic()
        try:
            path.write_text(mutant.applied(original.decode()), encoding="utf-8")
            for tier in tiers:
                outcome, by, why = self._ask(arguments(mutant, tier), SECONDS[tier])
                if outcome != "survived":
                    break
        finally:
            path.write_bytes(original)
        return Outcome(mutant.name, digest, outcome, tier, by, why, round(time.monotonic() - began, 1))

    def _ask(self, given: Sequence[str], limit: float) -> tuple[str, str, str]:
        """The outcome of one run of pytest, the test that failed, and its words."""
        if not given:
            return "survived", "", ""
        fixed = ["-x", "-q", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider", f"--timeout={SLOWEST}"]
        path = [str(self.tree), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1",
            "COLUMNS": "400", "BARACUDA_CACHE_DIR": str(self.cache),
        }  # fmt: skip
        command = [sys.executable, "-m", "pytest", *fixed, *(f"--deselect={test}" for test in RECORDED), *given]
        with subprocess.Popen(
            command, cwd=self.tree, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        ) as process:  # fmt: skip
            try:
                said = process.communicate(timeout=limit)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return "hung", " ".join(given)[:120], f"no end after {limit:.0f} s"
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode == 0:
            return "survived", "", ""
        found = _FAILED.search(said)
        if process.returncode in (1, 2) and found:
            reason = found[3] or ""
            return ("hung" if "Timeout" in reason else "noticed"), found[2], reason[:300]
        return "broken", " ".join(given)[:120], said.strip()[-300:]


_FAILED = re.compile(r"^(FAILED|ERROR) (\S+(?: \S+)*?)(?: - (.*)|)$", re.MULTILINE)


def arguments(mutant: Mutant, tier: str) -> list[str]:
    """What pytest is asked about a mutant."""
    if tier == "whole":
        return ["tests"]
    if tier == "targeted":
        runs = [(test, case) for op in mutant.ops for test, count in ASKED.items() for case in cases(op, "ptx", count)]
        asked = [*(("test_wanted", name) for name in mutant.wanted), *((test, f"{c.op}-{c.label}") for test, c in runs)]
        return [*(f"{GAUNTLET}::{test}[{name}]" for test, name in asked), *mutant.tests]
    if mutant.in_kernel:
        return [GAUNTLET, "-k", " or ".join(f"{op}-" for op in mutant.ops)]
    folder = str(Path(mutant.file).relative_to("baracuda_py").parent)
    near = max((name for name in NEAR if f"{folder}/".startswith(f"{name}/" if name else "")), key=len)
    return [file_of(name) for name in NEAR[near]]
