"""What is printed fits the screen: 80 columns where COLUMNS says so, no word cut, and a page of help."""

from __future__ import annotations

import pydoc
import subprocess
import sys

import pytest

import baracuda_py as bp
from baracuda_py._index import RETIRED
from baracuda_py.cli.main import main

LAYER = bp.MatmulDescriptor((1, 4096), (4096, 14336), "bf16", "bf16", b_strides=(1, 4096), activation="silu")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_plans_and_explanations_are_folded_between_words(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = bp.MatmulPlan.select(LAYER, device="h200")
    for shown in (plan, plan.explain(), plan.explain(configs=True)):
        monkeypatch.delenv("COLUMNS", raising=False)
        whole = str(shown)
        monkeypatch.setenv("COLUMNS", str(columns))
        text = str(shown)
        assert max(map(len, text.splitlines())) <= columns
        assert text.split() == whole.split()
        assert len(text.splitlines()) > len(whole.splitlines())


def test_ops_is_a_line_an_op(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["ops"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert not said.err and all(line == line.rstrip() for line in lines)
    assert max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(names) == sorted(bp.list_ops())
    assert len(lines) == len(names) + 2 * lines.count("")  # a heading for each category, and the number of ops


def test_ops_of_one_op_says_all(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["ops", "attention_decode"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    op = bp.get_op("attention_decode")
    plan = op.plan.select(op.plan.descriptor(**op.plan.probes[0]), device="h200")
    for said in (*(c.variant for c in op.plan.candidates), op.plan.category.value, "bound", "verified on"):
        assert said in out
    assert " ".join(str(plan.precision_guarantee.bound).split())[:20] in " ".join(out.split())


def test_help_is_a_page() -> None:
    text = pydoc.plain(pydoc.render_doc(bp))
    assert len(text.splitlines()) <= 50
    assert "bp.matmul(" in text and "python -m baracuda_py ops" in text


def test_dir_lists_public_names_and_retired_ones_resolve() -> None:
    assert not set(RETIRED) & set(dir(bp))
    assert {"add", "F32", "RopeScaling", "pack_int4", "MatmulGradients", "ReduceDescriptor"} <= set(dir(bp))
    for name in RETIRED:
        with pytest.warns(DeprecationWarning, match=rf"bp\.{name} "):
            assert getattr(bp, name) is not None


def test_a_star_import_shadows_nothing() -> None:
    code = "from baracuda_py import *; assert sum([1]) == 1 and max(1, 2) == 2"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
