"""The README and docs/: what they show is run on the host, what they state is checked, and every link leads somewhere."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.cli import generate
from tests.gauntlet import cases
from tests.readme import ROOT, blocks, pages

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
TRANSLATED = re.compile(r"\bmends?\b|\blie\b|what they say", re.IGNORECASE)


def ran(block: str) -> tuple[dict[str, Any], str]:
    """The names that a block leaves and what it prints, as it is printed and with nothing around it."""
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block, names)
    return names, printed.getvalue()


def needs_a_gpu(block: str) -> bool:
    """Whether a block makes arrays of a GPU."""
    return "import cupy" in block or 'device="cuda"' in block


def with_its_framework(block: str) -> None:
    """Skips a block that imports a framework which only that page's reader has."""
    for framework in ("torch", "jax", "transformers"):
        if f"import {framework}" in block:
            pytest.importorskip(framework)


def ran_on_the_host(block: str) -> dict[str, Any]:
    """The names that a block for a GPU leaves on the host, changed as the README says it may be, and PyTorch's likewise."""
    for there, here in {"import cupy as cp": "import numpy as cp", 'device="cuda"': 'device="cpu"'}.items():
        block = block.replace(there, here)
    with bp.device("cpu"):
        return ran(block)[0]


def block_with(word: str) -> str:
    (found,) = (b for b in blocks(README) if word in b)
    return found


def test_the_first_page_is_short() -> None:
    assert len(TEXT.splitlines()) <= 150
    assert max(len(line) for line in TEXT.splitlines() if not line.startswith(("|", "- On", "<"))) <= 130
    for page in pages():
        assert not TRANSLATED.search(page.read_text(encoding="utf-8")), page.name


def test_cupy() -> None:
    assert 'or with `import numpy as cp` and `with bp.device("ptx"):` around' in TEXT
    names = ran_on_the_host(block_with("import cupy"))
    x, w = (names[n].astype(np.float64) for n in ("x", "w"))
    linear = x @ w.T
    np.testing.assert_allclose(names["y"].astype(np.float64), linear / (1 + np.exp(-linear)), rtol=2e-3, atol=2e-3)
    assert names["cache"][40].all() and names["cache"].sum() == 32 * 128


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    names = ran_on_the_host(block_with("import torch"))
    torch.testing.assert_close(names["y"], torch.nn.functional.gelu(names["x"].float()).half(), rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(names["out"], (names["x"].float() @ names["w"].float().T).half(), rtol=2e-3, atol=2e-2)
    with bp.device("cpu"):
        assert bp.gelu(names["x"], out=names["out"].view(-1)[: 64 * 512].view(64, 512)) is not None
        assert bp.matmul(names["x"], names["w"].T, out=names["out"]) is names["out"]


def test_what_explain_prints_is_what_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names, printed = ran(block_with("plan.explain()"))
    (shown,) = (b for b in blocks(README, "text") if b.startswith("matmul on"))
    assert printed.startswith(shown)
    assert names["plan"].sku.variant == "gemv"


def predicted(shape: tuple[int, int, int], **wanted: Any) -> Any:
    m, n, k = shape
    desc = bp.MatmulDescriptor((m, k), (k, n), "bf16", "bf16", b_strides=(1, k))
    return bp.MatmulPlan.select(desc, bp.PlanPreference(**wanted), device="h200")


def test_batch_invariance_costs_what_is_said() -> None:
    """ "at most 5 %, and 3 % from M = 512 on; for a small layer of 4096×4096 it is 22 % at M = 1"."""
    _, printed = ran(block_with("batch_invariant=True"))
    assert [line.split() for line in printed.splitlines()] == [[str(m), "wgmma", "True"] for m in (1, 16, 333, 4096)]
    (most, less, beyond, small) = re.search(
        r"at most (\d+) %, and (\d+) %\nfrom M = (\d+) on; .* it is (\d+) %", TEXT
    ).groups()  # type: ignore[union-attr]
    for m in (1, 2, 3, 8, 9, 16, 17, 32, 64, 65, 100, 128, 256, 333, 512, 1000, 2048, 4096):
        plan = predicted((m, 14336, 4096), batch_invariant=True)
        price = plan.cost.seconds / predicted((m, 14336, 4096)).cost.seconds - 1
        assert plan.sku.variant == "wgmma"
        assert price <= int(most if m < int(beyond) else less) / 100, f"M = {m}: {price:.1%}"
    price = predicted((1, 4096, 4096), batch_invariant=True).cost.seconds / predicted((1, 4096, 4096)).cost.seconds - 1
    assert round(100 * price) == int(small)


def test_the_bound_of_pow() -> None:
    power = bp.BinaryPlan.select(bp.BinaryDescriptor("pow", (4,), (4,), "bf16", "bf16"), device="h200")
    assert f"`{power.precision_guarantee.bound}` for `pow` in bf16" in TEXT


BLOCKS = {f"{page.stem}-{i}": block for page in pages() for i, block in enumerate(blocks(page))}
HOST = {name: block for name, block in BLOCKS.items() if not needs_a_gpu(block)}
GPU = {name: block for name, block in BLOCKS.items() if needs_a_gpu(block)}


@pytest.mark.parametrize("block", HOST.values(), ids=HOST)
def test_snippets_run_as_printed(block: str) -> None:
    with_its_framework(block)
    ran(block)


@pytest.mark.gpu
@pytest.mark.parametrize("block", GPU.values(), ids=GPU)
def test_snippets_for_a_gpu_run_as_printed(block: str) -> None:
    with_its_framework(block)
    ran(block)


def test_snippets_that_no_host_runs_are_those_of_the_first_page() -> None:
    assert list(GPU) == ["README-0", "README-1", "capture-2"]


def test_the_errors_in_docs_are_what_is_raised() -> None:
    cache, token = np.zeros((256, 32, 128), "f2"), np.zeros((1, 32, 128), "f2")
    names = {"bp": bp, "cache": cache, "token": token, "x": np.zeros((64, 512), "f2"), "w": np.zeros((1024, 512), "f2")}
    (shown,) = (b for page in pages() for b in blocks(page, "text") if "InvalidProblemError" in b)
    lines = shown.splitlines()
    for statement, said in zip(lines[::2], lines[1::2]):
        with bp.device("cpu"), pytest.raises(bp.BaracudaError) as caught:
            exec(statement.removeprefix(">>> "), dict(names))
        assert f"{type(caught.value).__name__}: {caught.value}" == said


def test_every_environment_variable_is_documented() -> None:
    documented = set(re.findall(r"`([A-Z][A-Z_]+)`", (ROOT / "docs/environment.md").read_text(encoding="utf-8")))
    read = set()
    for path in (ROOT / "baracuda_py").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "environ" in source or "getenv" in source:
            constants = (n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant))
            read |= {c for c in constants if isinstance(c, str) and re.fullmatch(r"[A-Z]+_[A-Z_]+|PATH", c)}
    assert {"BARACUDA_CACHE_DIR", "CUDA_PATH"} <= read
    assert read <= documented, f"docs/environment.md lacks {sorted(read - documented)}"


def test_readme_links_lead_to_files_and_families() -> None:
    others = [ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/RESULTS.md")]
    for page in [*pages(), *(ROOT / "docs/ops").glob("*.md"), *others]:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for link in re.findall(r'\]\(([^)#]+)\)|src="([^"]+)"', text):
            target = next(filter(None, link))
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
    families = set(re.findall(r"\]\(docs/ops\.md#(\w+)\)", TEXT[TEXT.index("## What is here") :]))
    assert families == {bp.get_op(name).function.__module__.split(".")[2] for name in bp.list_ops()}
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/ops.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert families == set(headings)
    assert generate.readme_text(TEXT) == TEXT, "run python -m baracuda_py.cli.generate"


def test_the_test_that_contributing_names_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"test_gauntlet\[cpu-(\w+)-([^\]]+)\]", text)
    op, label = named
    assert label in {case.label for case in cases(op, "cpu")}
    assert f"--sample '{label}'" in text
