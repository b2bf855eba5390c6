"""Ops of other packages: the worked example on emulated kernels, kernels by `register`, entry points, saved plans."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import baracuda_py as bp
from baracuda_py.ops.toolkit import register

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def ran(*arguments: str, path: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False, cwd=ROOT
    )


def output(*arguments: str, path: tuple[Path, ...] = ()) -> str:
    done = ran(*arguments, path=path)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.timeout(300)
def test_own_kernel_example_runs_emulated() -> None:
    shown = output(str(EXAMPLES / "own_kernel.py"))
    assert shown.startswith("[-0.2  -0.15 -0.1  -0.05  0.    0.5   1.    1.5   2.  ]\nsloped_relu on NVIDIA H200")
    assert "*  flat" in shown and "9 cases within the bound" in shown


@pytest.mark.timeout(300)
def test_own_kernel_is_an_op_like_others() -> None:
    code = """
import own_kernel, numpy as np, baracuda_py as bp
assert bp.sloped_relu is own_kernel.sloped_relu and bp.find("sloped") == ["sloped_relu"] and "sloped_relu" in bp.list_ops()
plan = own_kernel.SlopedReluPlan.select(own_kernel.SlopedReluDescriptor((8,), "f16", slope=0.5), device="ptx")
again = bp.Plan.from_json(plan.to_json())
assert again == plan and type(again) is own_kernel.SlopedReluPlan and again.provenance == "model"
x = np.array([-2, np.nan, np.inf, -np.inf, -0.0, 3, -1, 1], np.float16)
for y in (again.run(x=x), plan.run(x=x, slope=0.5), bp.sloped_relu(x, 0.5, device="cpu")):
    np.testing.assert_array_equal(y, np.array([-1, np.nan, np.inf, -np.inf, -0.0, 3, -0.5, 1], np.float16))
try:
    bp.sloped_relu(x[::2], device="ptx")
except bp.UnsupportedError as error:
    assert "contiguize x" in str(error), error
else:
    raise SystemExit("a strided x was taken")
"""
    output("-c", code, path=(EXAMPLES,))


def installed(folder: Path, value: str) -> tuple[Path, Path]:
    """A package's metadata with one entry point, and the example as its module."""
    info = folder / "own_ops-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-ops\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[baracuda_py.ops]\nown = {value}\n")
    return folder, EXAMPLES


@pytest.mark.timeout(300)
def test_own_kernel_entry_point_is_loaded_on_first_use(tmp_path: Path) -> None:
    code = """
import sys, baracuda_py as bp
assert "own_kernel" not in sys.modules
bp.F32
assert "own_kernel" not in sys.modules
function = bp.sloped_relu
assert function is sys.modules["own_kernel"].sloped_relu and "sloped_relu" in bp.list_ops()
print(bp.get_op("sloped_relu").summary)
"""
    assert output("-W", "error", "-c", code, path=installed(tmp_path, "own_kernel")).startswith("x where it is above 0")


@pytest.mark.timeout(300)
def test_own_kernel_broken_entry_point_is_skipped_with_a_warning(tmp_path: Path) -> None:
    code = "import baracuda_py as bp; assert 'gelu' in bp.list_ops() and not hasattr(bp, 'sloped_relu'); assert bp.gelu"
    done = ran("-c", code, path=installed(tmp_path, "no_such_module"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "RuntimeWarning: baracuda_py.ops: own = no_such_module is left out: ModuleNotFoundError" in done.stderr


def test_own_kernel_cannot_take_the_name_of_an_op() -> None:
    """Registered first, it would break the import of the op that has the name."""
    gelu = bp.get_op("gelu")
    with pytest.raises(ValueError, match=r"op 'gelu' of tests\.plan.* has the name of one of baracuda_py: rename it"):
        register(replace(gelu, function=lambda x: x))
    assert bp.get_op("gelu") is gelu


def test_own_kernel_folder_must_exist_and_be_new(tmp_path: Path) -> None:
    code = f"""
import baracuda_py as bp
from baracuda_py.ops.toolkit import register
op = bp.get_op("gelu")
for folder, words in (({str(tmp_path / "none")!r}, "is no folder of kernels"), ({str(tmp_path)!r}, "both have")):
    try:
        register(op, kernels=folder)
    except bp.CompileError as error:
        assert words in str(error), error
    else:
        raise SystemExit(folder)
"""
    (tmp_path / "elementwise").mkdir()
    (tmp_path / "elementwise/map.cu").write_text("// twice\n")
    output("-c", code)
