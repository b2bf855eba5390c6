"""The site's hooks: the navigation has every page once, links that leave docs/ become text, marked sections become tabs."""

from __future__ import annotations

import runpy
from types import SimpleNamespace
from typing import Any

import pytest

from ..places import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def hooks() -> dict[str, Any]:
    pytest.importorskip("mkdocs")
    return runpy.run_path(str(DOCS / "hooks.py"))


def leaves(nav: Any) -> list[str]:
    """The pages of a navigation, in its order."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in leaves(part)]


def test_site_nav_has_every_page_once(hooks: dict[str, Any]) -> None:
    config = hooks["on_config"](SimpleNamespace(nav=None))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | {*hooks["MADE"]}
    assert sorted(leaves(config.nav)) == sorted(there)


def shown(hooks: dict[str, Any], text: str, page: str = "ops/add.md") -> str:
    files = SimpleNamespace(
        get_file_from_path=lambda path: None if path.startswith("..") or not (DOCS / path).exists() else path
    )
    made: str = hooks["on_page_markdown"](text, SimpleNamespace(file=SimpleNamespace(src_uri=page)), None, files)
    return made


def test_site_links_outside_docs_become_text(hooks: dict[str, Any]) -> None:
    outside = "[oracle](../../baracuda_py/ops/reduce/oracle.py)"
    assert shown(hooks, f"{outside} [a](../plans.md#x) [b](#here) [c](https://x.org)") == (
        "oracle [a](../plans.md#x) [b](#here) [c](https://x.org)"
    )
    assert shown(hooks, "[first](../../README.md#install)") == "[first](../index.md#install)"
    assert shown(hooks, f"```py\n{outside}\n```\n") == f"```py\n{outside}\n```\n"


def test_site_sections_become_tabs(hooks: dict[str, Any]) -> None:
    text = "<!-- tabs -->\n### A\n\n```py\nx = 1\n```\n\n### B\n\nwords\n<!-- end -->\nafter\n"
    assert shown(hooks, text) == '=== "A"\n\n    ```py\n    x = 1\n    ```\n\n=== "B"\n\n    words\n\nafter\n'
