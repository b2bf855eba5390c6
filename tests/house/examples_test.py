"""examples/: each is run at toy size, as a user runs it; the decoder's cache and the training loss are checked."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

from ..places import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LINES = 149  # of an example, at most


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of an example, which is not run."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return runpy.run_path(str(ROOT / "examples" / name), run_name="example")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_as_programs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text(encoding="utf-8")
    for framework in ("torch", "jax"):
        if f"import {framework}" in text:
            pytest.importorskip(framework)
    assert text.startswith('"""') and len(text.splitlines()) <= LINES
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setattr(sys, "argv", [str(path)])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(path), run_name="__main__")
    assert printed.getvalue().strip()


def tiny(weights: str, monkeypatch: pytest.MonkeyPatch, width: int = 256) -> tuple[dict[str, Any], Any]:
    """llama.py's names, and a decoder of one layer, which keeps up to eight tokens of two sequences."""
    names = loaded("llama.py", monkeypatch)
    size = names["Size"](1, width, width // 32, width // 64, 32, width, 64)
    return names, names["Llama"](np, size, weights, 2, 8)


TOKENS = np.arange(8).reshape(2, 4) * 7 % 64


@pytest.mark.parametrize("weights", ["f16", "int4", "gguf"])
def test_llama_decodes_what_a_prompt_gives(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last token of a prompt and the same token, decoded against the cache of those before it, have the same scores."""
    lengths = np.zeros(2, np.int32)
    with bp.device("cpu"):
        wanted = tiny(weights, monkeypatch)[1].logits(TOKENS, lengths)
        model = tiny(weights, monkeypatch)[1]
        model.logits(TOKENS[:, :3], lengths)
        decoded = model.logits(TOKENS[:, 3:], lengths + 3)
    np.testing.assert_allclose(decoded, wanted, atol=0.03)
    assert np.abs(wanted).max() > 1


def test_llama_emulated_logits_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, found = np.zeros(2, np.int32), []
    for device in ("cpu", "ptx"):
        with bp.device(device):
            found.append(tiny("f16", monkeypatch, width=64)[1].logits(TOKENS[:, :2], lengths))
    np.testing.assert_allclose(found[1], found[0], atol=0.03)


def test_llama_samples_by_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise the most likely token is drawn; large noise decides by itself."""
    names = loaded("llama.py", monkeypatch)
    logits = np.linspace(0, 3, 64, dtype=np.float16)[None].repeat(2, 0)
    token, noise = np.zeros((2, 1), np.int64), np.zeros((2, names["MOST_LIKELY"]), np.float32)
    noise[1, 5] = 100
    with bp.device("cpu"):
        names["sample"](logits, noise, token)
    assert token.tolist() == [[63], [58]]


def test_train_lowers_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    names = loaded("train.py", monkeypatch)
    with bp.device("cpu"):
        losses = names["train"](8, "cpu", width=32, layers=1, batch=2, tokens=12)
    assert losses[-1] < losses[0] - 0.2
