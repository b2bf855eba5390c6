"""Hooks of mkdocs: the first page is the README, a page is the notebook, the navigation has those pages that exist, sections
become tabs."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NOTEBOOK = ROOT / "examples" / "tour.ipynb"
MADE = ("index.md", "tour.md")  # pages that are made here
NAV: dict[str, dict[str, str]] = {  # section: title: page; a page that does not exist is left out
    "": {"baracuda_py": "index.md", "Quick start": "quickstart.md", "Tour": "tour.md"},
    "Concepts": {
        "Plans": "plans.md", "Exactness": "exactness.md", "Reproducibility": "reproducibility.md", "Emulator": "emulator.md",
        "CUDA graphs": "capture.md", "Fused functions": "fuse.md",
        "Limits": "limits.md", "Environment": "environment.md", "Glossary": "glossary.md",
    },
    "Frameworks": {"PyTorch": "torch.md", "transformers": "transformers.md", "JAX": "jax.md"},
    "Coming from": {
        "PyTorch": "from-pytorch.md", "CuPy's RawKernel": "from-rawkernel.md", "baracuda, KAIO, realizar": "from-baracuda.md",
    },
    "Weights and caches": {
        "Attention": "attention.md", "Paged cache": "paged-cache.md", "int4": "int4-weights.md", "NF4": "nf4.md",
        "GGUF": "gguf.md",
    },
    "Extending": {"Adding an op": "adding-an-op.md", "Own kernels": "own-kernels.md"},
    "Reference": {"Plans and arrays": "api.md"},
}  # fmt: skip


def on_config(config: Any) -> Any:
    """The navigation: `NAV`, then pages that it does not name, then the ops by family."""
    nav: list[Any] = []
    for section, pages in NAV.items():
        there = [{title: page} for title, page in pages.items() if page in MADE or (DOCS / page).exists()]
        nav += [{section: there}] if section and there else there
    known = {page for pages in NAV.values() for page in pages.values()} | {"ops.md"}
    if others := sorted(path.name for path in DOCS.glob("*.md") if path.name not in known):
        nav.append({"More": others})
    config.nav = [*nav, {"Ops": [{"All ops": "ops.md"}, *_ops()]}]
    return config


def _ops() -> list[Any]:
    """The pages of the ops by family, as docs/ops.md lists them: a row that begins with an op's name and page."""
    nav: list[Any] = []
    for family, text in re.findall(
        r"^## (.+?)\n(.*?)(?=^## |\Z)", (DOCS / "ops.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    ):
        if rows := re.findall(r"^\| \[`(\w+)`\]\((ops/\w+\.md)\)", text, re.MULTILINE):
            nav.append({family: [{op: page} for op, page in rows]})
    return nav


def on_files(files: Any, config: Any) -> Any:
    """Adds the README as the first page, with the pictures that it shows, and the notebook."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    for picture in re.findall(r'src="([^"]+)"', text):
        files.append(File.generated(config, picture, abs_src_path=str(ROOT / picture)))
    files.append(File.generated(config, "index.md", content=text))
    files.append(File.generated(config, "tour.md", content=_notebook()))
    return files


def _notebook() -> str:
    """The notebook's text, code and outputs as a page."""
    parts = []
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            lines = output.get("text") or output.get("data", {}).get("text/plain", "")
            parts.append(f"```text\n{''.join(lines).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(text: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001  (mkdocs passes all by name)
    """Links to files that are no pages become plain text, and the sections between tab markers tabs."""
    here = page.file.src_uri.rpartition("/")[0]

    def link(found: re.Match[str]) -> str:
        path, _, anchor = found[2].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return found[0]
        target = posixpath.normpath(posixpath.join(here, path))
        if target == "../README.md":
            return f"[{found[1]}]({posixpath.relpath('index.md', here or '.')}{'#' + anchor if anchor else ''})"
        return found[0] if files.get_file_from_path(target) is not None else found[1]

    parts = re.split(r"(^```.*?^```)", text, flags=re.DOTALL | re.MULTILINE)  # code stays as it is
    parts[::2] = [re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", link, part) for part in parts[::2]]
    return re.sub(r"^<!-- tabs -->\n(.*?)^<!-- end -->\n", _tabs, "".join(parts), flags=re.DOTALL | re.MULTILINE)


def _tabs(found: re.Match[str]) -> str:
    """Each section "### name" as a tab."""
    sections = re.split(r"^### (.+)\n", found[1], flags=re.MULTILINE)[1:]
    tabs = []
    for title, body in zip(sections[::2], sections[1::2]):
        lines = "\n".join(f"    {line}".rstrip() for line in body.strip().splitlines())
        tabs.append(f'=== "{title}"\n\n{lines}\n\n')
    return "".join(tabs)
