"""`swap`: norms, gated layers and rotations of transformers' models on this library's kernels."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from baracuda_py.interop.transformers import register, swap  # noqa: E402

from .models import model, tokens  # noqa: E402

# Layers of each kind that are swapped in two layers of a model.
SWAPPED = {
    "llama": {"rms_norm": 5, "silu_mul": 2, "rope": 2},
    "qwen3": {"rms_norm": 9, "silu_mul": 2, "rope": 2},
    "gemma2": {"rms_norm": 9, "rope": 2},
    "phi3": {"rms_norm": 5, "silu_mul": 2, "rope": 2},
    "gpt_oss": {"rms_norm": 5, "rope": 2},
    "cohere": {"silu_mul": 2, "rope": 2},
    "glm4": {"rms_norm": 9, "silu_mul": 2, "rope": 2},
    "olmo2": {"rms_norm": 9, "silu_mul": 2, "rope": 2},
    "gpt2": {},
}


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    transformers.logging.set_verbosity_error()
    register()
    with bp.device("cpu"):
        yield


@pytest.mark.parametrize("name", SWAPPED)
@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def test_swap_keeps_logits(name: str) -> None:
    made, x = model(name, "eager"), tokens(2, 9)
    seen = torch.ones_like(x)
    seen[1, :3] = 0  # positions differ between sequences
    want, keys = made(x, attention_mask=seen).logits, list(made.state_dict())
    swapped = swap(made)
    counts: dict[str, int] = {}
    for (kind, _), count in swapped.swapped.items():
        counts[kind] = counts.get(kind, 0) + count
    assert counts == SWAPPED[name], swapped
    got = made(x, attention_mask=seen).logits
    assert list(made.state_dict()) == keys
    assert float((got - want).abs().max()) <= 2e-6 * float(want.abs().max())
    assert torch.equal(copy.deepcopy(made)(x, attention_mask=seen).logits, got)
    swapped.undo()
    swapped.undo()
    assert torch.equal(made(x, attention_mask=seen).logits, want)


def test_swap_trains() -> None:
    x, grads = tokens(2, 7), []
    for swapped in (False, True):
        made = model("llama", "baracuda" if swapped else "eager").train()
        if swapped:
            swap(made)
        made(x, labels=x).loss.backward()
        grads.append({n: p.grad for n, p in made.named_parameters()})
    for n, want in grads[0].items():
        torch.testing.assert_close(grads[1][n], want, rtol=1e-4, atol=1e-6, msg=n)


def test_swap_copies_hold_their_own_weights() -> None:
    made, x = model("llama", "eager"), tokens(1, 4)
    swap(made)
    other = copy.deepcopy(made)
    with torch.no_grad():
        before = made(x).logits
        for parameter in other.parameters():
            parameter.zero_()
        assert torch.equal(made(x).logits, before)
        assert not other(x).logits.any()


def test_swap_keeps_what_it_cannot_tell() -> None:
    made = model("gemma2", "eager")
    swapped = swap(made, "silu_mul")
    assert not swapped.swapped
    assert "Gemma2MLP" in str(swapped)
    assert "no candidate gives what the layer gives" in str(swapped)
    with torch.device("meta"):
        swapped = swap(model("llama", "eager"), "rms_norm")
    assert "meta device" in str(swapped)
    with pytest.raises(bp.InvalidProblemError, match="swap: 'conv' is no kind"):
        swap(made, "conv")


def test_swap_needs_a_device_for_the_host() -> None:
    made: Any = model("llama", "eager")
    with bp.device("cuda"):
        swapped = swap(made)
    assert not swapped.swapped
