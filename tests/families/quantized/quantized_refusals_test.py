"""Bad input of quantised ops that was found from outside: refused in words that help, by the op that was called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types import BaracudaError

RNG = np.random.default_rng(5)
W, X = RNG.standard_normal((256, 48)).astype(np.float16), RNG.standard_normal((3, 256)).astype(np.float16)
Q = RNG.standard_normal((6, 256)).astype(np.float32)
ON = {"device": "cpu"}
P = bp.pack_int4(W, group_size=64, symmetric=False, **ON)
NARROW = bp.pack_int4(W[:, :16], group_size=64, symmetric=False, **ON)
GPTQ = bp.repack_int4(bp.pack_int4(W, group_size=64, **ON), "gptq", **ON)
NF4 = bp.pack_nf4(W.T.copy(), double_quant=True, **ON)
GGUF = bp.PackedGguf(bp.quantize_gguf(Q, "Q4_K", **ON), "Q4_K", (6, 256))
CODES, SCALES = bp.quantize_fp8(Q, **ON)
RAW: dict[str, Any] = {"zeros_k": P.zeros, "zeros_v": P.zeros, "group_size": 64}


class Handshake:
    """An array that only DLPack reads."""

    def __init__(self, x: np.ndarray[Any, Any]) -> None:
        self.x = x

    def __dlpack__(self, **options: Any) -> Any:
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.x.__dlpack_device__()


def mixed(**more: Any) -> Any:
    return bp.qkv_project_int4(X, NARROW, P.codes, P.codes, None, P.scales, P.scales, **RAW, **more, **ON)


ODD = np.array([64, 64])
CASES: dict[str, tuple[Callable[[], Any], str]] = {
    # widths of packed weights beside others
    "wrong widths": (lambda: mixed(widths=(5, 48, 48)), r"qkv_project_int4: widths=\(5, 48, 48\), and wq has N=16"),
    "no widths": (lambda: mixed(), "qkv_project_int4: widths are missing"),
    # options
    "group_size 0": (
        lambda: bp.matmul_int4(X, GPTQ.codes, GPTQ.scales, order=np.zeros(256, "i4"), layout="gptq", group_size=0, **ON),
        "matmul_int4: group_size=0",
    ),
    "a size of two": (lambda: bp.matmul_int4(X, P, group_size=ODD, **ON), "matmul_int4: group_size=.* is not an integer"),
    "a float of a size": (lambda: bp.matmul_int4(X, P, group_size=64.0, **ON), "group_size=64.0 is not an integer"),
    "text of a size": (lambda: bp.matmul_int4(X, P, group_size="64", **ON), "group_size='64' is not an integer"),
    "a block of two": (lambda: bp.matmul_nf4(X, NF4, block_size=ODD, **ON), "matmul_nf4: block_size=.* is not an integer"),
    "a packed size of two": (lambda: bp.pack_int4(W, group_size=ODD, **ON), "pack_int4: group_size=.* is not an integer"),
    "zero points of a kind": (lambda: bp.quantize_int8(Q, zero_points="no", **ON), "quantize_int8: zero_points='no' is neither"),
    "two of them": (lambda: bp.quantize_int8(Q, zero_points=np.array([1, 0]), **ON), "zero_points"),
    "double, perhaps": (lambda: bp.QuantizeNf4Descriptor.of(Q, double_quant="no"), "double_quant='no' is neither"),
    "a kind of nothing": (lambda: bp.dequantize_int4(P, out_dtype="", **ON), "is not an element kind"),
    "two kinds": (lambda: bp.dequantize_int4(P, out_dtype=np.array([1, 2]), **ON), "is not an element kind"),
    "an op without a name": (lambda: bp.QuantizeDescriptor.of(Q, name=""), "QuantizeDescriptor: name=''"),
    "other weights": (lambda: bp.QkvProjectDescriptor.of(X, P, P, P, weights="int3"), "QkvProjectDescriptor: weights='int3'"),
    # arrays
    "columns first": (
        lambda: bp.PackedInt4("gptq", (256, 48), 64, np.asfortranarray(GPTQ.codes), GPTQ.scales), "codes is not in C order",
    ),
    "blocks, columns first": (
        lambda: bp.PackedGguf(np.asfortranarray(GGUF.blocks), "Q4_K", (6, 256)), "blocks is not in C order",
    ),
    "bitsandbytes' shape by a handshake": (
        lambda: bp.PackedNf4((48, 256), Handshake(NF4.codes.reshape(-1, 1)), NF4.absmax, NF4.scales, NF4.offset),
        "codes has shape",
    ),
    "zero points by a handshake": (
        lambda: bp.repack_int4(bp.PackedInt4("tiled", (256, 48), 64, P.codes, P.scales, Handshake(P.zeros)), "awq", **ON),
        "repack_int4: zeros is a Handshake, which is not read on the host",
    ),
    "a dict that gathers": (
        lambda: bp.relayout_int4(GPTQ.codes, GPTQ.scales, None, {}, group_size=64, **ON), "gather",
    ),
    # which op it is for
    "NF4 for int4": (lambda: bp.matmul_int4(X, NF4, **ON), "matmul_int4: the weight is a PackedNf4: matmul_nf4 multiplies it"),
    "int4 for NF4": (lambda: bp.matmul_nf4(X, P, **ON), "matmul_nf4: the weight is a PackedInt4: matmul_int4"),
    "int4 for GGUF": (lambda: bp.matmul_gguf(X, P, "Q4_K", **ON), "matmul_gguf: the weight is a PackedInt4: matmul_int4"),
    "int4 for none": (lambda: bp.matmul(X, P, **ON), "got PackedInt4: matmul_int4 multiplies it"),
    "a style of two": (lambda: bp.qkv_project_int4(X, P, P, P, style=ODD, **ON), "qkv_project_int4: style="),
    "another K": (lambda: bp.qkv_project_int4(X[:, :128], P, P, P, **ON), "^qkv_project_int4: wq: "),
    "another group": (lambda: bp.matmul_int4(X, P.codes, P.scales, zeros=P.zeros, shape=P.shape, **ON), "layout and group_size"),
    "fp8 as int8": (lambda: bp.dequantize_int8(CODES, SCALES, **ON), "got fp8_e4m3: call dequantize_fp8"),
    "int8 as fp8": (lambda: bp.dequantize_fp8(CODES.view("u1"), SCALES, **ON), "dequantize_int8, or view the bytes as fp8_e4m3"),
    "zero points of fp8": (lambda: bp.dequantize_fp8(CODES, SCALES, np.ones(6, "i1"), **ON), "leave zeros out"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_refused_says_so(name: str) -> None:
    call, words = CASES[name]
    with pytest.raises(BaracudaError, match=words):
        call()


def test_widths_of_packed_and_other_weights_may_be_given() -> None:
    q, k, v = mixed(widths=(16, 48, 48))
    whole = bp.matmul_int4(X, P, **ON)
    assert np.array_equal(q, whole[:, :16]) and np.array_equal(k, whole) and np.array_equal(v, whole)


@pytest.mark.parametrize("device", ["h200", "ptx"])
def test_more_groups_than_a_launch_has_ctas_are_refused(device: str) -> None:
    most = np.lib.stride_tricks.as_strided(np.zeros(1, np.float16), (65536 * 32, 1), (0, 0))
    desc = bp.QuantizeInt4Descriptor.of(most, group_size=32)
    with pytest.raises(bp.UnsupportedError, match="K has 65536 groups"):
        bp.QuantizeInt4Plan.select(desc, device=device)
    assert bp.QuantizeInt4Plan.select(bp.QuantizeInt4Descriptor.of(most[:-32], group_size=32), device=device)
    whole = {"shape": (65536 * 32, 8), "packing": "gptq", "group_size": 32}
    with pytest.raises(bp.UnsupportedError, match="K has 65536 groups"):
        bp.RelayoutInt4Plan.select(bp.RelayoutInt4Descriptor(**whole), device=device)


def test_int4_order_of_torch_is_checked_on_the_host() -> None:
    torch = pytest.importorskip("torch")
    order = np.arange(256, dtype=np.int32)
    order[5] = 300
    with pytest.raises(bp.InvalidProblemError, match=r"order\[5\] is 300"):
        bp.matmul_int4(
            X, P.codes, P.scales, zeros=P.zeros, order=torch.from_numpy(order), shape=P.shape, group_size=64, **ON
        )
