"""What batch invariance costs a decode step of Llama 3 8B by the plans' predictions: no GPU, no measurement.

``python -m benchmarks.invariance`` writes the picture of docs/reproducibility.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import baracuda_py as bp

__all__ = ["WEIGHTS", "draw", "layer_plans", "step_seconds"]

GPU = "h200"
LAYERS, WIDTH, HIDDEN, HEADS, KEY_HEADS, COLUMNS, CONTEXT = 32, 4096, 14336, 32, 8, 128, 2048
PICTURE = Path(__file__).parent / "results" / "predicted-invariance.png"
BATCHES = (1, 2, 4, 8, 16, 33, 64, 133, 256)


def _empty(*shape: int, dtype: Any = np.float16) -> Any:
    return np.empty(shape, dtype)  # only its layout is read


def _int4(k: int, n: int) -> bp.PackedInt4:
    codes = _empty(n // 16, k // 64, 32, 4, dtype=np.uint32)
    return bp.PackedInt4("tiled", (k, n), 128, codes, _empty(k // 128, n))


def _nf4(k: int, n: int) -> bp.PackedNf4:
    return bp.PackedNf4((n, k), _empty(n, k // 2, dtype=np.uint8), _empty(n * k // 64, dtype=np.float32))


def _gguf(k: int, n: int) -> bp.PackedGguf:
    return bp.PackedGguf(_empty(n, k // 256 * 144, dtype=np.uint8), "Q4_K", (n, k))


# Kinds of weights: what selects a product of [batch, k] and weights of k rows and n columns.
WEIGHTS: Mapping[str, Callable[[Any, int, int], Any]] = {
    "f16": lambda x, k, n: bp.matmul.plan(x, _empty(k, n)),
    "int4": lambda x, k, n: bp.matmul_int4.plan(x, _int4(k, n)),
    "NF4": lambda x, k, n: bp.matmul_nf4.plan(x, _nf4(k, n)),
    "GGUF Q4_K": lambda x, k, n: bp.matmul_gguf.plan(x, _gguf(k, n)),
}


def layer_plans(weights: str, batch: int) -> list[Any]:
    """The plans of a decoder layer for one token of each sequence, under the preferences of the context."""
    product, x, lengths = WEIGHTS[weights], _empty(batch, WIDTH), _empty(batch, dtype=np.int32)
    cache = _empty(batch, KEY_HEADS, CONTEXT, COLUMNS)
    q, k = _empty(batch, HEADS, 1, COLUMNS), _empty(batch, KEY_HEADS, 1, COLUMNS)
    with bp.device(GPU):
        return [
            bp.rms_norm.plan(x, _empty(WIDTH)),
            product(x, WIDTH, (HEADS + 2 * KEY_HEADS) * COLUMNS),
            bp.rope.plan(q, lengths[:, None], k=k),
            bp.kv_append.plan(cache, _empty(*cache.shape), k, k, lengths),
            bp.attention_decode.plan(q, cache, cache, lengths),
            product(x, WIDTH, WIDTH),
            bp.add.plan(x, x),
            bp.rms_norm.plan(x, _empty(WIDTH)),
            product(x, WIDTH, 2 * HIDDEN),
            bp.silu_mul.plan(_empty(batch, HIDDEN), _empty(batch, HIDDEN)),
            product(_empty(batch, HIDDEN), HIDDEN, WIDTH),
            bp.add.plan(x, x),
        ]


def step_seconds(weights: str, batch: int) -> float:
    """The predicted time of the layers of a step, one plan after another."""
    return LAYERS * sum(plan.cost.seconds for plan in layer_plans(weights, batch))


def costs(batches: Sequence[int] = BATCHES) -> dict[str, list[float]]:
    """Of each kind of weights, the predicted time with batch invariance over the time without, by batch."""
    found = {}
    for weights in WEIGHTS:
        free = [step_seconds(weights, batch) for batch in batches]
        with bp.preference(batch_invariant=True):
            found[weights] = [step_seconds(weights, batch) / seconds for batch, seconds in zip(batches, free)]
    return found


def draw(path: Path = PICTURE) -> Path:
    """Writes the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.2), layout="constrained")
    axes = figure.subplots()
    for weights, ratios in costs().items():
        axes.plot(BATCHES, ratios, marker="o", markersize=4, label=weights)
    axes.set(xscale="log", xlabel="sequences in the batch", ylabel="time with batch_invariant=True / without")
    axes.set_xticks(BATCHES, [str(batch) for batch in BATCHES])
    axes.minorticks_off()
    axes.axhline(1.0, color="#666666", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_title(
        "What batch invariance costs a decode step of Llama 3 8B\nPredicted by the plans for an H200, not measured; "
        f"{CONTEXT} tokens of context",
        loc="left", fontsize=11,
    )  # fmt: skip
    figure.savefig(path, dpi=150, metadata={"Software": None})
    return path


if __name__ == "__main__":
    print(draw())
