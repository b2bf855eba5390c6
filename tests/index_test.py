"""The generated index and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import baracuda_py as bp
from baracuda_py.cli import generate


def run(code: str) -> str:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_generated_files_are_fresh() -> None:
    assert generate.write(check=True) == [], "run python -m baracuda_py.cli.generate"


def test_importing_the_package_imports_no_op_and_no_framework() -> None:
    loaded = run("import sys, baracuda_py; print('\\n'.join(sys.modules))").split()
    for module in ("cupy", "torch", "jax", "scipy", "rich", "baracuda_py.ops", "baracuda_py.reference.elementwise"):
        assert module not in loaded, f"importing baracuda_py imports {module}"


def test_a_kind_and_a_function_are_resolved_on_first_use() -> None:
    out = run(
        "import sys, baracuda_py as bp; bp.F32; print('cupy' in sys.modules); bp.add; print('cupy' in sys.modules)"
    )
    assert out.split() == ["False", "False"]


def test_every_public_name_resolves_and_is_listed() -> None:
    for name in bp.__all__:
        assert getattr(bp, name) is not None
    assert {"add", "write_slice", "F32", "Graph", "plan_cache"} <= set(dir(bp))


def test_an_unknown_name_says_how_to_search() -> None:
    with pytest.raises(AttributeError, match=r"bp\.list_ops\(\)"):
        _ = bp.no_such_op


def test_discovery() -> None:
    assert set(bp.list_ops()) >= {"add", "exp", "write_slice", "contiguize", "kv_append"}
    assert "contiguize" in bp.find("contig")
    assert "sigmoid" in bp.find("sigmoyd")
    with pytest.raises(bp.UnsupportedError, match="did you mean"):
        bp.get_op("write_slices")
