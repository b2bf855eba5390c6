"""A Llama decoder with random weights: prompts go in, sampled tokens come out.

    python examples/llama.py                                  # toy size, on the host: the NumPy reference
    python examples/llama.py --device ptx --tokens 2          # the CUDA kernels themselves, emulated on the host
    python examples/llama.py --device gpu --size 8b --weights int4 --tokens 128

On a GPU the decode step, sampling included, is captured in one CUDA graph: a launch makes the next token of each sequence.
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

import baracuda_py as bp


class Size(NamedTuple):
    layers: int
    width: int
    heads: int
    kv_heads: int
    columns: int  # per head
    hidden: int  # columns of the MLP
    vocabulary: int


SIZES = {
    "toy": Size(2, 256, 4, 2, 64, 512, 512),
    "8b": Size(32, 4096, 32, 8, 128, 14336, 128256),
}
MOST_LIKELY, TEMPERATURE = 40, 0.8  # sampling: among how many tokens, and how flat their probabilities become


def linear(x: Any, weight: Any) -> Any:
    """x times a weight of any of the three kinds."""
    return {bp.PackedInt4: bp.matmul_int4, bp.PackedGguf: bp.matmul_gguf}.get(type(weight), bp.matmul)(x, weight)


class Llama:
    """The weights, and a cache of keys and values for `batch` sequences of up to `capacity` tokens."""

    def __init__(self, xp: Any, size: Size, weights: str, batch: int, capacity: int) -> None:
        rng = xp.random.default_rng(0)

        def made(rows: int, columns: int, weights: str = weights) -> Any:
            weight = (rng.standard_normal((rows, columns), dtype="float32") * rows**-0.5).astype("float16")
            if weights == "int4":
                return bp.pack_int4(weight)  # groups of 128 along K
            if weights == "gguf":  # blocks as in a llama.cpp file: one row per column of the result
                return bp.PackedGguf(bp.quantize_gguf(xp.ascontiguousarray(weight.T), "Q4_K"), "Q4_K", (columns, rows))
            return weight

        queries, cache = size.heads * size.columns, (batch, capacity, size.kv_heads, size.columns)
        self.size, self.places = size, xp.arange(capacity, dtype="int32")
        self.embedding = made(size.vocabulary, size.width, "f16")
        self.norm, self.head = xp.ones(size.width, "float16"), made(size.width, size.vocabulary)
        self.layers = [
            {
                "attention_norm": xp.ones(size.width, "float16"), "mlp_norm": xp.ones(size.width, "float16"),
                "qkv": made(size.width, queries + 2 * size.kv_heads * size.columns), "out": made(queries, size.width),
                "gate_up": made(size.width, 2 * size.hidden), "down": made(size.hidden, size.width),
                "k_cache": xp.zeros(cache, "float16"), "v_cache": xp.zeros(cache, "float16"),
            }
            for _ in range(size.layers)
        ]  # fmt: skip

    def logits(self, tokens: Any, lengths: Any) -> Any:
        """Scores of the next token, [batch, vocabulary], for `tokens` [batch, T] that follow `lengths` cached ones. Both are in
        device memory and are read when the kernels run, so that a graph can change them."""
        (batch, count), size = tokens.shape, self.size
        x = bp.take_along_axis(self.embedding, tokens.reshape(-1, 1), axis=0, mode="clip").reshape(batch, count, -1)
        positions, after = bp.add(lengths[:, None], self.places[:count]), bp.add(lengths, count)
        for layer in self.layers:
            y = linear(bp.rms_norm(x, layer["attention_norm"]), layer["qkv"]).reshape(batch, count, -1, size.columns)
            q, k, v = y[:, :, : size.heads], y[:, :, size.heads : -size.kv_heads], y[:, :, -size.kv_heads :]
            q, k = bp.rope(q, positions, k=k, base=500_000.0, layout="BSHD")
            bp.kv_append(layer["k_cache"], layer["v_cache"], k, v, lengths, layout="BSHD")
            if count > 1:  # a prompt: the caches were empty
                y = bp.attention(q, k, v, causal=True, layout="BSHD")
            else:
                y = bp.attention_decode(q, layer["k_cache"], layer["v_cache"], after, layout="BSHD")
            y = linear(y.reshape(batch, count, -1), layer["out"])
            y, x = bp.rms_norm(y, layer["mlp_norm"], residual=x)  # the norm of x + y, and x + y
            both = linear(y, layer["gate_up"])
            x = bp.add(x, linear(bp.silu_mul(both[..., : size.hidden], both[..., size.hidden :]), layer["down"]))
        return linear(bp.rms_norm(x[:, -1], self.norm), self.head)


def sample(logits: Any, noise: Any, token: Any) -> None:
    """Writes a token for each sequence, drawn from the most likely ones: the largest of logit + Gumbel noise."""
    best = bp.topk(logits, MOST_LIKELY)
    drawn = bp.argmax(bp.add(bp.cast(best.values, "f32"), noise), axis=1, keepdims=True)
    bp.take_along_axis(best.indices, drawn, axis=1, mode="clip", out=token)


def generate(xp: Any, model: Llama, prompts: Any, tokens: int, *, graph: bool) -> tuple[Any, float]:
    """The `tokens` that follow each of `prompts` [batch, T], and the seconds of a decode step."""
    (batch, count), rng = prompts.shape, xp.random.default_rng(1)

    def draw() -> Any:  # argmax(logit + t * gumbel) is a draw from softmax(logit / t)
        uniform = xp.clip(rng.random((batch, MOST_LIKELY), dtype="float32"), 1e-7, 1 - 1e-7)
        return -TEMPERATURE * xp.log(-xp.log(uniform))

    token, lengths, noise = xp.zeros((batch, 1), "int64"), xp.zeros(batch, "int32"), draw()
    sample(model.logits(prompts, lengths), noise, token)
    lengths += count

    def step() -> None:
        """Replaces `token` by the next one and counts it: what a graph repeats must be found at the same addresses."""
        sample(model.logits(token, lengths), noise, token)
        bp.add(lengths, 1, out=lengths)

    made, launch, started = [token.copy()], step, time.perf_counter()
    for i in range(1, tokens):
        if i == 2:  # the first step has compiled and loaded every kernel
            launch, started = bp.Graph(step).launch if graph else step, time.perf_counter()
        noise[...] = draw()
        launch()
        made.append(token.copy())
    result = np.concatenate([x.get() if graph else x for x in made], axis=1)
    return result, (time.perf_counter() - started) / max(tokens - 2, 1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "ptx", "gpu"), default="cpu")
    parser.add_argument("--size", choices=SIZES, default="toy")
    parser.add_argument("--weights", choices=("f16", "int4", "gguf"), default="f16")
    for name, default in {"batch": 2, "prompt": 5, "tokens": 8}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(arguments)
    gpu, size, xp = given.device == "gpu", SIZES[given.size], np
    if gpu:
        import cupy as xp
    prompts = xp.random.default_rng(2).integers(0, size.vocabulary, (given.batch, given.prompt))
    with nullcontext() if gpu else bp.device(given.device):
        model = Llama(xp, size, given.weights, given.batch, given.prompt + given.tokens)
        result, seconds = generate(xp, model, prompts, given.tokens, graph=gpu)
    print(result)
    print(f"{seconds * 1e3:.2f} ms for {given.batch} tokens with {given.weights} weights, {given.device}")


if __name__ == "__main__":
    main()
