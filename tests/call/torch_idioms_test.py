"""What a PyTorch user writes first: torch's dtypes, Parameters in inference, torch's names of arguments."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types import ElementKind

from .simulated import Gpus
from .torch_on_gpu import gpus, on, torch

__all__ = ["gpus"]

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
DTYPES = {
    torch.float16: bp.F16, torch.bfloat16: bp.BF16, torch.float32: bp.F32, torch.float64: bp.F64, torch.int8: bp.I8,
    torch.int64: bp.I64, torch.uint8: bp.U8, torch.bool: bp.BOOL, torch.float8_e4m3fn: bp.FP8_E4M3,
    torch.float8_e5m2: bp.FP8_E5M2, torch.complex64: bp.COMPLEX64,
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "kind"), DTYPES.items(), ids=str)
def test_torch_dtype_is_an_element_kind(dtype: Any, kind: ElementKind) -> None:
    assert ElementKind.of(dtype) is kind


@pytest.mark.parametrize("other", [torch.quint8, torch.strided, torch.device("cpu")], ids=str)
def test_torch_object_that_is_no_dtype_of_ours_is_refused(other: Any) -> None:
    with pytest.raises(bp.OperandTypeError, match="is not an element kind: give a NumPy, ml_dtypes or torch dtype"):
        ElementKind.of(other)


def test_torch_dtype_is_taken_by_functions_and_specs() -> None:
    x = torch.from_numpy(X)
    with bp.device("cpu"):
        assert bp.cast(x, torch.float16).dtype is torch.float16
        assert bp.matmul(x.half(), x.half().T, out_dtype=torch.float32).dtype is torch.float32
    assert bp.KVCacheSpec(1, 1, 8, element=torch.bfloat16).element is bp.BF16


# ---- gradients -------------------------------------------------------------------------------------------------------

INFERENCE = [torch.no_grad, torch.inference_mode]


@pytest.mark.parametrize("mode", INFERENCE, ids=lambda mode: mode.__name__)
def test_parameter_is_an_operand_in_inference(mode: Callable[[], Any]) -> None:
    layer = torch.nn.Linear(16, 5)
    x = torch.from_numpy(X)
    with bp.device("cpu"):
        for given in (layer.weight.T, layer.weight.detach().T.requires_grad_()):
            with mode():
                got = bp.matmul(x, given)
            torch.testing.assert_close(got, x @ layer.weight.detach().T)
            assert not got.requires_grad
            assert bp.matmul(x, given).requires_grad, "a call outside of inference is recorded"
            with pytest.raises(
                bp.OperandTypeError, match=r"x requires a gradient.*pass x\.detach\(\), or .* torch\.no_grad\(\)"
            ):
                bp.quantize_int8(given)


@pytest.mark.parametrize("mode", INFERENCE, ids=lambda mode: mode.__name__)
def test_parameter_takes_the_short_path_in_inference(
    gpus: Gpus, long_way: list[Any], monkeypatch: pytest.MonkeyPatch, mode: Callable[[], Any]
) -> None:
    monkeypatch.setattr(sys.modules["torch"], "is_grad_enabled", torch.is_grad_enabled, raising=False)
    leaf = on(torch.ones(64)).requires_grad_()
    for _ in range(2):
        with mode():
            bp.neg(leaf)
        with pytest.raises(bp.OperandTypeError, match="requires a gradient"):
            bp.neg(leaf)
    assert len(gpus.work) == 2
    assert [type(taken[2]["x"]) for taken in long_way] == [type(leaf)] * 3, "the first call, and what is refused"


def test_layout_that_requires_a_gradient_describes_a_problem() -> None:
    x = torch.ones(3, 4, device="meta", requires_grad=True)
    assert bp.UnaryDescriptor.of("neg", x).layout("x").shape == (3, 4)


# ---- torch's names ---------------------------------------------------------------------------------------------------

CALLS: list[tuple[Callable[[], Any], str]] = [
    (lambda: bp.sum(X, dim=0), r"sum\(\) got an unexpected keyword argument 'dim': pass axis="),
    (lambda: bp.sum(X, 0, keepdim=True), "'keepdim': pass keepdims="),
    (lambda: bp.softmax(X, dim=-1), "'dim': pass axis="),
    (lambda: bp.topk(X, 2, dim=-1), "'dim': pass axis="),
    (lambda: bp.cumsum(X, dim=0), "'dim': pass axis="),
    (lambda: bp.attention(X, X, X, is_causal=True), "'is_causal': pass causal="),
    (lambda: bp.attention(X, X, X, attn_mask=X), "'attn_mask': pass mask="),
    (lambda: bp.attention(X, X, X, dropout_p=0.0), "'dropout_p': leave it out"),
    (lambda: bp.attention(X, X, X, enable_gqa=True), "'enable_gqa': leave it out"),
    (lambda: bp.attention(X, X, X, casual=True), "'casual': pass causal="),
    (lambda: bp.var(X, ddof=1), "'ddof': pass correction="),
    (lambda: bp.sum(X, dtype="f64"), "'dtype': cast the operand"),
    (lambda: bp.gelu(X, approximate="tanh"), r"gelu\(\) got .* 'approximate': leave it out: gelu is by erf"),
    (lambda: bp.sum(X, wherever=1), "'wherever': it takes x, axis, keepdims, out"),
    (lambda: bp.rms_norm(X, (16,), X[0]), r"takes 2 positional arguments \(x, weight\), and 3 .*normalized_shape="),
    (lambda: bp.layer_norm(X, (16,), X[0]), r"layer_norm: weight is the tuple \(16,\).*normalized_shape=\(16,\)"),
    (lambda: bp.softmax(X, -1, None), r"takes 2 positional arguments \(x, axis\), and 3 were given: pass .* name: out"),
    (lambda: bp.rms_norm(X, X[0, :7]), r"weight has shape \(7,\), and x of shape \(4, 16\) does not end with it"),
    (lambda: bp.neg(bp.topk(X, 2)), "got TopkPlanResult: pass one of its arrays: .values, .indices"),
    (lambda: bp.matmul(X.astype("i1"), X.T.astype("i1")), "matmul multiplies floats: use matmul_int8"),
]


@pytest.mark.parametrize(("call", "answer"), CALLS, ids=lambda x: x if isinstance(x, str) else "")
def test_answer_names_the_argument_that_there_is(call: Callable[[], Any], answer: str) -> None:
    with bp.device("cpu"), pytest.raises(bp.BaracudaError, match=answer):
        call()


def test_signature_shows_what_a_function_takes_and_no_more() -> None:
    for name in ("sum", "matmul", "rms_norm", "write_slice"):
        kinds = {p.kind for p in inspect.signature(getattr(bp, name)).parameters.values()}
        assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
