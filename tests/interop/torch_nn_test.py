"""Modules: linear layers of few bits from floats, state dicts and GGUF tensors; their moves, copies, gradients and traces."""

from __future__ import annotations

import copy
import io
import json
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")
dynamo = pytest.importorskip("torch._dynamo")

from baracuda_py.interop.torch import nn  # noqa: E402

K, N = 128, 48


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    dynamo.reset()
    with bp.device("cpu"):
        yield
    dynamo.reset()


def linear() -> Any:
    made = torch.nn.Linear(K, N).half()
    made.bias.data.copy_(made.bias.data.bfloat16())  # of few bits, so that casts to and from bf16 keep it
    return made.requires_grad_(False)


# A layer of a linear one, an empty one for its state dict, and the largest error of a weight as a share of the largest weight.
KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[], Any], float]] = {
    "int8": (nn.Int8Linear.of, lambda: nn.Int8Linear(K, N), 0.005),
    "int8 dynamic": (lambda x: nn.Int8Linear.of(x, dynamic=True), lambda: nn.Int8Linear(K, N, dynamic=True), 0.005),
    "int4": (lambda x: nn.Int4Linear.of(x, group_size=64), lambda: nn.Int4Linear(K, N, group_size=64), 0.07),
    "nf4": (nn.Nf4Linear.of, lambda: nn.Nf4Linear(K, N, dtype=torch.float16), 0.16),
    "nf4 double": (
        lambda x: nn.Nf4Linear.of(x, double_quant=True),
        lambda: nn.Nf4Linear(K, N, double_quant=True, dtype=torch.float16),
        0.16,
    ),
    "gguf": (
        lambda x: nn.GgufLinear.of(x, format="Q4_0"),
        lambda: nn.GgufLinear(K, N, "Q4_0", dtype=torch.float16),
        0.13,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nn_linear_multiplies_its_weight(kind: str) -> None:
    source = linear()
    layer = KINDS[kind][0](source)
    weight = layer.dequantize()
    assert weight.shape == (N, K)
    bound = KINDS[kind][2] * float(source.weight.abs().max())
    assert float((weight - source.weight).abs().max()) <= bound
    x = torch.randn(2, 3, K).half()
    want = x.float() @ weight.T + source.bias
    got = layer(x)
    assert (got.dtype, got.shape) == (torch.float16, (2, 3, N))
    torch.testing.assert_close(got.float(), want, rtol=5e-3, atol=2e-2 if "dynamic" in kind else 5e-3)
    assert "in_features=128, out_features=48, bias=True" in repr(layer)


@pytest.mark.parametrize("kind", KINDS)
def test_nn_linear_state_is_saved_and_copied(kind: str) -> None:
    make, empty, _ = KINDS[kind]
    layer, x = make(linear()), torch.randn(3, K).half()
    want = layer(x)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = empty()
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), want)
    assert torch.equal(copy.deepcopy(layer)(x), want)
    arrays = {n: b.dtype for n, b in layer.named_buffers()}
    for moved in (layer.to(torch.bfloat16), layer.float(), layer.half(), layer.to("cpu")):
        assert {n: b.dtype for n, b in moved.named_buffers()} == arrays
    assert torch.equal(layer(x), want)
    assert layer.to(torch.bfloat16).bias.dtype == torch.bfloat16
    assert layer.to("meta").get_buffer(next(iter(arrays))).device.type == "meta"


@pytest.mark.parametrize("kind", KINDS)
def test_nn_linear_is_compiled_with_a_dynamic_batch(kind: str) -> None:
    layer = KINDS[kind][0](linear())
    compiled = torch.compile(torch.nn.Sequential(layer, torch.nn.ReLU()), fullgraph=True, backend="aot_eager")
    for rows in (3, 5, 6):
        x = torch.randn(rows, K).half()
        assert torch.equal(compiled(x), layer(x).relu())


@pytest.mark.parametrize("kind", KINDS)
def test_nn_linear_passes_gradients_on(kind: str) -> None:
    layer = KINDS[kind][0](linear())
    x = torch.randn(3, K).half().requires_grad_()
    layer(x).sum().backward()
    want = torch.ones(3, N) @ layer.dequantize()
    torch.testing.assert_close(x.grad.float(), want, rtol=5e-3, atol=5e-3)
    assert not list(filter(lambda p: p.requires_grad, layer.parameters()))


@pytest.mark.parametrize("kind", KINDS)
def test_nn_linear_trains_its_bias(kind: str) -> None:
    layer, grad = KINDS[kind][0](linear()), torch.randn(2, 5, N).half()
    layer.requires_grad_(True)
    for x in (torch.randn(2, 5, K).half(), torch.randn(2, 5, K).half().requires_grad_()):
        layer.bias.grad = None
        layer(x).backward(grad)
        torch.testing.assert_close(layer.bias.grad, grad.sum((0, 1)), rtol=1e-2, atol=1e-2)
        if x.requires_grad:
            torch.testing.assert_close(x.grad, grad @ layer.dequantize(torch.float16), rtol=5e-3, atol=5e-3)


def test_nn_linear_is_differentiated_by_torch_func() -> None:
    layer, x = nn.Int8Linear.of(linear()), torch.randn(5, K).half()
    wanted = layer.dequantize(torch.float32).sum(0).expand(5, K)
    for found in (
        torch.func.grad(lambda x: layer(x).sum())(x),
        torch.vmap(torch.func.grad(lambda x: layer(x).sum()))(x),
    ):
        torch.testing.assert_close(found.float(), wanted, rtol=1e-2, atol=1e-2)
    with torch.no_grad():
        held = layer(x)
    result = layer(x.requires_grad_())
    assert torch.equal(result, held)
    layer.codes.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, which makes an object of the autograd function
def test_nn_linear_passes_gradients_on_when_compiled() -> None:
    layer, first = KINDS["int4"][0](linear()), torch.nn.Linear(8, K).half()
    model, x = torch.nn.Sequential(first, layer), torch.randn(3, 8).half()
    grads = []
    for run in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        first.zero_grad()
        run(x).sum().backward()
        grads.append(first.weight.grad.clone())
    torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("layout", ["gptq", "awq"])
def test_nn_int4_reads_what_others_write(layout: str) -> None:
    weight = torch.randn(K, N).half()
    packed = bp.pack_int4(weight, group_size=32, symmetric=False, layout=layout)
    state = {
        "mlp.qweight": packed.codes.view(torch.int32), "mlp.qzeros": packed.zeros.view(torch.int32),
        "mlp.scales": packed.scales, "mlp.bias": torch.randn(N).half(),
    }  # fmt: skip
    if layout == "gptq":
        state["mlp.g_idx"] = torch.arange(K) // 32
    layer = nn.Int4Linear.of_state_dict(state, "mlp.", layout=layout)
    assert torch.equal(layer.dequantize(), bp.dequantize_int4(packed, out_dtype="f32").T)
    x = torch.randn(2, K).half()
    want = bp.matmul_int4(x, packed, bias=state["mlp.bias"])
    torch.testing.assert_close(layer(x), want, rtol=2e-3, atol=2e-3)
    if layout == "gptq":  # inputs in another order
        mixed = torch.randperm(K)
        state["mlp.g_idx"] = (torch.arange(K) // 32)[mixed]
        layer = nn.Int4Linear.of_state_dict(state, "mlp.")
        assert layer.order is not None
        packed = bp.PackedInt4("gptq", (K, N), 32, packed.codes, packed.scales, packed.zeros, state["mlp.g_idx"].int())
        assert torch.equal(layer.dequantize(), bp.dequantize_int4(packed, out_dtype="f32").T)
    with pytest.raises(bp.InvalidProblemError, match=r"no attn\.qweight"):
        nn.Int4Linear.of_state_dict(state, "attn.", layout=layout)


@pytest.mark.parametrize("double", [False, True])
def test_nn_nf4_reads_what_bitsandbytes_writes(double: bool) -> None:
    packed = bp.pack_nf4(torch.randn(N, K).half(), double_quant=double)
    about = {"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [N, K]}
    state = {"weight": packed.codes.reshape(-1, 1), "weight.absmax": packed.absmax}
    if double:
        about |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": float(packed.offset)}
        state["weight.nested_absmax"] = packed.scales
    state["weight.quant_state.bitsandbytes__nf4"] = torch.tensor(list(json.dumps(about).encode()), dtype=torch.uint8)
    layer = nn.Nf4Linear.of_state_dict(state)
    assert layer.bias is None
    assert torch.equal(layer.dequantize(), bp.dequantize_nf4(packed))
    with pytest.raises(bp.InvalidProblemError, match="quant_state"):
        nn.Nf4Linear.of_state_dict({})


def test_nn_gguf_reads_a_tensor_of_a_file() -> None:
    weight = np.random.default_rng(0).standard_normal((N, K)).astype(np.float32)
    kind = types.SimpleNamespace(name="Q8_0")
    tensor = types.SimpleNamespace(
        data=bp.quantize_gguf(weight, "Q8_0"), tensor_type=kind, shape=np.array([K, N], np.uint64)
    )
    layer = nn.GgufLinear.of_tensor(tensor)
    assert (layer.in_features, layer.out_features, layer.format) == (K, N, "Q8_0")
    assert np.array_equal(layer.dequantize().numpy(), bp.dequantize_gguf(tensor.data, "Q8_0"))


def test_nn_quantize_replaces_layers() -> None:
    model = torch.nn.ModuleDict({
        "mlp": torch.nn.Sequential(torch.nn.Linear(K, K), torch.nn.ReLU(), torch.nn.Linear(K, 40)),
        "odd": torch.nn.Linear(100, 8), "lm_head": torch.nn.Linear(K, 8),
    }).half().eval()  # fmt: skip
    stay = nn.quantize(model, "nf4")
    assert [type(layer).__name__ for layer in model["mlp"]] == ["Nf4Linear", "ReLU", "Nf4Linear"]
    assert set(stay) == {"odd", "lm_head"}
    assert stay["lm_head"] == "skipped"
    assert "100" in stay["odd"]
    assert not model["mlp"][0].training
    assert model["mlp"](torch.randn(2, K).half()).shape == (2, 40)
    with pytest.raises(bp.InvalidProblemError, match="'int3' is no kind of weight"):
        nn.quantize(model, "int3")


def test_nn_quantize_replaces_a_layer_at_both_its_names() -> None:
    tied = linear()
    model = torch.nn.ModuleDict({"a": tied, "b": tied})
    assert nn.quantize(model, "int8") == {}
    assert type(model["a"]) is nn.Int8Linear
    assert model["a"] is model["b"]


def test_nn_refuses_a_bias_of_another_shape() -> None:
    with pytest.raises(bp.InvalidProblemError, match=r"bias has shape \(3,\)"):
        nn.QuantizedLinear(4, 5, {}, torch.zeros(3))
    with pytest.raises(bp.InvalidProblemError, match=r"expected a torch\.nn\.Linear, got ReLU"):
        nn.Int8Linear.of(torch.nn.ReLU())


def test_nn_rms_norm_and_attention_match_torch() -> None:
    x, residual = torch.randn(3, 16, requires_grad=True), torch.randn(3, 16)
    norm, want = nn.RMSNorm(16), torch.nn.RMSNorm(16, eps=1e-5)
    torch.testing.assert_close(norm(x), want(x))
    out, total = norm(x, residual)
    assert torch.equal(total, x + residual)
    torch.testing.assert_close(out, want(x + residual))
    out.sum().backward()
    assert norm.weight.grad is not None
    q, k, v = (torch.randn(2, 4, 5, 8) for _ in range(3))
    made = nn.Attention(causal=True, scale=0.3)(q, k, v)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
    torch.testing.assert_close(made, theirs, rtol=1e-5, atol=1e-6)
    sinking = nn.Attention(causal=True, sinks=4, window=(2, 0))
    sinking(q, k, v).sum().backward()
    assert sinking.sinks.grad.shape == (4,)
    assert "window=(2, 0)" in repr(sinking)
