"""Small models of transformers' architectures with random weights, made from configurations."""

from __future__ import annotations

from typing import Any

__all__ = ["MODELS", "WINDOWED", "model", "tokens"]

TINY: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": None,
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
WINDOW = {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1}
MLA = {
    "q_lora_rank": 12, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12, "head_dim": 8,
    "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4,
}  # fmt: skip

# The class of the configuration, and what differs from TINY. Attention layers of "windowed" models have a sliding window.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "mistral": ("MistralConfig", WINDOW),
    "mixtral": ("MixtralConfig", {**EXPERTS, **WINDOW}),
    "qwen2": ("Qwen2Config", WINDOW),
    "qwen3": ("Qwen3Config", {}),
    "qwen3_moe": ("Qwen3MoeConfig", EXPERTS),
    "gemma": ("GemmaConfig", {}),
    "gemma2": ("Gemma2Config", {"sliding_window": 4, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0}),
    "gemma3": ("Gemma3TextConfig", {"sliding_window": 4, "query_pre_attn_scalar": 8}),
    "phi3": ("Phi3Config", {"sliding_window": 4, "rope_scaling": None}),
    "phi": ("PhiConfig", {}),
    "gpt_oss": ("GptOssConfig", {**EXPERTS, "sliding_window": 4}),
    "deepseek_v3": ("DeepseekV3Config", {**EXPERTS, **MLA}),
    "cohere": ("CohereConfig", {}),
    "cohere2": ("Cohere2Config", {"sliding_window": 4}),
    "granite": ("GraniteConfig", {"attention_multiplier": 0.2}),
    "olmo2": ("Olmo2Config", {}),
    "olmo3": ("Olmo3Config", {"sliding_window": 4}),
    "starcoder2": ("Starcoder2Config", {"sliding_window": 4}),
    "stablelm": ("StableLmConfig", {}),
    "gpt_neox": ("GPTNeoXConfig", {}),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "opt": ("OPTConfig", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "smollm3": ("SmolLM3Config", {}),
    "glm4": ("Glm4Config", {}),
    "nemotron": ("NemotronConfig", {}),
    "exaone4": ("Exaone4Config", {"sliding_window": 4}),
}
WINDOWED = tuple(name for name, (_, more) in MODELS.items() if "sliding_window" in more)


def model(name: str, attention: str, **sizes: Any) -> Any:
    """The model of that architecture, with the same weights at every call. `sizes` replace TINY's."""
    import torch
    import transformers

    kind, more = MODELS[name]
    torch.manual_seed(7)
    config = getattr(transformers, kind)(**{**TINY, **more, **sizes})
    made = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    with torch.no_grad():  # norms that are not 1, so that a weight that is left out is seen
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made.eval()


def tokens(*shape: int) -> Any:
    import torch

    return torch.randint(2, 60, shape, generator=torch.Generator().manual_seed(3))
