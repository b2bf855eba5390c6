"""examples/tour.ipynb gives again what it shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .. import notebook
from ..places import ROOT

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("torch")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the Jupyter client
def test_notebook_gives_what_it_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("BARACUDA_DEVICE", raising=False)
    shown = notebook.read()
    wanted = list(notebook.texts(shown))
    assert len(wanted) >= 5 and all(text for _, text in notebook.texts(shown, all_cells=True)), "cells without outputs"
    assert list(notebook.texts(notebook.executed(shown))) == wanted, "python -m tests.notebook writes the new outputs"
