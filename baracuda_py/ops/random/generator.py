"""Generator: a stream of random numbers whose next position is in the memory of its device."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import RLock
from typing import Any, NamedTuple

from ...plan.fields import whole
from ...types import ElementKind, InvalidProblemError
from .._empty import empty_array
from ..creation.constants import fill
from ._drawn import MOST_SUBSEQUENCES
from ._family import FILLS
from .dropout import dropout
from .gumbel.forward import gumbel_softmax
from .stochastic_cast import stochastic_cast
from .take_position import take_position

__all__ = ["Generator", "GeneratorState"]


class GeneratorState(NamedTuple):
    """Where a generator is: what it draws next follows from these."""

    seed: int
    subsequence: int
    offset: int


class Generator:
    """A stream of random numbers, (seed, subsequence), and a counter of the positions that were taken, in device memory.

    What is drawn depends on the seed, the subsequence and the position only: not on the device, the grid, or how many numbers
    were drawn at once. Kernels read the position when they run, so that each replay of a graph that a draw was recorded or
    captured in draws the numbers that follow. Draws of one generator go in the order of one stream: use a `split` per thread or
    stream.

    >>> g = bp.Generator(7, device="cpu")
    >>> bp.uniform(2, generator=g).shape, g.state().offset
    ((2,), 2)
    """

    def __init__(
        self, seed: int, *, subsequence: int = 0, offset: int = 0, device: Any = None, counter: Any = None
    ) -> None:
        """A generator at position `offset` of the stream (seed, subsequence), an int64 and a number below 2**62.

        device: as of every op; its memory has the counter. counter: an array of one i64 to use as it is, such as a torch tensor,
        in place of `offset`.
        """
        self.seed, self.subsequence = whole(seed, "Generator: seed"), whole(subsequence, "Generator: subsequence")
        self.device = device
        if not 0 <= self.subsequence < MOST_SUBSEQUENCES:
            raise InvalidProblemError(
                f"Generator: subsequence={subsequence} is not in [0, 2**62)", "give a number of 0 or more"
            )
        if counter is not None and offset:
            raise InvalidProblemError(f"Generator: counter and offset={offset}", "pass one of them")
        self.counter = empty_array("Generator", (1,), ElementKind.I64, device) if counter is None else counter
        self._lock = RLock()
        if counter is None:
            self.set_offset(offset)

    def __repr__(self) -> str:
        device = "" if self.device is None else f", device={self.device!r}"
        return f"bp.Generator({self.seed}, subsequence={self.subsequence}{device})"

    def state(self) -> GeneratorState:
        """Seed, subsequence and the next position. Waits for the device."""
        return GeneratorState(self.seed, self.subsequence, int(self.counter[0]))

    def set_offset(self, offset: int, *, stream: Any = None) -> None:
        """Goes on at a position, in a stream's order."""
        begin = whole(offset, "Generator: offset")
        if begin < 0:
            raise InvalidProblemError(f"Generator: offset={begin} is negative", "give a position of 0 or more")
        fill(self.counter, begin, stream=stream, device=self.device)

    def split(self, subsequence: int) -> Generator:
        """A generator of another stream of this seed, from its start."""
        return Generator(self.seed, subsequence=subsequence, device=self.device)

    def take(self, count: int, *, stream: Any = None) -> Any:
        """An array of one i64: the position from which `count` belong to the caller. Later draws begin behind them."""
        with self._lock:  # on the host, counting is no single step
            return take_position(self.counter, count, stream=stream, device=self.device).position

    def fill(self, function: Callable[..., Any], x: Any, count: int, *, stream: Any = None, **options: Any) -> Any:
        """``function(x, **options)`` of the next `count` positions: a random fill, or another function that takes `position`. A
        call that raises takes none."""
        with self._lock:  # so that no other thread draws at this position
            # A fill reads the counter itself; what else a function does with its position is not known, a gradient keeps it.
            position = self.counter if function in FILLS else self.take(0, stream=stream)
            made = function(
                x, seed=self.seed, subsequence=self.subsequence, position=position, stream=stream,
                **{"device": self.device, **options},
            )  # fmt: skip
            self.take(count, stream=stream)
        return made

    def dropout(self, x: Any, p: float = 0.5, *, residual: Any = None, stream: Any = None, device: Any = None) -> Any:
        """`dropout` of the next positions, one per element of x."""
        how = {} if device is None else {"device": device}
        return self.fill(dropout, x, math.prod(x.shape), p=p, residual=residual, stream=stream, **how)

    def stochastic_cast(self, x: Any, dtype: Any = "bf16", *, stream: Any = None, device: Any = None) -> Any:
        """`stochastic_cast` by the next positions, one per element of x."""
        how = {} if device is None else {"device": device}
        return self.fill(stochastic_cast, x, math.prod(x.shape), dtype=dtype, stream=stream, **how)

    def gumbel_softmax(
        self, x: Any, tau: float = 1.0, *, hard: bool = False, axis: int = -1, stream: Any = None, device: Any = None
    ) -> Any:
        """`gumbel_softmax` of the next positions, one per element of x."""
        how = {} if device is None else {"device": device}
        return self.fill(gumbel_softmax, x, math.prod(x.shape), tau=tau, hard=hard, axis=axis, stream=stream, **how)
