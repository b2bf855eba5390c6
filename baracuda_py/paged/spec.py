"""The contents of a paged cache and their size in bytes. Python integers do not overflow."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ..plan.fields import choice, integer
from ..types import ElementKind, ElementLike, InvalidProblemError, OperandTypeError

__all__ = ["QUANTIZED", "KVCacheSpec"]

FLOAT_KINDS = (ElementKind.F16, ElementKind.BF16, ElementKind.F32)
QUANTIZED = (ElementKind.I8, ElementKind.FP8_E4M3)
SCALINGS = ("none", "token", "head")
SCALE_BYTES = 4


@dataclass(frozen=True)
class KVCacheSpec:
    """The keys and values of a model: `layers`, `kv_heads` per layer, `head_dim` columns of a key and `v_head_dim` of a value
    (by default the same), in pages of `page_size` tokens.

    `element` is the kind that pages hold. `scaling` says how int8 and fp8_e4m3 are scaled: ``"token"``, one scale per token and
    head, which the append computes and stores (the default); ``"head"``, one given scale per head; ``"none"``, no scales
    (tokens that are int8 or fp8 already). `layout` is ``"NHD"``, pages of [page_size, kv_heads, head_dim], or ``"HND"``,
    [kv_heads, page_size, head_dim].
    """

    layers: int
    kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    page_size: int = 64
    element: ElementLike = ElementKind.BF16
    layout: str = "NHD"
    scaling: str | None = None

    def __post_init__(self) -> None:
        held = self.__dict__
        held["element"] = ElementKind.of(self.element)
        held["v_head_dim"] = self.head_dim if self.v_head_dim is None else self.v_head_dim
        if self.scaling is None:
            held["scaling"] = "token" if self.kind in QUANTIZED else "none"
        for field in fields(self):
            if field.name in ("element", "layout", "scaling"):
                continue
            held[field.name] = count = integer(held[field.name], f"KVCacheSpec: {field.name}")
            if count < 1:
                raise InvalidProblemError(f"KVCacheSpec: {field.name}={count}", "give 1 or more")
        held["layout"] = choice(("NHD", "HND"))(str(self.layout).upper(), "KVCacheSpec: layout")
        choice(SCALINGS)(self.scaling, "KVCacheSpec: scaling")
        if self.kind not in FLOAT_KINDS + QUANTIZED:
            raise OperandTypeError(f"KVCacheSpec: element={self.kind}", "give f16, bf16, f32, i8 or fp8_e4m3")
        if self.scaling != "none" and self.kind not in QUANTIZED:
            raise InvalidProblemError(
                f"KVCacheSpec: scaling={self.scaling!r} of {self.kind}", 'leave it out, or say "none"'
            )

    @property
    def kind(self) -> ElementKind:
        """`element`, as a kind."""
        return ElementKind.of(self.element)

    def page_shape(self, part: str) -> tuple[int, int, int]:
        """The shape of a page of keys (``"k"``) or values (``"v"``) in one layer."""
        columns = self.head_dim if part == "k" else int(self.v_head_dim or self.head_dim)
        inner = (self.page_size, self.kv_heads) if self.layout == "NHD" else (self.kv_heads, self.page_size)
        return (*inner, columns)

    # ---- bytes ------------------------------------------------------------------------------------------------------

    @property
    def bytes_per_token_per_layer(self) -> int:
        """The bytes of a key and a value of all heads, including their scales."""
        columns = self.head_dim + int(self.v_head_dim or self.head_dim)
        scales = 2 * SCALE_BYTES if self.scaling == "token" else 0
        return self.kv_heads * (columns * self.kind.bits // 8 + scales)

    @property
    def bytes_per_page_per_layer(self) -> int:
        return self.page_size * self.bytes_per_token_per_layer

    @property
    def bytes_per_page(self) -> int:
        """The bytes of a page in all layers."""
        return self.layers * self.bytes_per_page_per_layer

    def pages_needed(self, tokens: int) -> int:
        """The pages that a sequence of that many tokens needs."""
        return -(-self._count(tokens, "tokens") // self.page_size)

    def bytes_per_layer(self, tokens: int) -> int:
        """The bytes of the pages that a sequence of that many tokens needs in one layer."""
        return self.pages_needed(tokens) * self.bytes_per_page_per_layer

    def bytes_total(self, tokens: int) -> int:
        """The bytes of the pages that a sequence of that many tokens needs in all layers."""
        return self.pages_needed(tokens) * self.bytes_per_page

    def pages_that_fit(self, nbytes: int) -> int:
        """The number of pages that fit into that many bytes. Scales per head are not counted, because a cache has one set of
        them."""
        return self._count(nbytes, "nbytes") // self.bytes_per_page

    @staticmethod
    def _count(given: Any, what: str) -> int:
        count = integer(given, f"KVCacheSpec: {what}")
        if count < 0:
            raise InvalidProblemError(f"KVCacheSpec: {what}={count}", "give 0 or more")
        return count
