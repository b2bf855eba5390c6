"""examples/tour.ipynb: executed again, by ``python -m tests.notebook`` in place, and in the tests beside what is committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .places import ROOT

__all__ = ["NOTEBOOK", "executed", "read", "texts"]

NOTEBOOK = ROOT / "examples" / "tour.ipynb"
VARIES = "varies"  # the tag of cells whose output depends on what is installed
CELL_TIMEOUT_S = 240


def read() -> Any:
    import nbformat

    return nbformat.read(NOTEBOOK, as_version=4)


def executed(notebook: Any) -> Any:
    """The notebook with the outputs of a fresh kernel."""
    from nbclient import NotebookClient

    client = NotebookClient(
        notebook, kernel_name="python3", timeout=CELL_TIMEOUT_S, resources={"metadata": {"path": str(ROOT)}}
    )
    made = client.execute()
    for cell in made.cells:
        cell.metadata.pop("execution", None)  # when it ran
    return made


def texts(notebook: Any, *, all_cells: bool = False) -> Iterator[tuple[str, str]]:
    """The source of each code cell and the text that it gives, without cells whose text varies."""
    for cell in notebook.cells:
        if cell.cell_type != "code" or (not all_cells and VARIES in cell.metadata.get("tags", ())):
            continue
        outputs = [output.get("text", output.get("data", {}).get("text/plain", "")) for output in cell.outputs]
        yield cell.source, "".join(outputs).strip()


if __name__ == "__main__":
    import nbformat

    nbformat.write(executed(read()), NOTEBOOK)
