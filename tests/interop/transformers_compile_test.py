"""A decoder of transformers on this library's kernels, compiled without graph breaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
dynamo = pytest.importorskip("torch._dynamo")

from baracuda_py.interop.transformers import register, swap  # noqa: E402

from .models import model, tokens  # noqa: E402


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    transformers.logging.set_verbosity_error()
    register()
    dynamo.reset()
    with bp.device("cpu"):
        yield
    dynamo.reset()


def decoder() -> tuple[Any, Any]:
    """A decoder layer whose norms, rotations, gated layer and attention are swapped, and the rotations' tables."""
    made = model("llama", "baracuda")
    swap(made)
    return made.model.layers[0], made.model.rotary_emb


def test_compile_decoder_layer_with_a_dynamic_batch() -> None:
    layer, tables = decoder()
    positions = tables(torch.zeros(1, 7, 32), torch.arange(7)[None])
    graphs: list[Any] = []

    def count(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    compiled = torch.compile(layer, fullgraph=True, backend=count)
    for batch in (2, 3, 5, 8):
        x = torch.randn(batch, 7, 32)
        with torch.no_grad():
            assert torch.equal(compiled(x, position_embeddings=positions), layer(x, position_embeddings=positions))
    assert len(graphs) == 2, "one of the first batch, one of every other"
    ops = {str(n.target).split(".")[1] for n in graphs[1].graph.nodes if str(n.target).startswith("baracuda")}
    assert ops == {"rms_norm", "rope", "attention", "silu_mul"}


def test_compile_decoder_layer_trains() -> None:
    layer, tables = decoder()
    positions = tables(torch.zeros(1, 5, 32), torch.arange(5)[None])
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, grads = torch.randn(2, 5, 32), []
    for run in (layer, compiled):
        layer.zero_grad()
        run(x, position_embeddings=positions).square().sum().backward()
        grads.append([p.grad.clone() for p in layer.parameters()])
    for own, want in zip(*grads):
        torch.testing.assert_close(own, want, rtol=1e-4, atol=1e-5)


@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def test_compile_whole_model() -> None:
    for name in ("llama", "gemma2"):
        made = model(name, "baracuda")
        compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
        for shape in ((1, 6), (2, 6), (3, 6)):
            x = tokens(*shape)
            want = made(x, use_cache=False).logits
            got = compiled(x, use_cache=False).logits
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
