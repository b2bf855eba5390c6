"""Samples of the rotary embedding and its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...samples.models import MODELS
from ...samples.sample import Sample, layouts, values
from ...types import ElementKind

__all__ = ["rope", "rope_backward"]

BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64
FAR = (0, 1, 2, 131071, 1 << 20, (1 << 30) - 1, 1 << 30, -5, (1 << 31) + 7, 3)


def _known(name: str) -> tuple[int, int, int, int, float, str]:
    """Heads of q and k, and columns; of latent heads those that are rotated are strided."""
    model = MODELS[name]
    columns = model.rotated if model.latent else model.head_dim
    return model.heads, model.kv_heads, columns, model.rotated, model.base, model.style


# Of a model: layout, tokens, heads of q and k, columns, those that turn, base, style.
SHAPES = {
    "llama-3 8B decode": ("THD", 8, *_known("Llama-3 8B")),
    "qwen2.5 7B": ("BSHD", 5, *_known("Qwen2.5 7B")),
    "gpt-j": ("BSHD", 6, 16, 16, 256, 64, 10000.0, "interleaved"),
    "phi-2": ("BHSD", 9, 32, 32, 80, 32, 10000.0, "half"),
    "deepseek MLA": ("THD", 7, *_known("DeepSeek-V3 MLA")),
}


def _frequencies(dim: int, base: float = 10000.0) -> Any:
    return (base ** (np.arange(0, -dim, -2) / dim)).astype(np.float32)


def _tables(rng: np.random.Generator, positions: int, pairs: int, element: ElementKind = F32) -> dict[str, Any]:
    angle = rng.uniform(-np.pi, np.pi, (positions, pairs))
    return {"cos": np.cos(angle).astype(element.dtype), "sin": np.sin(angle).astype(element.dtype)}


def _shape(layout: str, batch: int, tokens: int, heads: int, width: int) -> tuple[int, ...]:
    extents = {"B": batch, "H": heads, "S": tokens, "T": tokens, "D": width}
    return tuple(extents[axis] for axis in layout)


def _model(rng: np.random.Generator, name: str, element: ElementKind) -> Sample:
    layout, tokens, heads, k_heads, width, rotated_dim, base, style = SHAPES[name]
    operands = {
        "x": values(rng, _shape(layout, 2, tokens, heads, width), element),
        "k": values(rng, _shape(layout, 2, tokens, k_heads, width), element),
        "positions": rng.integers(0, 8192, tokens),
        "inv_freq": _frequencies(rotated_dim, base),
    }
    return Sample(f"{name} {element}", operands, {"layout": layout, "style": style})


def rope(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every layout, style and kind; tables and frequencies, positions far out and outside; rows that are not dense."""
    rng = np.random.default_rng(seed)
    for i, element in enumerate((BF16, F32, F16, F64)):
        for style in ("half", "interleaved"):
            x = values(rng, (2, 3, 10, 64), element)
            yield Sample(
                f"{element} {style} far out",
                {"x": x, "positions": np.array(FAR), "inv_freq": _frequencies(64)},
                {"style": style},
            )
            at = rng.integers(0, 40, (3, 5)).astype(np.int32 if i % 2 else np.int64)
            at[1, 2], at[2, 0] = 40, -1
            both = {"x": values(rng, (3, 5, 4, 48), element), "k": values(rng, (3, 5, 1, 48), element)}
            tables = _tables(rng, 40, 16, element if i % 2 else F32)
            yield Sample(
                f"{element} {style} tables, partial",
                {**both, "positions": at, **tables},
                {"style": style, "layout": "BSHD", "attention_factor": 1.25},
            )
        for shape, pairs in (((5, 7), 3), ((2, 4, 6), 3), ((3, 1, 33, 20), 5)) if full or i < 2 else (((2, 4, 6), 3),):
            yield Sample(
                f"{element}{list(shape)} offset", {"x": values(rng, shape, element), "inv_freq": _frequencies(2 * pairs)},
                {"offset": 1000, "attention_factor": 0.75},
            )  # fmt: skip
        for name, view in layouts(values(rng, (2, 3, 4, 16), element)).items():
            yield Sample(f"{element} {name}", {"x": view, "inv_freq": _frequencies(16)}, {"layout": "BSHD"})
    for name in SHAPES:
        yield _model(rng, name, BF16)
    wide = np.concatenate(list(_tables(rng, 20, 32).values()), axis=1)
    halves = {"cos": wide[:, :32], "sin": wide[:, 32:]}
    x = values(rng, (9, 5, 64), F16)
    yield Sample("halves of one table", {"x": x, "positions": rng.integers(0, 20, 9), **halves}, {"layout": "THD"})
    twice = {name: np.repeat(table, 2, axis=1)[:, ::2] for name, table in _tables(rng, 9, 32).items()}
    yield Sample("every other column of a table", {"x": x, **twice}, {"layout": "THD", "style": "interleaved"})
    yield Sample("tables too short", {"x": x, **_tables(rng, 4, 32)}, {"layout": "THD", "offset": 1})
    yield Sample("empty tables", {"x": x, **_tables(rng, 0, 32)}, {"layout": "THD"})
    spread = np.broadcast_to(np.arange(6)[None], (2, 6))
    yield Sample(
        "positions that are broadcast",
        {"x": values(rng, (2, 3, 6, 32), F32), "positions": spread, "inv_freq": _frequencies(32)},
    )
    for shape in ((0, 3, 4, 8), (2, 0, 4, 8), (2, 3, 0, 8)):
        for angles in ({"inv_freq": _frequencies(8)}, _tables(rng, 6, 4)):
            yield Sample(f"f32{list(shape)} {len(angles)}", {"x": values(rng, shape, F32), **angles})
    corners = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 65000.0], np.float32)
    rows = np.stack([np.roll(corners, i) for i in range(8)])
    for element in (F32, F16):
        x = rows.astype(element.dtype)
        yield Sample(f"{element} corners", {"x": x, "inv_freq": _frequencies(8)})
    yield Sample("bf16 one head of many tokens", {"x": values(rng, (700, 128), BF16), "inv_freq": _frequencies(128)})


def rope_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """As `rope`."""
    called: Mapping[str, str] = {"x": "grad", "k": "k_grad"}
    for sample in rope(fixed, seed + 1, full=full):
        operands = {called.get(name, name): x for name, x in sample.operands.items()}
        yield Sample(sample.label, operands, sample.options)
