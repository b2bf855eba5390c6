"""Every op as a custom op of torch: its schema, fake tensors, gradients' registration and tracing, checked by torch itself."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")

from baracuda_py.interop.torch.library import TWIN, overload  # noqa: E402
from baracuda_py.interop.torch.schema import signature_of  # noqa: E402
from baracuda_py.plan.registry import all_ops  # noqa: E402

from .tensors import calls_of  # noqa: E402

OPS = tuple(all_ops())
# What opcheck cannot compare: torch adds no float8, rows of `nonzero` behind the count mean nothing, and torch traces no op that
# writes to operands and returns a list.
UNCOMPARED = {
    "attention_fp8": ("test_schema",),
    "dequantize_fp8": ("test_schema", "test_aot_dispatch_dynamic"),
    "quantize_fp8": ("test_aot_dispatch_dynamic",),
    "nonzero": ("test_aot_dispatch_dynamic",),
    "batch_norm_running": ("test_aot_dispatch_dynamic",),
}
CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


@pytest.mark.parametrize("name", OPS)
def test_torch_ops_pass_opcheck(name: str) -> None:
    signature = signature_of(name)
    checks = tuple(check for check in CHECKS if check not in UNCOMPARED.get(name, ()))
    calls = list(calls_of(name, 2))
    assert calls, "no sample of the op is one that torch can express"
    for given in calls:
        assert set(
            torch.library.opcheck(overload(name), tuple(signature.lowered(given)), test_utils=checks).values()
        ) == {"SUCCESS"}


@pytest.mark.parametrize("name", OPS)
def test_torch_ops_give_what_functions_give(name: str) -> None:
    signature = signature_of(name)
    (given,) = calls_of(name, 1)
    copies = [{n: x.clone() if n in signature.written else x for n, x in given.items()} for _ in range(2)]
    wanted = signature.call({**copies[0], "device": "cpu"})
    made = overload(name)(*signature.lowered(copies[1]))
    results = wanted if isinstance(wanted, tuple) else (wanted,)
    fresh = [x for x in results if not any(x is copies[0].get(n) for n in signature.written)]
    made = [] if made is None else made if isinstance(made, list) else [made]
    assert len(made) == len(fresh)
    for got, want in (*zip(made, fresh), *((copies[1][n], copies[0][n]) for n in signature.written if n in given)):
        assert got.dtype == want.dtype
        assert _bits(got[:0] if name == "nonzero" else got) == _bits(want[:0] if name == "nonzero" else want)


@pytest.mark.parametrize("name", [name for name in OPS if not signature_of(name).written])
def test_torch_kernels_give_what_functions_give(name: str) -> None:
    """Those that autograd calls on a GPU when nothing is recorded: the dispatcher leaves trailing defaults out."""
    signature, noted = signature_of(name), []
    kernel = signature.kernel(lambda arguments, _made: noted.append(signature.raised(arguments)))
    for passed in calls_of(name, 2):
        given = {n: x for n, x in passed.items() if n not in signature.given_outputs}
        wanted = signature.call({**given, "device": "cpu"})
        arguments = signature.lowered({**given, "device": "cpu"})
        made = [kernel(*arguments), kernel(*arguments)]
        with bp.device("cpu"):
            arguments = signature.lowered(given)
            while arguments and arguments[-1] is None:
                arguments.pop()
            made.append(kernel(*arguments))
        results = list(wanted) if isinstance(wanted, tuple) else [wanted]
        for got in made:
            assert isinstance(got, torch.Tensor if signature.single else list)
            parts = [got] if signature.single else got
            assert len(parts) == len(results)
            for x, y in zip(parts, results):
                assert (x.dtype, x.shape) == (y.dtype, y.shape)
                assert _bits(x[:0] if name == "nonzero" else x) == _bits(y[:0] if name == "nonzero" else y)
        if not signature.single:
            assert {n for n, x in given.items() if x is not None} <= noted[-1].keys()
    assert len(noted) <= 4


@pytest.mark.parametrize("name", [name for name in OPS if signature_of(name).written])
def test_torch_ops_that_write_have_twins(name: str) -> None:
    signature = signature_of(name)
    (given,) = calls_of(name, 1)
    before = {n: given[n].clone() for n in signature.written if given.get(n) is not None}
    twin = overload(name + TWIN)
    arguments = tuple(signature.lowered(given))
    made = twin(*arguments)
    assert all(torch.equal(given[n], x) for n, x in before.items()), "a twin writes to no operand"
    overload(name)(*arguments)
    assert all(_bits(x) == _bits(given[n]) for x, n in zip(made, before))
    assert set(torch.library.opcheck(twin, arguments).values()) == {"SUCCESS"}


def test_torch_ops_are_found_by_name() -> None:
    for name in OPS:
        assert getattr(torch.ops.baracuda, name).default is overload(name)
    assert torch.equal(torch.ops.baracuda.relu(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))


def test_torch_ops_call_few_frames_of_python() -> None:
    """Host time by what takes it, and no clock: of a custom op, autograd's kernel and the op's own are all that is added."""
    from baracuda_py.interop.torch import differentiate

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    kernel = differentiate._kernels[overload("add")][differentiate._bits("CUDA")]
    with bp.device("cpu"):
        assert _frames(lambda: kernel(x, y)) == _frames(lambda: bp.add(x, y)) + 1


def _frames(call: Any) -> int:
    """How many functions of Python a call runs, once it was made before."""
    found: list[str] = []
    call()
    sys.setprofile(lambda frame, event, _: found.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(found)


def test_torch_ops_reach_kernels_without_redispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second pass through the dispatcher takes as long as the rest of a custom op's call."""

    def refused() -> None:
        raise AssertionError("the call was dispatched again below autograd")

    x, y = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    monkeypatch.setattr(torch._C, "_AutoDispatchBelowAutograd", refused)
    with torch.no_grad():
        assert torch.equal(torch.ops.baracuda.add(x, y), x + y)
    torch.ops.baracuda.add(x, y).sum().backward()
    assert y.grad is not None
    assert torch.equal(y.grad, torch.ones(3, 4))


def test_torch_schemas_mutate_only_what_ops_write() -> None:
    mutated = {name: signature_of(name).written for name in OPS if signature_of(name).written}
    assert set(mutated) == {
        "write_slice", "kv_append", "paged_kv_append", "copy_pages", "fill", "fill_eye", "fill_arange", "fill_linspace",
        "fill_uniform", "fill_normal", "fill_exponential", "fill_gumbel", "fill_truncated_normal", "fill_random_bits",
        "fill_bernoulli", "fill_integers", "take_position", "batch_norm_running", "adam_update", "adamw_update",
        "sgd_update", "rmsprop_update", "adagrad_update", "lion_update", "lamb_update", "lars_update", "adafactor_update",
        "muon_update", "adam8bit_update", "adamw8bit_update", "lion8bit_update", "sgd8bit_update",
        "rmsprop8bit_update", "adagrad8bit_update", "gradient_clip",
    }  # fmt: skip
    for name in OPS:
        schema = overload(name)._schema
        assert schema.is_mutable == (name in mutated)
        assert not any(r.alias_info for r in schema.returns)


def test_codec_restores_arguments() -> None:
    from baracuda_py.interop.codec import decode, encode

    scaling = bp.RopeScaling.linear(16, 2.0)
    for value, wanted in (
        (torch.float16, bp.F16), ("bf16", "bf16"), ((4, None), (4, None)), ([1, [2, 3]], (1, (2, 3))), (True, True),
        (bp.PlanPreference(math="tf32", batch_invariant=True), bp.PlanPreference(math="tf32", batch_invariant=True)),
    ):  # fmt: skip
        text = encode(value, "a test")
        assert text is not None
        assert decode(text) == wanted
    text = encode(scaling, "a test")
    assert text is not None
    assert (decode(text).inv_freq == scaling.inv_freq).all()
    assert decode(text) is decode(text)
    with pytest.raises(bp.InvalidProblemError, match="cannot be an argument"):
        encode(object(), "a test")


def _bits(x: Any) -> bytes:
    return bytes(x.detach().contiguous().flatten().view(torch.uint8).numpy())


def test_torch_is_imported_by_nobody_but_the_caller() -> None:
    code = (
        "import sys, numpy as np, baracuda_py as bp\n"
        "bp.matmul(np.ones((2, 3)), np.ones((3, 2)), device='cpu')\n"
        "assert 'torch' not in sys.modules and 'baracuda_py.interop' not in sys.modules\n"
        "import torch\n"
        "bp.softmax(torch.ones(2, 3), device='cpu')\n"
        "assert 'baracuda_py.interop.torch' not in sys.modules, 'a call that torch need not see defines no op'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
