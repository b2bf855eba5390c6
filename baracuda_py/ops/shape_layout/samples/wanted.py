"""Copies: runs out of phase, ragged tiles, batches of transposed matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....samples.sample import Sample
from ....samples.wanted import Problems, bf16, f16, f32

problems = Problems()
rng, n, want = problems.rng, problems.normal, problems.want


def big(shape: tuple[int, ...]) -> Any:
    """Random bytes."""
    return rng.integers(0, 255, shape, np.uint8)


# ---- copies
want(
    "append-nothing",
    "kv_append",
    Sample(
        "f16 0 tokens",
        {
            "k_cache": n((4, 3, 17, 8), f16),
            "v_cache": n((4, 3, 17, 8), f16),
            "k": n((4, 3, 0, 8), f16),
            "v": n((4, 3, 0, 8), f16),
            "positions": np.array([0, 17, 18, -1]),
        },
    ),
)
want(
    "runs-out-of-phase",
    "write_slice",
    Sample(
        "u8 rows out of phase, gaps on both sides",
        {"dest": big((9, 150)), "source": big((7, 140))[:, 3:130]},
        {"ranges": ((1, 8), (1, 128))},
    ),
    "vectorised",
    ("*unroll=1", "*unroll=2", "*unroll=4"),
)
want(
    "runs-to-an-aligned-end",
    "write_slice",
    Sample(
        "u8 rows, the last to a multiple of 16",
        {"dest": big((9, 150)), "source": big((7, 117))},
        {"ranges": ((1, 8), (1, 118))},
    ),
    "vectorised",
    ("*unroll=1",),
)
want(
    "runs-long",
    "write_slice",
    Sample(
        "u8 long rows", {"dest": big((3, 3011)), "source": big((2, 3000))[:, 2:2990]}, {"ranges": ((1, 3), (5, 2993))}
    ),
    "vectorised",
    ("*unroll=2",),
)
want(
    "runs-aligned",
    "write_slice",
    Sample("f32 aligned rows", {"dest": n((40, 64)), "source": n((30, 32))}, {"ranges": ((3, 33), (16, 48))}),
    "vectorised",
    ("grain=16*unroll=2",),
)
want(
    "elements-many",
    "contiguize",
    Sample("u16 70x90 every other", {"x": np.arange(70 * 180, dtype=np.uint16).reshape(70, 180)[:, ::2]}),
    "elements",
    ("4", "1"),
)
for dt in (bf16, np.dtype(np.uint8), f32):
    src = n((65, 80)).astype(dt)[:, :63].T
    want(
        f"transpose-ragged-{dt}",
        "write_slice",
        Sample(
            f"{dt} ragged transpose", {"dest": n((72, 80)).astype(dt), "source": src}, {"ranges": ((0, 63), (0, 65))}
        ),
        "transpose",
        ("8x8 access_bytes=8", "8x8 access_bytes=4")
        if dt.itemsize == 1
        else ("8x8 access_bytes=16", "8x8 access_bytes=8", "16x16 access_bytes=16"),
    )
want(
    "transpose-tile-batch",
    "contiguize",
    Sample("bf16 tiles of a batch", {"x": n((3, 130, 71), bf16).transpose(0, 2, 1)}),
    "transpose_tile",
)
want(
    "transpose-batch",
    "contiguize",
    Sample("f32 batch, two tiles", {"x": n((3, 136, 72)).transpose(0, 2, 1)}),
    "transpose",
    ("8x8 access_bytes=16",),
)

# ---- appends: more sequences than threads
places = rng.integers(-1, 4, 700)
caches = {f"{x}_cache": n((700, 1, 2, 8), f16) for x in "kv"}
nothing = {"k": n((700, 1, 0, 8), f16), "v": n((700, 1, 0, 8), f16), "positions": places}
want("append-nothing-to-many", "kv_append", Sample("f16 0 tokens, 700 sequences", {**caches, **nothing}))
want("append-wrap-nothing", "kv_append", Sample("f16 0 tokens, wrapped", {**caches, **nothing}, {"wrap": True}))
