"""The generated pages of the ops: one for each, with an example that runs and makes the results that the page states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.cli.pages import example_of, ops_text, readme_row, sections
from baracuda_py.plan import all_ops

from ..readme import ROOT, blocks

OPS = list(all_ops())


def ran(name: str, device: str) -> tuple[Any, ...]:
    """The results of the example on the op's page."""
    (block,) = blocks(ROOT / "docs/ops" / f"{name}.md", "py")
    assert 'device="ptx"' in block
    names: dict[str, Any] = {}
    exec(block.replace('device="ptx"', f'device="{device}"'), names)
    result = names["result"]
    return result if isinstance(result, tuple) else (result,)


def as_stated(name: str, results: tuple[Any, ...]) -> None:
    example = example_of(bp.get_op(name))
    assert example is not None
    made = [(tuple(x.shape), x.dtype) for x in map(np.asarray, results)]
    assert made == [(shape, element.dtype) for _, shape, element in example.results]


@pytest.mark.parametrize("op", OPS)
def test_pages_examples_run_on_the_oracle(op: str) -> None:
    as_stated(op, ran(op, "cpu"))


@pytest.mark.parametrize("op", OPS)
def test_pages_examples_run_emulated(op: str) -> None:
    as_stated(op, ran(op, "ptx"))


def test_pages_list_every_op() -> None:
    text = ops_text()
    assert all(f"| [`{op}`](ops/{op}.md) |" in text for op in OPS)
    assert {path.stem for path in (ROOT / "docs/ops").glob("*.md")} == set(OPS)
    assert sum(map(len, sections().values())) == len(OPS)


def test_pages_readme_takes_one_line_for_all_families() -> None:
    row = readme_row()
    assert "\n" not in row
    assert sum(int(part) for part in row.replace(")", "(").split("(") if part.isdigit()) == len(OPS)


@pytest.mark.parametrize("op", ["softmax", "matmul_int4", "gelu", "write_slice"])
def test_pages_have_every_section(op: str) -> None:
    text = (ROOT / "docs/ops" / f"{op}.md").read_text(encoding="utf-8")
    found = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert found == ["Operands", "Variants", "Error bound", "Gradient", "Memory", "Example", "Verified"]
    entry = bp.get_op(op)
    assert all(f"| `{candidate.variant}`" in text for candidate in entry.plan.candidates)
    assert entry.summary.split()[0] in text
