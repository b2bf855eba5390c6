"""The demo's decode loop: the text's bytes are tokens, which are embedded, rotated (RoPE), appended to pages and attended to,
step by step.

Everything that changes from step to step is on the device: the lengths, which select the next byte, the slot of its key, its
position and the number of visible keys. So one step is one CUDA graph, which is replayed for every token. Without a GPU the
same bound plans are emulated, with a few heads. The last outputs attend to every key, and are checked in float64.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ..machine import SEED, Machine, check
from ..terminal import time_text, title

__all__ = ["decode"]


class Size(NamedTuple):
    """The size of a layer, and the number of tokens."""

    sequences: int
    tokens: int
    heads: int
    kv_heads: int
    columns: int
    page: int


GPU = Size(16, 1024, 32, 8, 128, 64)  # a layer of Llama-3 8B
HOST = Size(2, 6, 2, 1, 32, 4)
BASE = 500000.0
NEAR = 4e-3  # error relative to the largest output: f16 keys, values and weights


def decode(screen: Any, where: Machine, text: bytes, most: int) -> str:
    """Decodes up to `most` tokens of each sequence; all their bytes are known beforehand."""
    import numpy as np

    size = HOST if where.ordinal is None else GPU
    size = size._replace(tokens=min(size.tokens, most))
    title(screen, "5", f"decode {size.tokens} tokens of {size.sequences} sequences, embed to attend")
    rng = np.random.default_rng(SEED)
    tokens = np.resize(np.frombuffer(text, np.uint8), (size.sequences, size.tokens)).astype(np.int32)
    table = rng.standard_normal((256, size.heads + 2 * size.kv_heads, size.columns)).astype(np.float16)
    step, out, names = _step(where, size, tokens, table)
    step()  # compiles, and takes the first token
    where.synchronize()
    began = time.perf_counter()
    for _ in range(size.tokens - 1):
        step()
    where.synchronize()
    spent = (time.perf_counter() - began) / max(1, size.tokens - 1)
    screen.print(f"  a step: {', '.join(names)}", highlight=False)
    if where.ordinal is not None:
        rate = f"{size.sequences / spent:,.0f}"
        screen.print(f"  {time_text(spent)} a step in one CUDA graph: {rate} tokens/s of one layer", highlight=False)
    got, wanted = where.host(out).astype(np.float64), _by_hand(size, table[tokens].astype(np.float64))
    worst = float(np.abs(got - wanted).max() / np.abs(wanted).max())
    check(worst <= NEAR, f"decoding is off by {worst:.2g} of the largest output, {NEAR} at most was expected")
    how = "replayed from a CUDA graph" if where.ordinal is not None else f"on {_device(where)}"
    return f"{size.tokens} steps {how}: outputs are within {worst:.1e} of float64's"


def _device(where: Machine) -> Any:
    """The GPU, else the emulator (which needs NVRTC), else NumPy."""
    from ...runtime.system.toolchain import nvrtc
    from ...types import UnsupportedError

    if where.ordinal is not None:
        return None
    try:
        nvrtc()
    except UnsupportedError:
        return "cpu"
    return "ptx"


def _step(where: Machine, size: Size, tokens: Any, table: Any) -> tuple[Callable[[], Any], Any, list[str]]:
    """A function that decodes one token of every sequence, its output array, and its plans."""
    import baracuda_py as bp

    xp, device, batch = where.xp, _device(where), size.sequences
    spec = bp.KVCacheSpec(1, size.kv_heads, size.columns, page_size=size.page, element="f16")
    cache = bp.PagedKVCache(spec, batch * spec.pages_needed(size.tokens), max_batch=batch, device=device)
    cache.stage([cache.allocate(size.tokens) for _ in range(batch)])
    angles = {"inv_freq": xp.asarray(bp.RopeScaling.plain(size.columns, BASE).inv_freq)}
    text, rows = xp.asarray(tokens), xp.asarray(table.reshape(256, -1))
    lengths, after, one = xp.zeros(batch, "int32"), xp.zeros(batch, "int32"), xp.ones(batch, "int32")
    known, qkv = xp.zeros((batch, 1), "int32"), xp.zeros((batch, rows.shape[1]), "float16")
    heads = qkv.reshape(batch, 1, -1, size.columns)
    ends = (size.heads, size.heads + size.kv_heads)
    q, k, v = heads[:, :, : ends[0]], heads[:, :, ends[0] : ends[1]], heads[:, :, ends[1] :]
    out = xp.zeros(q.shape, "float16")
    tables = {"page_table": cache.page_table, "status": xp.zeros(batch, "int32")}
    pages = cache.layer(0)

    def bound(plan: Any, described: dict[str, Any], **options: Any) -> Any:
        desc = plan.descriptor.of(**{n: x for n, x in described.items() if n != "status"}, **options)
        needed = {n: x for n, x in described.items() if n in {o.name for o in desc.operands}}
        return plan.select(desc, device=device).bind(**needed)

    plans = [
        bound(bp.TakeAlongAxisPlan, {"x": text, "indices": lengths[:, None], "out": known}, axis=1),
        bound(bp.TakeAlongAxisPlan, {"x": rows, "indices": xp.broadcast_to(known, qkv.shape), "out": qkv}, axis=0),
        bound(bp.RopePlan, {"x": q[:, 0], "positions": lengths, "out": q[:, 0], **angles}, layout="THD"),
        bound(bp.PagedKvAppendPlan, {**pages, "k": k, "v": v, "lengths": lengths, **tables, **angles}),
        bound(bp.BinaryPlan, {"x1": lengths, "x2": one, "out": after}, kind="add"),
        bound(bp.PagedAttentionPlan, {"q": q, **pages, "lengths": after, **tables, "out": out}),
        bound(bp.BinaryPlan, {"x1": lengths, "x2": one, "out": lengths}, kind="add"),
    ]
    names = [plan.selection.desc.op for plan in plans]
    if where.ordinal is not None:
        return bp.Graph(*plans).launch, out, names
    return lambda: [plan() for plan in plans], out, names


def _by_hand(size: Size, rows: Any) -> Any:
    """The last token's output of every sequence in NumPy: pairs as complex numbers, one head after the other."""
    import numpy as np

    half = size.columns // 2
    rotation = np.exp(1j * np.arange(size.tokens)[:, None] * BASE ** (-np.arange(half) / half))

    def rotated(x: Any) -> Any:
        """[sequences, tokens, columns], rounded as a cache holds it."""
        both = (x[..., :half] + 1j * x[..., half:]) * rotation
        return np.concatenate([both.real, both.imag], axis=-1).astype(np.float16).astype(np.float64)

    out = np.zeros((size.sequences, 1, size.heads, size.columns))
    for h in range(size.heads):
        of_k = size.heads + h // (size.heads // size.kv_heads)
        q, k, v = rotated(rows[:, :, h])[:, -1], rotated(rows[:, :, of_k]), rows[:, :, of_k + size.kv_heads]
        score = np.einsum("bd,btd->bt", q, k) / np.sqrt(size.columns)
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        out[:, 0, h] = np.einsum("bt,btd->bd", weight / weight.sum(axis=1, keepdims=True), v)
    return out
