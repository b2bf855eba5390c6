"""Rows of rotary embedding: queries and keys of models that are served, beside what torch's users write."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from baracuda_py.samples.models import MODELS

from .harness import OURS
from .operands import Kit, itemsize
from .row import Calls, Row
from .target import BEST, Target

__all__ = ["POSITION_ROWS"]

POSITION, ANGLE = 8, 4  # bytes of an i64, and of an f32
TABLE = 131072  # positions of a table


def _rope(
    name: str, tokens: int, heads: tuple[int, int], width: int, *, style: str = "half", tables: bool = False,
    dtype: str = "bfloat16", target: Target | None = None,
) -> Row:  # fmt: skip
    """q and k of `heads`, [tokens, heads, width], in one launch. Torch is given cos and sin of each token, gathered
    beforehand."""
    shapes, pairs = [(tokens, count, width) for count in heads], width // 2
    interleaved = style == "interleaved"

    def halves(x: Any) -> tuple[Any, Any]:
        return (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :pairs], x[..., pairs:])

    def rotated(torch: Any, x: Any, cos: Any, sin: Any) -> Any:
        a, b = halves(x)
        both = a * cos - b * sin, b * cos + a * sin
        return torch.stack(both, -1).flatten(-2) if interleaved else torch.cat(both, -1)

    def theirs(torch: Any, q: Any, k: Any, cos: Any, sin: Any) -> Any:
        return rotated(torch, q, cos, sin), rotated(torch, k, cos, sin)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        q, k = (kit.normal(shape, dtype) for shape in shapes)
        out, k_out = (kit.empty(shape, dtype) for shape in shapes)
        positions = kit.xp.random.randint(0, TABLE, (tokens,), dtype="int64")
        inv_freq = (10000.0 ** (-kit.xp.arange(pairs) / pairs)).astype("float32")
        angle = kit.xp.arange(TABLE, dtype="float64")[:, None] * inv_freq.astype("float64")
        cos, sin = (part(angle).astype("float32") for part in (kit.xp.cos, kit.xp.sin))
        made = {"cos": cos, "sin": sin, "status": kit.xp.zeros(tokens, "int32")} if tables else {"inv_freq": inv_freq}
        operands = {"x": q, "k": k, "positions": positions, "out": out, "k_out": k_out, **made}
        desc = bp.RopeDescriptor.of(**operands, style=style, layout="THD")
        calls: Calls = {OURS: bp.RopePlan.select(desc).bind(**operands)}
        if kit.torch is not None:
            given = [kit.as_torch(x) for x in (q, k)]
            given += [kit.as_torch(part[positions])[:, None].to(given[0].dtype) for part in (cos, sin)]
            calls["torch"] = lambda: theirs(kit.torch, *given)
            if (fused := kit.compiled(f"rope {name}", lambda *x: theirs(kit.torch, *x))) is not None:
                calls["torch.compile"] = lambda: fused(*given)
        return calls

    moved = sum(map(prod, shapes)) * itemsize(dtype)
    read = moved + tokens * (POSITION + (2 * pairs * ANGLE if tables else 0))
    written = moved + (4 * tokens if tables else 0)
    return Row(
        "position", f"rope {name}", "rope", shapes[0], dtype, read, written, make, target, Target(1.0, "paired", BEST)
    )


def _heads(name: str) -> tuple[tuple[int, int], int]:
    """A model's heads of q and k, and their columns: of latent heads those that turn."""
    model = MODELS[name]
    return (model.heads, model.kv_heads), model.rotated


def _rows() -> Iterator[Row]:
    prefill = Target(1.06)
    small, large, latent = (_heads(name) for name in ("Llama-3 8B", "Llama-3 70B", "DeepSeek-V3 MLA"))
    yield _rope("Llama-3 8B prefill bf16", 16384, *small, target=prefill)
    yield _rope("Llama-3 8B prefill by tables bf16", 16384, *small, tables=True, target=prefill)
    yield _rope("Llama-3 70B prefill bf16", 16384, *large, target=prefill)
    yield _rope("interleaved prefill bf16", 16384, *small, style="interleaved", target=prefill)
    yield _rope("MLA prefill bf16", 16384, *latent, style="interleaved", target=prefill)
    yield _rope("prefill f32", 8192, *small, dtype="float32", target=prefill)
    for tokens, counted in ((1, "1 token"), (64, "64 tokens"), (512, "512 tokens")):
        yield _rope(f"Llama-3 8B decode, {counted} bf16", tokens, *small)
    for name in ("Qwen2.5 7B", "Gemma-2 9B", "gpt-oss 120B"):
        yield _rope(f"{name} prefill bf16", 16384, *_heads(name), target=prefill)


POSITION_ROWS: tuple[Row, ...] = tuple(_rows())
