"""transformers' models with `attn_implementation="baracuda"` against eager attention: logits, tokens, gradients, masks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from baracuda_py.interop.transformers import attention, attention_forward, attention_mask, register  # noqa: E402

from .models import MODELS, model, tokens  # noqa: E402

SHARE = 2e-6  # of the largest logit: two layers' rounding in f32, four times what was seen


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    transformers.logging.set_verbosity_error()
    register()
    with bp.device("cpu"):
        yield


def assert_close(got: Any, want: Any, seen: Any = None) -> None:
    error = (got - want).abs()
    if seen is not None:
        error = error * seen.unsqueeze(-1)
    assert float(error.max()) <= SHARE * float(want.abs().max())


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def test_transformers_logits_and_tokens_match_eager(name: str) -> None:
    eager, ours, x = model(name, "eager"), model(name, "baracuda"), tokens(2, 9)
    assert_close(ours(x).logits, eager(x).logits)
    seen = torch.ones_like(x)
    seen[1, :3] = 0
    assert_close(ours(x, attention_mask=seen).logits, eager(x, attention_mask=seen).logits, seen)
    how: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "attention_mask": seen}
    want = eager.generate(x, **how)
    assert torch.equal(ours.generate(x, **how), want)
    static = {"cache_implementation": "static", "disable_compile": True}
    assert torch.equal(ours.generate(x, **how, **static), want)


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "deepseek_v3"])
@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def test_transformers_masks_of_their_own_are_taken(name: str) -> None:
    transformers.AttentionInterface.register("baracuda_theirs", attention_forward)
    transformers.AttentionMaskInterface.register("baracuda_theirs", transformers.masking_utils.eager_mask)
    x = tokens(2, 9)
    assert_close(model(name, "baracuda_theirs")(x).logits, model(name, "eager")(x).logits)


@pytest.mark.parametrize("name", ["llama", "gpt_oss"])
def test_transformers_gradients_match_eager(name: str) -> None:
    x, grads = tokens(2, 7), []
    for how in ("eager", "baracuda"):
        made = model(name, how).train()
        made(x, labels=x).loss.backward()
        grads.append({n: p.grad for n, p in made.named_parameters() if p.grad is not None})
    assert grads[0].keys() == grads[1].keys()
    if name == "gpt_oss":
        assert any("sinks" in n for n in grads[0])
    for n, want in grads[0].items():
        torch.testing.assert_close(grads[1][n], want, rtol=1e-4, atol=1e-6, msg=n)


@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def test_transformers_decode_is_attention_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    run = attention._attention_decode
    monkeypatch.setattr(attention, "_attention_decode", lambda *a, **k: calls.append(k) or run(*a, **k))
    for static in (False, True):
        calls.clear()
        how = {"cache_implementation": "static", "disable_compile": True} if static else {}
        model("gemma2", "baracuda").generate(tokens(1, 5), max_new_tokens=4, do_sample=False, **how)
        assert len(calls) == 2 * 3, "two layers, and a token that prefill made"
        assert all(call["softcap"] == 2.0 for call in calls)
        assert any("lengths" in call for call in calls) is static


@pytest.mark.filterwarnings("ignore:`past_key_values`:FutureWarning")
@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def test_transformers_on_emulated_kernels() -> None:
    eager, ours, x = model("gpt_oss", "eager"), model("gpt_oss", "baracuda"), tokens(1, 5)
    want = eager(x, use_cache=True)
    with bp.device("ptx"):
        got = ours(x, use_cache=True)
        step = ours(tokens(1, 1), past_key_values=got.past_key_values).logits
    assert_close(got.logits, want.logits)
    assert_close(step, eager(tokens(1, 1), past_key_values=want.past_key_values).logits)


class Layer:
    is_causal = True


def operands(queries: int, keys: int) -> tuple[Any, ...]:
    torch.manual_seed(1)
    return torch.randn(2, 4, queries, 8), torch.randn(2, 2, keys, 8), torch.randn(2, 2, keys, 6)


def dense(mask: Any) -> Any:
    """A mask that remembers nothing."""
    return None if mask is None else mask.clone()


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize(("queries", "keys", "offset"), [(5, 5, 0), (3, 7, 4), (1, 7, 6), (4, 9, 0), (1, 9, 4)])
def test_transformers_bounds_are_what_the_mask_says(window: int | None, queries: int, keys: int, offset: int) -> None:
    utils = transformers.masking_utils
    function = utils.causal_mask_function if window is None else utils.sliding_window_causal_mask_function(window)
    how = {"batch_size": 2, "q_length": queries, "kv_length": keys, "mask_function": function}
    truth = utils.sdpa_mask(**how, q_offset=offset, allow_is_causal_skip=False)
    starts = [offset, torch.tensor(offset)] if queries == 1 else [offset]
    for start in starts:
        mask = attention_mask(**how, q_offset=start)
        assert (mask is None) is (offset == keys - queries and window is None and isinstance(start, int))
        assert mask is None or (torch.equal(mask, truth) and mask.bounds.window == window)
        got = attention_forward(Layer(), *operands(queries, keys), mask)[0]
        want = attention_forward(Layer(), *operands(queries, keys), dense(truth))[0]
        torch.testing.assert_close(got, want)


def test_transformers_masks_keep_what_bounds_cannot_say() -> None:
    utils = transformers.masking_utils
    how = {"batch_size": 2, "q_length": 5, "kv_length": 5}
    padding = torch.ones(2, 5, dtype=torch.bool)
    assert attention_mask(**how, attention_mask=padding) is None
    padding[1, 0] = False
    chunked = utils.chunked_causal_mask_function(2, torch.zeros(2, dtype=torch.int64))
    for more in ({"attention_mask": padding}, {"mask_function": chunked}, {"allow_is_causal_skip": False}):
        mask = attention_mask(**how, **more)
        assert mask.dtype == torch.bool
        assert not hasattr(mask, "bounds")


def test_transformers_position_bias_is_added() -> None:
    q, k, v = operands(4, 4)
    bias = torch.randn(1, 4, 4, 4)
    got = attention_forward(Layer(), q, k, v, None, position_bias=bias)[0]
    k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    seen = torch.ones(4, 4, dtype=torch.bool).tril()
    scores = (q @ k.mT / 8**0.5 + bias).masked_fill(~seen, -torch.inf)
    torch.testing.assert_close(got, (scores.softmax(-1) @ v).transpose(1, 2))


def test_transformers_attention_refuses_what_it_cannot() -> None:
    with pytest.raises(bp.UnsupportedError, match=r"dropout=0.1[\s\S]*attention_dropout"):
        attention_forward(Layer(), *operands(2, 2), None, dropout=0.1)
    with pytest.raises(bp.UnsupportedError, match=r"output_attentions[\s\S]*eager"):
        attention_forward(Layer(), *operands(2, 2), None, output_attentions=True)
