"""Inverse frequencies of rotary embeddings, and how they are scaled to contexts longer than those of training.

Plain: J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", arXiv:2104.09864, section 3.2.2: pair i of
d / 2 turns by position * base**(-2 i / d). Everything is computed in double and rounded to f32 once.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from ...plan.fields import integer, scalar
from ...runtime.gpu.capture import relaxed
from ...runtime.gpu.driver import cupy_or_none, require_cupy, require_gpu
from ...runtime.gpu.streams import current_stream, foreign_stream, is_capturing, on_stream
from ...tensor import ordinal_of
from ...tensor.pytorch import is_tensor
from ...types import InvalidProblemError
from ...types.deprecated import renamed_arguments
from ...types.keeping import complete
from .angles import check_factor

__all__ = ["RopeScaling"]

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True, eq=False)
class RopeScaling:
    """What `rope(..., scaling=...)` takes: `inv_freq`, f32 [rotary_dim / 2], and `attention_factor`, by which what is rotated
    is multiplied.

    Made by one of `plain`, `linear`, `ntk`, `dynamic_ntk`, `yarn`, `longrope` and `llama3`, or of frequencies of one's own.
    `dim` is the number of columns that are rotated (rotary_dim), `original_max_position_embeddings` the context length of
    training and `max_position_embeddings` the length to serve, as models' configurations call them.
    InvalidProblemError where a number is out of range. Copies on a device are made at the first call there, and live as long as
    the object: keep it beside graphs that read them.
    """

    inv_freq: Array
    attention_factor: float = 1.0
    _copies: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        with np.errstate(over="ignore"):
            held = _numbers(self.inv_freq, "inv_freq").astype(np.float32)
        if held.ndim != 1 or not held.size:
            raise InvalidProblemError(f"rope: inv_freq has shape {held.shape}", "give [rotary_dim / 2], one a pair")
        if not np.isfinite(held).all():
            raise InvalidProblemError(
                "rope: a frequency is not finite in f32", "give frequencies, or a base, within range"
            )
        held.flags.writeable = False
        complete(self, inv_freq=held)
        factor = scalar(self.attention_factor, "rope: attention_factor")
        check_factor("rope", {"attention_factor": factor})
        complete(self, attention_factor=factor)

    @staticmethod
    def plain(dim: int, base: float = 10000.0) -> RopeScaling:
        """base**(-2 i / dim)."""
        return RopeScaling(_plain(dim, base))

    @staticmethod
    def linear(dim: int, factor: float, base: float = 10000.0) -> RopeScaling:
        """Position interpolation: every frequency divided by `factor` (S. Chen et al., arXiv:2306.15595)."""
        return RopeScaling(_plain(dim, base) / _positive(factor, "factor"))

    @staticmethod
    def ntk(dim: int, factor: float, base: float = 10000.0) -> RopeScaling:
        """NTK-aware: the base multiplied by factor**(dim / (dim - 2)), so that the slowest pair is interpolated by `factor` and
        the fastest not at all (B. Peng et al., "YaRN", arXiv:2309.00071, section 3.1)."""
        return RopeScaling(_plain(dim, _stretched(dim, base, _positive(factor, "factor"))))

    @staticmethod
    @renamed_arguments(trained="original_max_position_embeddings")
    def dynamic_ntk(
        dim: int, factor: float, length: int, original_max_position_embeddings: int, base: float = 10000.0
    ) -> RopeScaling:
        """NTK-aware for sequences of `length`: by factor * length / original_max_position_embeddings - (factor - 1), and by 1 up
        to original_max_position_embeddings (as transformers documents "dynamic"; YaRN, section 3.3 and appendix A.1). A cache
        holds keys of one length: rotate them again, or keep the length, as a sequence grows."""
        original_length, factor = _original_length(original_max_position_embeddings), _positive(factor, "factor")
        longer = max(_count(length, "length"), original_length) / original_length
        return RopeScaling(_plain(dim, _stretched(dim, base, factor * longer - (factor - 1))))

    @staticmethod
    @renamed_arguments(trained="original_max_position_embeddings")
    def yarn(
        dim: int, factor: float, original_max_position_embeddings: int, base: float = 10000.0, *, beta_fast: float = 32.0,
        beta_slow: float = 1.0, attention_factor: float | None = None, mscale: float | None = None,
        mscale_all_dim: float | None = None, truncate: bool = True,
    ) -> RopeScaling:  # fmt: skip
        """YaRN: pairs that turn more than `beta_fast` times within original_max_position_embeddings stay, those that turn less
        than `beta_slow` times are interpolated, with a ramp in between (arXiv:2309.00071, sections 3.2 and 3.4): over the pairs'
        numbers, as in the released code, transformers and vLLM, with which models were trained; the paper's text has it over the
        turns.

        `truncate` rounds the ramp's ends outward to whole pairs, as the paper's code and transformers do (gpt-oss does not).
        attention_factor: by default 0.1 ln(factor) + 1; with mscale and mscale_all_dim, as DeepSeek gives them, the ratio of
        0.1 mscale ln(factor) + 1 of either.
        """
        factor, own = _positive(factor, "factor"), _plain(dim, base)
        if not isinstance(truncate, (bool, np.bool_)):
            raise InvalidProblemError(f"rope: truncate is a {type(truncate).__name__}", "give a bool")
        original_length = _original_length(original_max_position_embeddings)
        ends = [_pair_of(dim, original_length, base, _positive(t, "beta")) for t in (beta_fast, beta_slow)]
        low, high = (math.floor(ends[0]), math.ceil(ends[1])) if truncate else ends
        low, high = max(low, 0), min(high, dim - 1)
        interpolated = np.clip((np.arange(dim // 2) - low) / (high - low if high != low else 0.001), 0, 1)
        if attention_factor is None:
            both = all(x is not None and scalar(x, "rope: mscale") for x in (mscale, mscale_all_dim))
            attention_factor = _grown(factor, _positive(mscale, "mscale")) if both else _grown(factor)
            attention_factor /= _grown(factor, _positive(mscale_all_dim, "mscale_all_dim")) if both else 1.0
        return RopeScaling(own * (1 - interpolated) + own / factor * interpolated, attention_factor)

    @staticmethod
    @renamed_arguments(trained="original_max_position_embeddings", longest="max_position_embeddings")
    def longrope(
        dim: int, short_factor: Sequence[float], long_factor: Sequence[float], length: int,
        original_max_position_embeddings: int, max_position_embeddings: int, base: float = 10000.0, *,
        attention_factor: float | None = None,
    ) -> RopeScaling:  # fmt: skip
        """LongRoPE: each frequency divided by a factor of its own, of `long_factor` where `length` exceeds t, else of
        `short_factor`, t = original_max_position_embeddings (Y. Ding et al., arXiv:2402.13753, section 3). attention_factor: by
        default sqrt(1 + ln(s) / ln(t)), s = max_position_embeddings / t, and 1 where s <= 1."""
        original_length, own = _original_length(original_max_position_embeddings), _plain(dim, base)
        longer = _count(max_position_embeddings, "max_position_embeddings") / original_length
        if attention_factor is None:
            if original_length == 1 and longer > 1:
                raise InvalidProblemError(
                    "rope: original_max_position_embeddings=1, whose logarithm is 0", "give more, or attention_factor"
                )
            attention_factor = math.sqrt(1 + math.log(longer) / math.log(original_length)) if longer > 1 else 1.0
        name, given = ("long", long_factor) if _count(length, "length") > original_length else ("short", short_factor)
        factors = _numbers(given, f"{name}_factor")
        if factors.shape != own.shape or not (factors > 0).all():
            raise InvalidProblemError(
                f"rope: {name}_factor of shape {factors.shape} for {dim} columns", f"give {dim // 2} positive numbers"
            )
        return RopeScaling(own / factors, attention_factor)

    @staticmethod
    @renamed_arguments(trained="original_max_position_embeddings")
    def llama3(
        dim: int, factor: float = 8.0, original_max_position_embeddings: int = 8192, base: float = 500000.0, *,
        low_freq_factor: float = 1.0, high_freq_factor: float = 4.0,
    ) -> RopeScaling:  # fmt: skip
        """Llama 3.1: pairs that turn more than `high_freq_factor` times within original_max_position_embeddings stay, those
        that turn less than `low_freq_factor` times are divided by `factor`, with a ramp over the number of turns in between
        (A. Grattafiori et al., "The Llama 3 Herd of Models", and the model's released code)."""
        factor, own = _positive(factor, "factor"), _plain(dim, base)
        low, high = _positive(low_freq_factor, "low_freq_factor"), _positive(high_freq_factor, "high_freq_factor")
        if high <= low:
            raise InvalidProblemError(
                f"rope: from {low} turns, which are interpolated, to {high}, which stay",
                "give the higher number for the latter",
            )
        rotations = _original_length(original_max_position_embeddings) * own / (2 * math.pi)
        kept = np.clip((rotations - low) / (high - low), 0, 1)
        return RopeScaling((1 - kept) * own / factor + kept * own)

    def on(self, x: Any) -> Any:
        """The frequencies in the memory of `x`: NumPy's on the host, torch's beside a torch tensor, else CuPy's."""
        ordinal = ordinal_of((x,))
        if ordinal is None:
            return self.inv_freq
        kind = "torch" if is_tensor(x) else "cupy"
        held = self._copies.get((kind, ordinal))
        if held is None:
            held = self._copies.setdefault((kind, ordinal), _copied(self.inv_freq, kind, ordinal))
        return held


def _copied(inv_freq: Array, kind: str, ordinal: int) -> Any:
    """A copy that is there when this returns, so that any stream may read it. It is made on a stream of its own, since a graph
    must not repeat it, and in memory of its own, since torch's may belong to a graph that is about to be captured."""
    cuda = require_gpu("rope: inv_freq").cuda
    with cuda.Device(ordinal):
        streams = current_stream(), foreign_stream("torch", ordinal)
    free = relaxed if any(s is not None and is_capturing(s) for s in streams) else nullcontext
    cupy: Any = require_cupy("rope: inv_freq") if kind == "cupy" else cupy_or_none()
    if cupy is None:
        from concurrent.futures import ThreadPoolExecutor

        # torch allocates for a graph in the thread that records it alone
        with ThreadPoolExecutor(1) as other:
            return other.submit(_by_torch, inv_freq, ordinal, free).result()
    with cuda.Device(ordinal), free(), cupy.cuda.Stream(non_blocking=True) as aside:
        made = cupy.ndarray(
            inv_freq.shape, inv_freq.dtype, cupy.cuda.MemoryPointer(cupy.cuda.Memory(inv_freq.nbytes), 0)
        )
        made.set(inv_freq)
        aside.synchronize()
        unordered = -1  # DLPack: nothing need be waited for
        return (
            made if kind == "cupy" else sys.modules["torch"].utils.dlpack.from_dlpack(made.__dlpack__(stream=unordered))
        )


def _by_torch(inv_freq: Array, ordinal: int, free: Callable[[], Any]) -> Any:
    torch, cuda = sys.modules["torch"], require_gpu("rope: inv_freq").cuda
    with cuda.Device(ordinal), free(), on_stream(cuda.Stream(non_blocking=True).ptr, ordinal):
        return torch.tensor(inv_freq.tolist(), dtype=torch.float32, device=f"cuda:{ordinal}")


@cache
def plain(dim: int, base: float) -> RopeScaling:
    """`RopeScaling.plain`, made once and kept: captured graphs may read its copies."""
    return RopeScaling.plain(dim, base)


def _numbers(given: Any, name: str) -> Array:
    try:
        return np.array(given, np.float64)
    except (TypeError, ValueError):
        raise InvalidProblemError(
            f"rope: {name} is a {type(given).__name__} of no numbers", "give one a pair"
        ) from None


def _plain(dim: int, base: float) -> Array:
    dim, base = integer(dim, "rope: dim"), _positive(base, "base")
    if dim < 2 or dim % 2:
        raise InvalidProblemError(f"rope: dim={dim}", "give the even number of columns that are rotated, 2 or more")
    with np.errstate(over="ignore"):
        return np.asarray(base ** (np.arange(0, -dim, -2) / dim))


def _stretched(dim: int, base: float, factor: float) -> float:
    dim, base = integer(dim, "rope: dim"), _positive(base, "base")
    if dim == 2:
        raise InvalidProblemError("rope: one pair has nothing between its fastest and its slowest", "use linear")
    try:
        return float(base * _positive(factor, "factor") ** (dim / (dim - 2)))
    except OverflowError:
        raise InvalidProblemError(
            f"rope: factor={factor} makes a base beyond any float", "give a smaller one"
        ) from None


def _original_length(length: int) -> int:
    """The context length of training."""
    return _count(length, "original_max_position_embeddings")


def _pair_of(dim: int, original_length: int, base: float, rotations: float) -> float:
    """The number of the pair that turns so many times within `original_length`, as a real number."""
    if base <= 1:
        raise InvalidProblemError(f"rope: base={base}", "give more than 1")
    return dim * math.log(original_length / (rotations * 2 * math.pi)) / (2 * math.log(base))


def _grown(factor: float, mscale: float = 1.0) -> float:
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


def _positive(value: Any, name: str) -> float:
    return float(_checked(scalar(value, f"rope: {name}"), name, lambda v: 0 < v < math.inf))


def _count(value: Any, name: str) -> int:
    return int(_checked(integer(value, f"rope: {name}"), name, lambda v: v > 0))


def _checked(value: Any, name: str, right: Callable[[Any], bool]) -> Any:
    if not right(value):
        raise InvalidProblemError(f"rope: {name}={value}", "give a positive number")
    return value
