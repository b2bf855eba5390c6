"""`from_pretrained(..., quantization_config=BaracudaConfig(...))` against `nn.quantize` of a model; saved and loaded again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from baracuda_py.interop.torch import nn  # noqa: E402
from baracuda_py.interop.transformers import BaracudaConfig, swap  # noqa: E402

from .models import model, tokens  # noqa: E402

SIZES = {"hidden_size": 64, "intermediate_size": 96}  # 96 is no multiple of nf4's blocks
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "int8": ("int8", {}),
    "int8 dynamic": ("int8", {"dynamic": True}),
    "int4": ("int4", {"group_size": 32}),
    "int4 symmetric": ("int4", {"group_size": 32, "symmetric": True}),
    "nf4": ("nf4", {}),
    "nf4 double": ("nf4", {"double_quant": True}),
    "gguf": ("gguf", {"format": "Q4_0"}),
}
CASES = [("llama", kind) for kind in KINDS]
# Biases of q, k, v; tied embeddings; experts, which have other names in the checkpoint.
CASES += [(name, kind) for name in ("qwen2", "gemma2", "mixtral") for kind in ("int8", "int4", "nf4", "gguf")]
Auto = transformers.AutoModelForCausalLM


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with bp.device("cpu"), torch.no_grad():
        yield


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a model's checkpoint in bf16, by name."""
    root = tmp_path_factory.mktemp("models")

    def folder(name: str) -> Path:
        path = root / name
        if not path.exists():
            model(name, "eager", **SIZES).to(torch.bfloat16).save_pretrained(path)
        return path

    return folder


def kept(made: Any) -> dict[str, str]:
    return made.config.quantization_config.kept  # type: ignore[no-any-return]


def generated(made: Any) -> Any:
    return made.generate(tokens(2, 5), max_new_tokens=4, do_sample=False)


def assert_same_bits(got: Any, want: Any) -> None:
    a, b = got.state_dict(), want.state_dict()
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        assert torch.equal(a[name], b[name]), name


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_quantizer_loads_what_quantize_makes(name: str, kind: str, saved: Any, tmp_path: Path) -> None:
    weights, options = KINDS[kind]
    made = Auto.from_pretrained(saved(name), quantization_config=BaracudaConfig(weights, **options))
    want = Auto.from_pretrained(saved(name))
    assert kept(made).keys() == nn.quantize(want, weights, **options).keys()
    assert_same_bits(made, want)
    types = {n: type(m).__name__ for n, m in made.named_modules()}
    assert types == {n: type(m).__name__ for n, m in want.named_modules()}
    assert types["model.layers.0.self_attn.q_proj"].lower() == f"{weights}linear"
    assert types["lm_head"] == "Linear"
    x = tokens(2, 9)
    logits = want(x).logits
    assert torch.equal(made(x).logits, logits)
    assert torch.equal(made(x).logits, logits), "a second call"
    assert torch.equal(generated(made), generated(want))
    made.save_pretrained(tmp_path)
    again, info = Auto.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert kept(again) == kept(made)
    assert_same_bits(again, made)
    assert torch.equal(again(x).logits, logits)
    assert torch.equal(generated(again), generated(want))
    assert not [n for n, p in again.named_parameters() if p.requires_grad and n.endswith("proj.bias")]


def test_quantizer_leaves_tied_weights_tied(saved: Any, tmp_path: Path) -> None:
    made = Auto.from_pretrained(saved("gemma2"), quantization_config=BaracudaConfig("int8", skip=[]))
    assert kept(made) == {"lm_head": "its weight is tied to another"}
    made.save_pretrained(tmp_path)
    for each in (made, Auto.from_pretrained(tmp_path)):
        assert each.lm_head.weight is each.model.embed_tokens.weight


def test_quantizer_skips_by_the_end_of_names(saved: Any) -> None:
    config = BaracudaConfig("int8", skip=["mlp.down_proj", "layers.1.self_attn.q_proj"])
    made = Auto.from_pretrained(saved("llama"), quantization_config=config)
    downs = {f"model.layers.{i}.mlp.down_proj" for i in (0, 1)}
    assert kept(made).keys() == {*downs, "model.layers.1.self_attn.q_proj"}
    assert isinstance(made.lm_head, nn.Int8Linear), "it is not among those named"
    assert not config.kept, "the caller's config is not written"


def test_quantizer_names_shapes_that_stay(saved: Any) -> None:
    made = Auto.from_pretrained(saved("llama"), quantization_config=BaracudaConfig("nf4"))
    reasons = kept(made)
    assert reasons["lm_head"] == "skipped"
    assert "96" in reasons["model.layers.0.mlp.down_proj"]
    none = r"no layer of LlamaForCausalLM can have int4 weights[\s\S]*group_size=7"
    with pytest.raises(bp.InvalidProblemError, match=none):
        Auto.from_pretrained(saved("llama"), quantization_config=BaracudaConfig("int4", group_size=7))
    with pytest.raises(bp.InvalidProblemError, match="no layer of GPT2LMHeadModel"):  # it has no torch.nn.Linear
        Auto.from_pretrained(saved("gpt2"), quantization_config=BaracudaConfig("int8"))


def test_quantizer_dtypes(saved: Any, tmp_path: Path) -> None:
    for weights in ("int8", "int4", "nf4"):
        with pytest.raises(bp.OperandTypeError, match=rf"{weights} weights with dtype=torch.float32[\s\S]*float16"):
            Auto.from_pretrained(saved("llama"), dtype=torch.float32, quantization_config=BaracudaConfig(weights))
    made = Auto.from_pretrained(saved("llama"), dtype=torch.float32, quantization_config=BaracudaConfig("gguf"))
    assert made(tokens(1, 3)).logits.dtype == torch.float32
    half = Auto.from_pretrained(saved("qwen2"), dtype="float16", quantization_config=BaracudaConfig("nf4"))
    layer = half.model.layers[0].self_attn.q_proj
    assert (half.dtype, layer.bias.dtype, layer.absmax.dtype) == (torch.float16, torch.float16, torch.float32)
    four = Auto.from_pretrained(saved("qwen2"), quantization_config=BaracudaConfig("int4", group_size=32))
    four.save_pretrained(tmp_path)
    other = Auto.from_pretrained(tmp_path, dtype=torch.float16)
    one, two = (m.model.layers[0].self_attn.q_proj for m in (four, other))
    assert torch.equal(one.dequantize(), two.dequantize()), "the weight is not rounded again"
    assert two.bias.dtype == torch.float16
    assert other(tokens(1, 3)).logits.dtype == torch.float16


def test_quantizer_loads_shards_and_bodies(saved: Any, tmp_path: Path) -> None:
    made = Auto.from_pretrained(saved("llama"), quantization_config=BaracudaConfig("nf4"))
    made.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_same_bits(Auto.from_pretrained(tmp_path), made)
    assert_same_bits(transformers.AutoModel.from_pretrained(tmp_path), made.model)


def test_quantizer_keeps_what_a_class_keeps(tmp_path: Path) -> None:
    sizes = {"vocab_size": 61, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
    kind = transformers.T5ForConditionalGeneration  # its class initialises the weights of the layers below
    kind(transformers.T5Config(**sizes)).to(torch.bfloat16).save_pretrained(tmp_path)
    made = kind.from_pretrained(tmp_path, quantization_config=BaracudaConfig("int8"))
    reasons = {name.rpartition(".")[2]: why for name, why in kept(made).items()}
    assert reasons.keys() == {"wo", "lm_head"}
    assert reasons["wo"] == "the model's class keeps it in more bits"
    layer = made.encoder.block[0].layer[0].SelfAttention.q
    assert isinstance(layer, nn.Int8Linear)
    assert not hasattr(layer, "weight")
    want = kind.from_pretrained(tmp_path)
    nn.quantize(want, "int8", skip=("wo", "lm_head"))
    assert_same_bits(made, want)


def test_quantizer_and_swap_go_together(saved: Any) -> None:
    made = Auto.from_pretrained(saved("llama"), quantization_config=BaracudaConfig("int8"))
    x, want = tokens(2, 9), made(tokens(2, 9)).logits
    swapped = swap(made)
    assert dict(swapped.swapped) == {
        ("rms_norm", "LlamaRMSNorm"): 5, ("silu_mul", "LlamaMLP"): 2, ("rope", "LlamaAttention"): 2,
    }  # fmt: skip
    torch.testing.assert_close(made(x).logits, want, rtol=0.05, atol=0.05)


def test_quantizer_keeps_new_heads(saved: Any) -> None:
    config = BaracudaConfig("int8")
    kind = transformers.AutoModelForSequenceClassification
    made = kind.from_pretrained(saved("llama"), quantization_config=config, num_labels=3)
    assert type(made.score) is torch.nn.Linear
    assert kept(made) == {"score": "the checkpoint has no weight for it alone"}
    assert isinstance(made.model.layers[0].mlp.up_proj, nn.Int8Linear)


def test_quantizer_saves_its_config_as_json(saved: Any, tmp_path: Path) -> None:
    config = BaracudaConfig("gguf", format=bp.GgufFormat.Q4_0, skip=["lm_head"])
    made = Auto.from_pretrained(saved("llama"), quantization_config=config)
    made.save_pretrained(tmp_path)
    held = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    wanted = {"quant_method": "baracuda", "weights": "gguf", "format": "Q4_0", "skip": ["lm_head"]}
    assert held == {**wanted, "kept": {"lm_head": "skipped"}}
    assert BaracudaConfig.from_dict(held).to_dict() == dict(BaracudaConfig(**held)) == held


def test_quantizer_is_undone(saved: Any) -> None:
    made = Auto.from_pretrained(saved("qwen2"), quantization_config=BaracudaConfig("int8"))
    layer = made.model.layers[0].self_attn.q_proj
    weight, bias = layer.dequantize(torch.bfloat16), layer.bias
    made.dequantize()
    plain = made.model.layers[0].self_attn.q_proj
    assert type(plain) is torch.nn.Linear
    assert not plain.training
    assert torch.equal(plain.weight, weight)
    assert torch.equal(plain.bias, bias)
    assert not hasattr(made.config, "quantization_config")


def test_quantizer_refuses_training(saved: Any) -> None:
    check = pytest.importorskip("transformers.trainer_utils").validate_quantization_for_training
    made = Auto.from_pretrained(saved("llama"), quantization_config=BaracudaConfig("int4", group_size=32))
    with pytest.raises(bp.UnsupportedError, match=r"int4 weights is not trained[\s\S]*without a quantization_config"):
        check(made)


def test_quantizer_needs_a_device_for_the_host(saved: Any) -> None:
    with bp.device("cuda"), pytest.raises(bp.BaracudaError, match="device"):
        Auto.from_pretrained(saved("llama"), quantization_config=BaracudaConfig("int8"))


def test_quantizer_config_refuses_what_it_does_not_know() -> None:
    for config, match in (
        ({"weights": "int3"}, "'int3' is no kind of weight"),
        ({"weights": "nf4", "group_size": 32}, "nf4 has no option 'group_size'[\\s\\S]*block_size, double_quant"),
        ({"weights": "gguf", "format": "Q9"}, "Q9"),
        ({"skip": "lm_head"}, r"skip is the text 'lm_head'[\s\S]*\['lm_head'\]"),
        ({"quant_method": "gptq"}, "quant_method 'gptq'"),
    ):
        with pytest.raises(bp.BaracudaError, match=match):
            BaracudaConfig(**config)


def test_quantizer_models_run_in_threads(saved: Any) -> None:
    made, x, got = Auto.from_pretrained(saved("llama"), quantization_config=BaracudaConfig("nf4")), tokens(2, 9), {}

    def call(i: int) -> None:
        with bp.device("cpu"), torch.no_grad():
            got[i] = made(x).logits

    threads = [threading.Thread(target=call, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert torch.equal(got[0], got[1])
    assert torch.equal(got[0], made(x).logits)
