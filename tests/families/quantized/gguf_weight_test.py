"""PackedGguf: ops take it for its blocks; what is none is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.quantized.gguf.samples import blocks
from baracuda_py.types.gguf import GgufFormat

from ...gauntlet import readable


def test_a_packed_weight_is_its_blocks() -> None:
    rng = np.random.default_rng(15)
    made = blocks(rng, GgufFormat.Q4_K, 26).reshape(13, -1)
    weight, x = bp.PackedGguf(made, "Q4_K", (13, 512)), rng.standard_normal((2, 512)).astype(np.float16)
    assert weight.format is GgufFormat.Q4_K and weight.bits_per_weight == 4.5
    for given in ((x, weight), (x, weight, "q4_k")):
        assert np.array_equal(bp.matmul_gguf(*given, device="ptx"), bp.matmul_gguf(x, made, "Q4_K", device="ptx"))
    rounds = bp.PlanPreference(variant="q8_activation")
    rounded = [
        bp.matmul_gguf(x, weight, pref=replace(rounds, math="int8"), device="ptx"),
        bp.matmul_gguf(x, made, "Q4_K", math="int8", pref=rounds, device="ptx"),
    ]
    assert np.array_equal(*rounded) and not np.array_equal(rounded[0], bp.matmul_q4k(x, weight, device="ptx"))
    assert np.array_equal(bp.matmul_q4k(x, weight, device="cpu"), bp.matmul_q4k(x, made, device="cpu"))
    wide = bp.dequantize_gguf(weight, out_dtype="f16", device="ptx")
    assert np.array_equal(wide, bp.dequantize_gguf(made, "Q4_K", out_dtype="f16", device="ptx"))


def weight(**given: Any) -> bp.PackedGguf:
    return bp.PackedGguf(**({"blocks": np.zeros((13, 288), np.uint8), "format": "Q4_K", "shape": (13, 512)} | given))


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"shape": (14, 512)}, bp.BufferTooSmallError, "3744 bytes, and weights (14, 512) as Q4_K take 4032"),
        ({"shape": (12, 512)}, bp.InvalidProblemError, "have (12, 288)"),
        ({"shape": (512, 13)}, bp.InvalidProblemError, "pad=True"),
        ({"blocks": np.zeros(13 * 288, np.uint8)}, bp.InvalidProblemError, "have (13, 288)"),
        ({"shape": ()}, bp.InvalidProblemError, "(N, K)"),
        ({"shape": (-13, 512)}, bp.InvalidProblemError, "(N, K)"),
        ({"shape": 13}, bp.InvalidProblemError, "extents"),
        ({"format": "Q5_K"}, bp.BufferTooSmallError, "take 4576"),
        ({"format": "Q4_L"}, bp.InvalidProblemError, "q4_k"),
        ({"blocks": None}, bp.InvalidProblemError, "blocks is missing"),
        ({"blocks": np.zeros((13, 288), np.int8)}, bp.OperandTypeError, "u8"),
    ],
)
def test_what_a_weight_is_not(given: dict[str, Any], error: type[bp.BaracudaError], says: str) -> None:
    with pytest.raises(error) as caught:
        weight(**given)
    readable(caught.value, "PackedGguf", says)
