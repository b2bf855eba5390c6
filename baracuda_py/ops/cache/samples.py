"""Samples of what writes to paged caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...samples.sample import Sample, values
from ...types import ElementKind

__all__ = ["angles", "append_operands", "copy_pages", "paged_kv_append"]

Array: TypeAlias = np.ndarray[Any, Any]
F16, BF16, F32 = ElementKind.F16, ElementKind.BF16, ElementKind.F32
I8, E4M3, E5M2 = ElementKind.I8, ElementKind.FP8_E4M3, ElementKind.FP8_E5M2


def table(rng: np.random.Generator, counts: Sequence[int], size: int, pages: int, columns: int) -> Array:
    """A table whose requests have as many pages as they need, no page twice; ids behind them are out of range."""
    ids = rng.permutation(pages).astype(np.int32)
    made, used = np.full((len(counts), columns), pages, np.int32), 0
    for b, count in enumerate(counts):
        needed = -(-count // size)
        made[b, :needed] = ids[used : used + needed]
        used += needed
    return made


def append_operands(
    rng: np.random.Generator, lengths: Sequence[int], new: Sequence[int] | int, *, size: int = 16, heads: int = 2,
    dim: int = 64, v_dim: int = 0, layout: str = "NHD", element: ElementKind = BF16, pages_element: ElementKind | None = None,
    given: bool = False, spare: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """The operands of an append of `new` tokens (for each request, or each its own number) behind `lengths`."""
    counts = [new] * len(lengths) if isinstance(new, int) else list(new)
    ends = [max(0, n) + c for n, c in zip(lengths, counts)]
    pages = sum(-(-n // size) for n in ends) + 3
    stored = pages_element or element
    inner = (size, heads) if layout == "NHD" else (heads, size)
    lead = (len(lengths), new) if isinstance(new, int) else (sum(counts) + spare,)
    made: dict[str, Any] = {}
    for part, columns in (("k", dim), ("v", v_dim or dim)):
        made[f"{part}_pages"] = values(rng, (pages, *inner, columns), stored)
        made[part] = values(rng, (*lead, heads, columns), element)
        if stored is not element and given:
            made[f"{part}_scale"] = (0.02 + 0.01 * rng.random(heads)).astype(np.float32)
        elif stored is not element:
            made[f"{part}_scales"] = values(rng, (pages, *inner), F32)
    made["page_table"] = table(rng, ends, size, pages, max(-(-n // size) for n in [1, *ends]))
    made["lengths"] = np.array(lengths, np.int32)
    if not isinstance(new, int):
        made["cu_seqlens"] = np.cumsum([0, *counts]).astype(np.int32)
    return made


def paged_kv_append(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every dtype and both layouts, pages of odd sizes, one token and many, requests of none, and everything that is wrong."""
    rng = np.random.default_rng(seed)

    def sample(label: str, lengths: Sequence[int], new: Any, *, change: Any = None, **more: Any) -> Sample:
        operands = append_operands(rng, lengths, new, **more)
        if change is not None:
            change(operands)
        return Sample(label, operands, {"layout": more.get("layout", "NHD")})

    ragged = ((0, 15, 16, 33), (3, 1, 0, 18))
    for layout in ("NHD", "HND"):
        yield sample(f"bf16 {layout} decode", (0, 15, 16, 40, 7), 1, layout=layout)
        for size in (1, 7, 16, 64):
            yield sample(f"bf16 {layout} pages of {size}", *ragged, size=size, layout=layout)
        for element in (F16, F32, I8, E4M3, E5M2):
            yield sample(f"{element} {layout} as it is", *ragged, element=element, layout=layout, dim=24)
        for element in (F16, BF16, F32):
            for stored in (I8, E4M3):
                name = f"{element} {layout} to {stored}"
                more: dict[str, Any] = {"element": element, "pages_element": stored, "layout": layout}
                yield sample(name, *ragged, dim=40, **more)
                yield sample(f"{name}, given scales", *ragged, size=7, dim=40, given=True, **more)
    for dim, v_dim in ((128, 128), (80, 80), (5, 3), (576, 512), (96, 40), (1, 1)):
        yield sample(f"bf16 D {dim} and {v_dim}", *ragged, dim=dim, v_dim=v_dim, heads=1 + dim % 3)
        yield sample(f"bf16 to i8, D {dim} and {v_dim}", (3, 30), 2, dim=dim, v_dim=v_dim, pages_element=I8)
    yield sample("a prompt", (0,), 300 if full else 70, heads=3, dim=128, size=1)
    yield sample("many requests", [i % 19 for i in range(70)], [(i * 7) % 3 for i in range(70)], heads=1, dim=8, size=3)
    yield sample("no tokens", (4, 0), 0)
    yield sample("no tokens of any", (4, 0), (0, 0))
    yield sample("tokens that are nobody's", *ragged, spare=5, change=lambda x: x["cu_seqlens"].__iadd__(2))
    for label, change in WRONG.items():
        yield sample(f"{label}, a token each", (5, 20, 0, 47), 1, change=change)
        yield sample(f"{label}, of many", (5, 20, 0, 47), (20, 1, 0, 3), change=change, pages_element=I8)
    for label, offsets in (
        ("that decrease", [0, 4, 3, 6]), ("that end behind the tokens", [0, 2, 4, 7]), ("that begin below 0", [-1, 2, 4, 6]),
    ):  # fmt: skip
        made = append_operands(rng, (1, 2, 3), (2, 2, 2))
        yield Sample(f"offsets {label}", {**made, "cu_seqlens": np.array(offsets, np.int32)})
    yield from _views(rng)
    yield from _rotated(rng)
    x = append_operands(rng, (3, 15), 2, element=F32, pages_element=E4M3)
    y = append_operands(rng, (3, 15), 2, element=F32, pages_element=I8)
    for name, made in (("fp8_e4m3", x), ("i8", y)):
        corners = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1e38, -3e38, 1e-38, 448, 127.5, 0.5], np.float32)
        for part in ("k", "v"):
            made[part][0, 0, :, : len(corners)] = corners
            made[part][0, 1] = 0
            made[part][1, 0] = corners[5]
            made[part][1, 1, 0] = np.nan
        yield Sample(f"corners to {name}", made)


def _negative(x: dict[str, Any]) -> None:
    x["lengths"][0] = -1


def _long(x: dict[str, Any]) -> None:
    x["lengths"][1] = 2**31 - 1


def _short(x: dict[str, Any]) -> None:
    """By one token."""
    count = int(np.diff(x["cu_seqlens"])[-1]) if "cu_seqlens" in x else x["k"].shape[1]
    x["lengths"][-1] = x["page_table"].shape[1] * 16 - count + 1


def _beyond(x: dict[str, Any]) -> None:
    x["page_table"][0, x["lengths"][0] // 16] = len(x["k_pages"])


def _below(x: dict[str, Any]) -> None:
    x["page_table"][-1, x["lengths"][-1] // 16] = -1


WRONG = {
    "a negative length": _negative, "a length beyond all": _long, "a table too short": _short, "a page too many": _beyond,
    "a page below 0": _below,
}  # fmt: skip


def _views(rng: np.random.Generator) -> Iterator[Sample]:
    """Keys and values that are parts of one projection, pages of one array, a table with room to spare."""
    made = append_operands(rng, (3, 20), 2, dim=32)
    both = np.concatenate([made["k"], made["v"]], axis=2)
    made["k"], made["v"] = both[:, :, :2], both[:, :, 2:]
    pages = np.stack([made["k_pages"], made["v_pages"]], axis=1)
    made["k_pages"], made["v_pages"] = pages[:, 0], pages[:, 1]
    wide = np.full((4, 9), -5, np.int32)
    wide[:2, : made["page_table"].shape[1]] = made["page_table"]
    made["page_table"] = wide[:2]
    yield Sample("views", made)
    made = append_operands(rng, (3, 20), (1, 2), dim=16)
    for part in ("k", "v"):
        made[part] = np.ascontiguousarray(made[part].transpose(2, 0, 1)).transpose(1, 2, 0)  # columns are strided
    made["page_table"] = np.asfortranarray(made["page_table"])
    yield Sample("columns that lie apart", made)
    for dim, wide_dim in ((12, 16), (16, 17)):  # rows that end within a vector, and that begin within one
        made = append_operands(rng, (3, 20), 2, dim=dim)
        for name in ("k_pages", "v_pages", "k", "v"):
            padded = values(rng, (*made[name].shape[:-1], wide_dim), BF16)
            padded[..., :dim] = made[name]
            made[name] = padded[..., :dim]
        yield Sample(f"D {dim} in rows of {wide_dim}", made)


def angles(rng: np.random.Generator, pairs: int, positions: int = 0, element: ElementKind = F32) -> dict[str, Array]:
    """Frequencies, or tables of so many positions, in quarter turns, whose products are exact."""
    if not positions:
        return {"inv_freq": (10000.0 ** -(np.arange(pairs) / pairs)).astype(np.float32)}
    rotates = rng.integers(0, 4, (positions, pairs))
    quarters = {"cos": np.array([1, 0, -1, 0]), "sin": np.array([0, 1, 0, -1])}
    return {name: of[rotates].astype(element.dtype) for name, of in quarters.items()}


def _rotated(rng: np.random.Generator) -> Iterator[Sample]:
    """Keys rotated by frequencies and tables, at positions of their own and given ones, stored and quantised."""
    ragged = ((0, 15, 16, 33), (3, 1, 0, 18))

    def sample(label: str, made: dict[str, Any], more: dict[str, Any], **options: Any) -> Sample:
        return Sample(label, made | more, {"layout": "NHD", **options})

    yield sample(
        "bf16 turned, decode", append_operands(rng, (0, 15, 900, 7), 1, heads=3, size=64, dim=64), angles(rng, 32)
    )
    made = append_operands(rng, *ragged, element=F16, size=7, dim=24, layout="HND")
    at = {"positions": rng.integers(-9, 1 << 20, 22).astype(np.int32)}
    yield sample("f16 turned, given positions", made, at | angles(rng, 8), layout="HND", style="interleaved")
    made = append_operands(rng, (3, 0, 20), 2, element=F32, dim=10)
    wide = angles(rng, 6, 40)
    at = {"positions": np.array([[39, 0], [5, 40], [7, -1]])}
    yield sample(
        "f32 turned by tables, not all of them in them", made, at | {name: x[:, ::2] for name, x in wide.items()},
        attention_factor=0.75,
    )  # fmt: skip
    made = append_operands(rng, *ragged, pages_element=I8, dim=40)
    yield sample("bf16 turned by tables, to i8", made, angles(rng, 8, 50, BF16))
    made = append_operands(rng, (3, 20), 2, element=F16, pages_element=I8)
    yield sample("f16 turned, to i8", made, angles(rng, 32), style="interleaved")
    made = append_operands(rng, *ragged, element=F32, pages_element=E4M3, dim=40, given=True)
    yield sample("f32 turned, to fp8_e4m3", made, angles(rng, 12))
    made = append_operands(rng, (0, 9), (140, 3), heads=1, dim=16, size=64)
    at = {"positions": rng.permutation(150)[:143].astype(np.int64)}
    yield sample("a prompt, turned by tables", made, at | angles(rng, 8, 149), style="interleaved")


def copy_pages(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """With and without layers and scales, every width, no pair, and ids out of range."""
    rng = np.random.default_rng(seed)
    ids = {"source": np.array([0, 5, 2], np.int32), "dest": np.array([6, 1, 3], np.int32)}
    bad = {"source": np.array([0, 7, -1, 2, 4], np.int32), "dest": np.array([6, 1, 3, 7, 5], np.int32)}
    none = {"source": np.zeros(0, np.int32), "dest": np.zeros(0, np.int32)}
    for lead in ((7,), (3, 7)):
        for element, dim, v_dim in ((BF16, 64, 64), (F32, 3, 5), (I8, 7, 7), (E4M3, 48, 16), (F16, 256, 128)):
            pages = {
                part: values(rng, (*lead, 4, 2, columns), element)
                for part, columns in (("k_pages", dim), ("v_pages", v_dim))
            }
            yield Sample(f"{element}{list(lead)} D {dim} and {v_dim}", pages | ids)
            scales = {part: values(rng, (*lead, 4, 2), F32) for part in ("k_scales", "v_scales")}
            yield Sample(f"{element}{list(lead)} D {dim} and {v_dim}, scales, ids out of range", pages | scales | bad)
    pages = {part: values(rng, (2, 7, 3, 40, 128), BF16) for part in ("k_pages", "v_pages")}
    yield Sample("bf16 long pages", pages | ids)
    yield Sample("no pairs", pages | none)
    both = values(rng, (2, 7, 2, 4, 2, 16), BF16)
    yield Sample("keys and values side by side", {"k_pages": both[:, :, 0], "v_pages": both[:, :, 1]} | ids)
