"""What both kernels of latent decoding have in common: head dims that tiles are made for, CTAs, and how many share keys."""

from __future__ import annotations

from typing import Any

from ....types import DeviceSpec
from .splits import LEAST, MOST_SPLITS, most_keys

__all__ = ["COLUMNS", "DIMS", "LEAST_COLUMNS", "ROWS", "STATIC", "alike", "ctas_of", "shares", "tiles_of"]

ROWS = 64  # of a CTA: queries of heads that share keys
DIMS, COLUMNS = (512, 576), 512  # columns of keys and of values; others are filled up with zeros
LEAST_COLUMNS = 256  # up to which others' tiles hold all columns of the values
STATIC = 2 << 10  # bytes of shared memory beside the tiles


def alike(desc: Any, keys: str, values: str) -> bool:
    """Whether keys and values have the same strides, as where values are columns of keys."""
    k, v = desc.layout(keys), desc.layout(values)
    return all(n == 1 or a == b for n, a, b in zip(k.shape[:-1], k.strides, v.strides))


def tiles_of(desc: Any) -> int:
    return int(max(1, -(-desc.most_q * desc.group // ROWS)))


def ctas_of(desc: Any, splits: int) -> int:
    return int(desc.batch * desc.kv_heads * tiles_of(desc) * splits)


def shares(desc: Any, device: DeviceSpec) -> list[int]:
    """Splits that fill the device up to four times."""
    pairs, most = max(ctas_of(desc, 1), 1), max(1, min(MOST_SPLITS, -(-most_keys(desc) // LEAST)))
    return sorted({1, most, *(min(max(n * device.sms // pairs, 1), most) for n in (1, 2, 3, 4))})
