"""docs/adding-an-op.md, done in a copy of the repository: what it says is all that has to be written by hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from baracuda_py.cli import generate, new
from baracuda_py.cli.template import checkout_files
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
for beta in (1.0, 2.5):
    wanted = [float(3 / (1 + mpmath.exp(-beta * mpmath.mpf(float(v))))) for v in x]
    np.testing.assert_allclose(bp.softplus_backward(np.full_like(x, 3), x, beta, device="ptx"), wanted, rtol=6e-6)
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
    shown = blocks(PAGE, "diff")
    return [renamed("".join(line.removeprefix("+") for line in block.splitlines(True))) for block in shown]


FAMILIES = """
import numpy as np
import baracuda_py as bp
from baracuda_py.plan import get_op

rng = np.random.default_rng(3)
x, g, s = (rng.standard_normal(n).astype(np.float32) for n in ((5, 300), (5, 300), (5,)))
assert np.array_equal(bp.scale_rows(x, s, device="ptx"), x * s[:, None])
made = bp.scale_rows_backward(g, x, s, device="ptx")
assert np.array_equal(made.grad_x, g * s[:, None])
np.testing.assert_allclose(made.grad_scale, (g.astype("f8") * x).sum(1), rtol=1e-4, atol=1e-4)
assert bp.ScaleRowsPlan.category is bp.OpCategory.SCALE
assert np.array_equal(bp.absmax(x, device="ptx"), np.abs(x).max(1))
plan = bp.AbsmaxPlan.select(bp.AbsmaxDescriptor((5, 300), "f32"), device="h200")
assert len(plan.kernels) == 2 and "max=rows" in plan.sku.config, plan.sku
"""

# The names of the page's examples, and those that they have in the copy if somebody has added the examples for good.
NEW = {
    "softplus": "softplus_shown",
    "SOFTPLUS": "SOFTPLUS_SHOWN",
    "scale_rows": "shown_rows",
    "ScaleRows": "ShownRows",
    "absmax": "shown_absmax",
    "Absmax": "ShownAbsmax",
    "calibration": "shown_ranges",
    "/scale/": "/shown/",
    "/scale.": "/shown.",
    "OpCategory.SCALE": "OpCategory.SHOWN",
    "scale/scale_rows": "shown/shown_rows",
}
RENAMED = re.compile("|".join(sorted(map(re.escape, NEW), key=len, reverse=True)))


def renamed(text: str) -> str:
    """`text` with the examples' names, of which an op or a family may have been made for good, in a spelling of their own."""
    taken = any((ROOT / path).exists() for path in page_files()) or "softplus" in all_ops()
    return text if not taken else RENAMED.sub(lambda found: NEW[found[0]], text)


def page_files() -> dict[str, str]:
    """The whole files that the page shows, by the path in their first line."""
    shown = [text for language in ("cuda", "py", "toml") for text in blocks(PAGE, language) if text[0] in "#/"]
    return {text.split("\n", 1)[0].split()[1]: text.split("\n", 1)[1] for text in shown}


def copied(root: Path) -> Path:
    """The repository."""
    leave = shutil.ignore_patterns("__pycache__", "*.cubin", "tuned")
    for folder in ("baracuda_py", "kernels", "tests", "benchmarks", "docs", "examples"):
        shutil.copytree(ROOT / folder, root / folder, ignore=leave)
    for file in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "pyproject.toml"):
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


def as_elsewhere(*paths: Path) -> dict[str, str]:
    """The environment of an author, whose machine has one NVRTC, and is not continuous integration's."""
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def run(copy: Path, *arguments: str) -> str:
    environment = as_elsewhere(copy)
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


def pytest_in(copy: Path, *arguments: str) -> str:
    return run(copy, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "-q", *arguments)


def linted(root: Path, paths: Sequence[str]) -> None:
    """Ruff and mypy accept the unchanged files."""
    pytest.importorskip("ruff")
    pytest.importorskip("mypy")
    run(root, "-m", "ruff", "check", *paths)
    run(root, "-m", "ruff", "format", "--check", *paths)
    run(root, "-m", "mypy", "--strict", *(path for path in paths if path.startswith("baracuda_py")))


def test_a_row_is_a_few_lines() -> None:
    row, oracle = added()
    assert len((row + oracle).splitlines()) <= ROW_LINES


@pytest.mark.timeout(600)
def test_a_row_makes_an_op_and_voids_nothing(copy: Path) -> None:
    """The op runs as emulated kernels, its own tests pass, and no other op's kernels are others."""
    name = renamed("softplus")
    assert "wrote" in run(copy, "-m", "baracuda_py.cli.generate")
    stub = (copy / "baracuda_py/__init__.pyi").read_text()
    assert f"def {name}(x: Any, /, beta: float = 1.0, *, out" in stub
    digests = json.loads(run(copy, "-c", renamed(TRIED)))
    assert digests.pop(name)
    digests = {op: digest for op, digest in digests.items() if not op.startswith(f"{name}_")}  # its gradient
    assert digests == {name: op_digest(op) for name, op in all_ops().items()}
    names = ("registry", "elementwise", "row_gradients", "index")
    tests = tuple(file_of(name) for name in names)
    assert "failed" not in pytest_in(copy, *tests, "-k", f"{name} or generated_files_are_fresh")


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the files of the page's families, completed as the page says."""
    root = copied(tmp_path_factory.mktemp("families"))
    for path, text in page_files().items():
        file = root / renamed(path)
        assert not file.exists(), f"{path} on the page is a file of the repository: put another name into NEW"
        file.parent.mkdir(exist_ok=True)
        file.write_text(renamed(text))
    assert "wrote" in run(root, "-m", "baracuda_py.cli.generate")
    run(root, "-m", "tests.resources", *FAMILY_OPS)
    return root


FAMILY_OPS = [renamed(op) for op in ("scale_rows", "scale_rows_backward", "absmax")]


def test_adding_page_shows_what_the_template_writes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert generate.adding_text(text) == text, "run python -m baracuda_py.cli.generate"
    assert checkout_files(generate.SHOWN).items() <= page_files().items()


@pytest.mark.timeout(600)
def test_adding_families_are_linted_and_typed(families: Path) -> None:
    linted(families, [renamed(path) for path in page_files() if path.endswith(".py")])


@pytest.mark.timeout(600)
def test_adding_families_pass_the_tests_of_their_ops(families: Path) -> None:
    """The gauntlet on NumPy and emulated, arguments, gradients, bounds, and all else that concerns the ops."""
    run(families, "-c", renamed(FAMILIES))
    assert "failed" not in pytest_in(families, *(x for op in FAMILY_OPS for x in ("--op", op)))


@pytest.mark.timeout(600)
def test_adding_families_pass_the_tests_of_the_house(families: Path) -> None:
    names = ("structure", "words", "mutants", "families", "readme", "index", "pages")
    tests = [file_of(name) for name in names]
    assert "failed" not in pytest_in(families, *tests, "-k", "not snippets and not examples and not gitattributes")


@pytest.mark.timeout(600)
def test_adding_new_writes_a_package_of_its_own(tmp_path: Path) -> None:
    """The same op beside an installed package: it is registered, emulated, and keeps its bounds; its digest is of its kernel."""
    written = run(ROOT, "-m", "baracuda_py.cli.new", "elsewhere/halved_rows", "--rows", "--package", str(tmp_path))
    assert str(tmp_path / "elsewhere/kernels/elsewhere/halved_rows.cu") in written
    environment = as_elsewhere(tmp_path, ROOT)
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    ran = subprocess.run(tests, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and "4 passed" in ran.stdout, ran.stdout[-3000:] + ran.stderr[-3000:]
    code = (
        "import numpy as np, elsewhere, baracuda_py as bp;"
        "op = bp.get_op('halved_rows'); plan = op.plan.select(op.describe(shape=(3, 5), element='f32'), device='h200');"
        "assert str(plan.sku).startswith('elsewhere.halved_rows/f32'), plan.sku;"
        "assert 'halved_rows' in bp.list_ops() and plan.kernels[0].source"
    )
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_adding_new_refuses_names_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("loss", "loss/Cross", "loss/class", "../x", f"loss/{'a' * 40}"):
        with pytest.raises(SystemExit):
            new.main([name, "--rows", "--package", str(tmp_path)])
        assert "does not name a family and an op" in capsys.readouterr().err
    assert new.main(["loss/x", "--rows", "--package", str(tmp_path)]) == 0
    before = {path: path.read_text() for path in tmp_path.rglob("*.*") if path.is_file()}
    with pytest.raises(SystemExit):
        new.main(["loss/x", "--rows", "--package", str(tmp_path)])
    assert {path: path.read_text() for path in tmp_path.rglob("*.*") if path.is_file()} == before
