"""Continuous batching of transformers, whose paged caches go with the names it lists: the kernels registered as "sdpa"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "ContinuousBatchingConfig"):
    pytest.skip("this transformers has no ContinuousBatchingConfig", allow_module_level=True)

from baracuda_py.interop.transformers import attention, register  # noqa: E402

from .models import model  # noqa: E402

PROMPTS = [[5, 9, 2, 33], [7, 8], [3, 4, 5, 6, 7, 8, 9]]
HOW: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False}


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    bp.set_device("cpu")  # the batches are computed in a thread of transformers, which a context does not reach
    yield
    bp.set_device(None)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options of the calls of `attention`."""
    made: list[Any] = []
    run = attention._attention
    monkeypatch.setattr(attention, "_attention", lambda *a, **k: made.append(k) or run(*a, **k))
    return made


@pytest.fixture
def sdpa() -> Iterator[None]:
    """The kernels under transformers' name "sdpa"."""
    kinds = transformers.AttentionInterface, transformers.AttentionMaskInterface
    own = [kind()["sdpa"] for kind in kinds]
    register("sdpa")
    yield
    for kind, function in zip(kinds, own):
        kind.register("sdpa", function)


def batched(made: Any) -> list[list[int]]:
    outputs = made.generate_batch(
        PROMPTS,
        generation_config=transformers.GenerationConfig(eos_token_id=-1, pad_token_id=0, **HOW),
        continuous_batching_config=transformers.ContinuousBatchingConfig(num_blocks=32, max_batch_tokens=64),
    )
    return [output.generated_tokens for output in outputs.values()]


@pytest.mark.usefixtures("sdpa")
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def test_batching_tokens_match_eager(name: str, calls: list[Any]) -> None:
    eager = model(name, "eager")
    want = [eager.generate(torch.tensor([p]), **HOW)[0, len(p) :].tolist() for p in PROMPTS]
    assert not calls
    assert batched(model(name, "sdpa")) == want
    assert len(calls) >= 2 * HOW["max_new_tokens"], "two layers at each step"
    assert all("mask" in call for call in calls)


@pytest.mark.usefixtures("sdpa")
@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def test_batching_beside_other_calls(calls: list[Any]) -> None:
    """Models that are not batched are served under that name as well."""
    ours, eager = model("llama", "sdpa"), model("llama", "eager")
    x = torch.tensor([PROMPTS[0]])
    assert torch.equal(ours.generate(x, **HOW), eager.generate(x, **HOW))
    assert calls and "mask" not in calls[0]


@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def test_batching_does_not_know_other_names() -> None:
    register()
    with pytest.raises(ValueError, match="baracuda is not supported for continuous batching"):
        batched(model("llama", "baracuda"))
