"""docs/adding-an-op.md, done in a copy of the repository: what it says is all that has to be written by hand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from baracuda_py.plan import all_ops
from baracuda_py.plan.about.ledger import op_digest

from ..places import file_of
from ..readme import ROOT, blocks

ROW_LINES = 8  # by hand, at most
PAGE = ROOT / "docs/adding-an-op.md"

TRIED = """
import json, sys
import mpmath, numpy as np
import baracuda_py as bp
from baracuda_py.plan import all_ops
from baracuda_py.plan.about.ledger import op_digest

assert bp.UnaryKind.SOFTPLUS and "beta" in bp.softplus.__doc__
x = np.arange(-60, 61, dtype=np.float32) / 4  # exact in f16 too
for beta in (1.0, 0.5, 3.0):
    wanted = [float(mpmath.log1p(mpmath.exp(beta * mpmath.mpf(float(v)))) / beta) for v in x]
    np.testing.assert_allclose(bp.softplus(x, beta, device="ptx"), wanted, rtol=6e-6)
    np.testing.assert_allclose(bp.softplus(x.astype(np.float16), beta=beta, device="ptx"), wanted, rtol=2e-3, atol=1e-7)
assert bp.plan_cache.info().plans == 2, "a value of beta makes a plan"
one, other = (bp.UnaryPlan.select(bp.UnaryDescriptor.of("softplus", x, beta=b), device="h200") for b in (1.0, 2.0))
assert one.kernels[0].source == other.kernels[0].source
for wrong in ({"alpha": 1.0}, {"beta": "1"}):
    try:
        bp.softplus(x, **wrong, device="cpu")
    except TypeError:
        continue
    raise AssertionError(f"{wrong} is taken")
json.dump({name: op_digest(op) for name, op in all_ops().items()}, sys.stdout)
"""


def added() -> list[str]:
    """The lines that the page adds to each file."""
    return ["".join(line.removeprefix("+") for line in block.splitlines(True)) for block in blocks(PAGE, "diff")]


FAMILIES = """
import numpy as np
import baracuda_py as bp
from baracuda_py.plan import get_op
from tests.gauntlet import Problem, run

rng = np.random.default_rng(3)
for name in ("scale_rows", "scale_rows_backward", "amax"):
    for sample in get_op(name).samples({}):
        for backend in ("ptx", "cpu"):
            run(Problem(get_op(name), sample, backend))
x, g, s = (rng.standard_normal(n).astype(np.float32) for n in ((5, 300), (5, 300), (5,)))
assert np.array_equal(bp.scale_rows(x, s, device="ptx"), x * s[:, None])
made = bp.scale_rows_backward(g, x, s, device="ptx")
assert np.array_equal(made.grad_x, g * s[:, None])
np.testing.assert_allclose(made.grad_scale, (g.astype("f8") * x).sum(1), rtol=1e-4, atol=1e-4)
gradient = get_op("scale_rows").gradient
assert get_op(gradient.op).plan.descriptor.slot_of.keys() >= set(gradient.gradients.values())
assert np.array_equal(bp.amax(x, device="ptx"), np.abs(x).max(1))
plan = bp.AmaxPlan.select(bp.AmaxDescriptor((5, 300), "f32"), device="h200")
assert len(plan.kernels) == 2 and "max=rows" in plan.sku.config, plan.sku
"""


def files() -> dict[str, str]:
    """The whole files that the page shows, by the path in their first line."""
    shown = [*blocks(PAGE, "cuda"), *blocks(PAGE, "py")]
    return {text.split("\n", 1)[0].split()[1]: text.split("\n", 1)[1] for text in shown}


def copied(root: Path) -> Path:
    """The repository."""
    leave = shutil.ignore_patterns("__pycache__", "*.cubin", "tuned", "results")
    for folder in ("baracuda_py", "kernels", "tests", "benchmarks"):
        shutil.copytree(ROOT / folder, root / folder, ignore=leave)
    for file in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / file, root / file)
    return root


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the page's row added, and nothing else."""
    root = copied(tmp_path_factory.mktemp("copy"))
    row, oracle = added()
    table = root / "baracuda_py/ops/elementwise/unary.py"
    text = table.read_text()
    table.write_text(text.replace("\n)  # fmt: skip\n", f"\n{row})  # fmt: skip\n", 1))
    reference = root / "baracuda_py/ops/elementwise/oracle.py"
    reference.write_text(reference.read_text().replace("def where(", f"{oracle}\n\ndef where(", 1))
    return root


def run(copy: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


def test_a_row_is_a_few_lines() -> None:
    row, oracle = added()
    assert len((row + oracle).splitlines()) <= ROW_LINES
    assert "softplus" not in all_ops(), "try another op on the page"


@pytest.mark.timeout(120)
def test_a_row_makes_an_op_and_voids_nothing(copy: Path) -> None:
    """The op runs as emulated kernels, its own tests pass, and no other op's kernels are others."""
    assert "wrote" in run(copy, "-m", "baracuda_py.cli.generate")
    stub = (copy / "baracuda_py/__init__.pyi").read_text()
    assert "def softplus(x: Any, /, beta: float = 1.0, *, out" in stub
    digests = json.loads(run(copy, "-c", TRIED))
    assert digests.pop("softplus")
    assert digests == {name: op_digest(op) for name, op in all_ops().items()}
    names = ("registry", "elementwise", "row_gradients", "index")
    tests = tuple(file_of(name) for name in names)
    wanted = "softplus or generated_files_are_fresh"
    said = run(copy, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "-q", *tests, "-k", wanted)
    assert "failed" not in said


@pytest.mark.timeout(120)
def test_a_family_with_its_gradient_and_a_composite(tmp_path: Path) -> None:
    """The page's files make ops that pass the gauntlet as emulated kernels and on the oracle; the gradient is that of the op."""
    root = copied(tmp_path)
    for path, text in files().items():
        file = root / path
        assert not file.exists(), f"try another name than {path} on the page"
        file.parent.mkdir(exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(text)
    assert "wrote" in run(root, "-m", "baracuda_py.cli.generate")
    run(root, "-c", FAMILIES)
    tests = (file_of("gradients"), "-k", "scale_rows")
    said = run(root, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "-q", *tests)
    assert said.startswith("...."), said
