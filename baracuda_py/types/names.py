"""Names that other libraries have for ops of this one: aliases, advice where the arguments differ, and words to search by."""

from __future__ import annotations

__all__ = ["ADVICE", "ALIASES", "SYNONYMS"]

# bp.<alias> is the function on the right, with the same arguments in the same order.
ALIASES = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "ascontiguousarray": "contiguize",
    "astype": "cast",
    "clip": "clamp",
    "contiguous": "contiguize",
    "cumulative_sum": "cumsum",
    "div": "divide",
    "eq": "equal",
    "ge": "greater_equal",
    "gt": "greater",
    "layernorm": "layer_norm",
    "le": "less_equal",
    "lt": "less",
    "mm": "matmul",
    "mul": "multiply",
    "ne": "not_equal",
    "negative": "neg",
    "power": "pow",
    "rmsnorm": "rms_norm",
    "scaled_dot_product_attention": "attention",
    "sdpa": "attention",
    "sgn": "sign",
    "sub": "subtract",
    "swiglu": "silu_mul",
    "swish": "silu",
    "top_k": "topk",
    "true_divide": "divide",
}

# What to write for a name whose arguments or results differ from those of any op here.
ADVICE = {
    "argmin": "bp.argmax(bp.neg(x), axis) for floats",
    "argsort": "bp.topk(x, k, largest=False).indices, which are in order",
    "concat": "bp.concatenate(arrays, axis)",
    "flash_attn_func": "bp.attention(q, k, v), with heads before tokens: [B, H, S, D]",
    "gather": "bp.take_along_axis(x, indices, axis)",
    "index_put": "bp.write_slice(dest, source, np.s_[...])",
    "permute": "bp.contiguize(x.transpose(...)); a view alone needs no kernel",
    "setitem": "bp.write_slice(dest, source, np.s_[...])",
    "sort": "bp.topk(x, k, largest=False).values, which are in order",
    "std": "bp.sqrt(bp.var(x, axis))",
    "transpose": "bp.contiguize(x.transpose(...)); a view alone needs no kernel",
}

_CACHE = ("kv_append", "paged_kv_append", "attention_decode", "paged_attention", "copy_pages")
_FLASH = ("attention", "attention_flash", "attention_flash_causal", "attention_decode", "paged_attention")
_INT4 = ("matmul_int4", "quantize_int4", "dequantize_int4", "relayout_int4", "qkv_project_int4")
_NF4 = ("matmul_nf4", "quantize_nf4", "dequantize_nf4")
_GGUF = ("matmul_gguf", "matmul_q4k", "quantize_gguf", "dequantize_gguf")
_INT8 = ("matmul_int8", "quantize_int8", "dequantize_int8", "qkv_project_int8")
_HEADS = ("attention", "attention_decode", "paged_attention")
_NORMS = ("rms_norm", "layer_norm")
_PRODUCTS = ("matmul", "matmul_int8", "matmul_int4", "matmul_nf4", "matmul_gguf")

# What people search for, in lower case and without spaces, hyphens or underscores, and the ops that serve it.
SYNONYMS = {
    "activation": ("gelu", "silu", "relu", "sigmoid", "tanh", "silu_mul"),
    "append": ("kv_append", "paged_kv_append", "write_slice"),
    "argsort": ("topk",),
    "assign": ("write_slice",),
    "awq": _INT4,
    "bitsandbytes": (*_NF4, *_INT8),
    "bmm": ("matmul",),
    "concat": ("write_slice",),
    "concatenate": ("write_slice",),
    "continuousbatching": ("paged_attention", "paged_kv_append", "copy_pages"),
    "convert": ("cast",),
    "copy": ("contiguize", "write_slice", "copy_pages"),
    "dense": ("matmul",),
    "dequant": ("dequantize_int4", "dequantize_int8", "dequantize_nf4", "dequantize_gguf", "dequantize_fp8"),
    "dtype": ("cast",),
    "exllama": _INT4,
    "flashattention": _FLASH,
    "flashdecoding": ("attention_decode", "paged_attention"),
    "fp4": _NF4,
    "gather": ("take_along_axis",),
    "gemm": _PRODUCTS,
    "gemv": _PRODUCTS,
    "ggml": _GGUF,
    "gptq": _INT4,
    "gqa": _HEADS,
    "groupedquery": _HEADS,
    "kvcache": _CACHE,
    "linear": _PRODUCTS,
    "llamacpp": _GGUF,
    "lookup": ("take_along_axis",),
    "marlin": ("matmul_int4",),
    "mask": ("where", "nonzero", "attention"),
    "mla": ("attention_decode", "paged_attention"),
    "mlp": ("matmul", "silu_mul", "gelu"),
    "mqa": _HEADS,
    "multihead": _HEADS,
    "normalization": _NORMS,
    "normalize": _NORMS,
    "pagedcache": ("paged_attention", "paged_kv_append", "copy_pages"),
    "permute": ("contiguize",),
    "positionembedding": ("rope",),
    "positionalencoding": ("rope",),
    "prefixsum": ("cumsum",),
    "q4k": _GGUF,
    "qlora": _NF4,
    "quantization": (*_INT4, *_INT8, *_NF4, *_GGUF, "quantize_fp8"),
    "ringbuffer": ("kv_append",),
    "ringcache": ("kv_append",),
    "rotary": ("rope",),
    "sampling": ("topk", "softmax", "cumsum"),
    "scan": ("cumsum",),
    "scatter": ("write_slice",),
    "setitem": ("write_slice",),
    "slidingwindow": ("attention", "kv_append"),
    "smoothquant": _INT8,
    "sort": ("topk",),
    "std": ("var", "sqrt"),
    "swa": ("attention", "kv_append"),
    "tensorcore": ("matmul", "matmul_tc", "matmul_tc_bf16", "attention_tc"),
    "transpose": ("contiguize",),
    "vllm": ("paged_attention", "paged_kv_append", "copy_pages"),
    "w4a16": _INT4,
    "w8a16": ("matmul_int8",),
    "w8a8": _INT8,
}
