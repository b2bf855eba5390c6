"""PagedKVCache against a plain model that keeps every sequence's tokens in a list: any operations, in any order."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import baracuda_py as bp

PAGES, LAYERS, BATCH, LONGEST = 9, 2, 4, 17
TOKENS = st.lists(st.integers(0, 1), max_size=7)


@dataclass(eq=False)
class Modelled:
    """What a sequence must be: its tokens, how many of them are written, and whether their ids are known."""

    sequence: Any
    tokens: list[float] = field(default_factory=list)
    known: int = 0
    written: int = 0

    def value(self, place: int) -> float:
        """What is stored for a token: it depends on all tokens up to it, as a model's keys and values do."""
        made = 1.0
        for token in self.tokens[: place + 1]:
            made = (made * 31 + token * 7 + 3) % 65521
        return made


def state(cache: Any) -> Any:
    """Everything that a refused operation must leave alone."""
    arrays = [*cache.arrays.pages.values(), cache.arrays.table, cache.arrays.counts]
    held = {n: (s.length, s.written, [*s.pages], [*s.tokens]) for n, s in cache.sequences.items()}
    idle = [node.page for node in cache.prefixes.idle]
    return (
        held,
        [*cache.pool.references],
        [*cache.pool.free],
        idle,
        asdict(cache.statistics),
        [a.tobytes() for a in arrays],
    )


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.live: list[Modelled] = []
        self.unknown = 2.0  # the next token whose id is not given

    @initialize(size=st.sampled_from([1, 2, 4]), layout=st.sampled_from(["NHD", "HND"]))
    def make(self, size: int, layout: str) -> None:
        spec = bp.KVCacheSpec(LAYERS, 1, 1, 2, page_size=size, element="f32", layout=layout)
        self.cache = bp.PagedKVCache(spec, PAGES, max_batch=BATCH, max_tokens=LONGEST, device="cpu")

    def one(self, data: st.DataObject) -> Modelled:
        return data.draw(st.sampled_from(self.live))

    def refused(self, before: Any, error: bp.BaracudaError) -> None:
        """The error tells the truth, and nothing was changed."""
        assert state(self.cache) == before
        if isinstance(error, bp.OutOfPagesError):
            assert error.needed > error.free + error.evictable
            assert error.free == len(self.cache.pool.free)
            assert error.evictable <= self.cache.statistics.cached

    def write(self, batch: list[Modelled]) -> None:
        """The step of a batch: tables, the append in every layer, and what is pending is written."""
        cache = self.cache
        cache.stage([m.sequence for m in batch])
        places = [(m, i) for m in batch for i in range(m.written, len(m.tokens))]
        for layer in range(LAYERS):
            made = np.array([m.value(i) + layer for m, i in places], np.float32).reshape(-1, 1, 1)
            status = cache.append(layer, made, np.concatenate([made, -made], axis=-1))
            assert not status.any()
        cache.advance([m.sequence for m in batch])
        for m in batch:
            m.written = len(m.tokens)

    # ---- operations -------------------------------------------------------------------------------------------------

    @rule(tokens=TOKENS, share=st.booleans(), known=st.booleans())
    def allocate(self, tokens: list[int], share: bool, known: bool) -> None:
        before = state(self.cache)
        try:
            made = self.cache.allocate(tokens if known else len(tokens), share=share)
        except bp.OutOfPagesError as error:
            return self.refused(before, error)
        new = Modelled(made)
        self.live.append(new)
        self.added(new, tokens, known)
        assert made.cached == made.written <= max(0, len(tokens) - 1)
        assert share or not made.cached
        new.written = made.cached
        return None

    def added(self, m: Modelled, tokens: list[int], known: bool) -> None:
        if known and m.known == len(m.tokens):
            m.known += len(tokens)
        for token in tokens:
            m.tokens.append(token if known else self.unknown)
            self.unknown += not known

    @precondition(lambda self: self.live)
    @rule(data=st.data(), known=st.booleans(), writes=st.booleans())
    def extend(self, data: st.DataObject, known: bool, writes: bool) -> None:
        batch = data.draw(st.lists(st.sampled_from(self.live), min_size=1, max_size=BATCH, unique=True))
        asked = {m: data.draw(TOKENS) for m in batch}
        before = state(self.cache)
        try:
            self.cache.extend({m.sequence: t if known else len(t) for m, t in asked.items()})
        except (bp.OutOfPagesError, bp.InvalidProblemError) as error:
            if not isinstance(error, bp.OutOfPagesError):
                assert any(len(m.tokens) + len(t) > LONGEST for m, t in asked.items())
            return self.refused(before, error)
        for m, tokens in asked.items():
            self.added(m, tokens, known)
        if writes:
            self.write(batch)
        return None

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        self.write(data.draw(st.lists(st.sampled_from(self.live), max_size=BATCH, unique=True)))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        m = self.one(data)
        before = state(self.cache)
        try:
            made = self.cache.fork(m.sequence)
        except bp.InvalidProblemError as error:
            assert m.written < len(m.tokens)
            return self.refused(before, error)
        self.live.append(Modelled(made, [*m.tokens], m.known, m.written))
        return None

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        m = self.one(data)
        kept = data.draw(st.integers(0, len(m.tokens)))
        self.cache.truncate(m.sequence, kept)
        del m.tokens[kept:]
        m.known, m.written = min(m.known, kept), min(m.written, kept)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), publish=st.booleans())
    def free(self, data: st.DataObject, publish: bool) -> None:
        m = self.one(data)
        if publish:
            self.cache.publish(m.sequence)
        self.cache.free(m.sequence)
        self.live.remove(m)
        with pytest.raises(bp.InvalidProblemError, match="no sequence of this cache"):
            self.cache.free(m.sequence)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        self.cache.publish(self.one(data).sequence)

    @rule(pages=st.integers(0, 3))
    def evict(self, pages: int) -> None:
        idle = self.cache.statistics.cached
        assert self.cache.evict(pages) == min(idle, pages)
        assert self.cache.statistics.cached == idle - min(idle, pages)

    @rule()
    def defragment(self) -> None:
        before = self.cache.statistics
        moved = self.cache.defragment()
        held = before.used + before.cached
        assert moved <= held
        assert [page for page in range(PAGES) if self.cache.pool.references[page]] == list(range(held))
        assert self.cache.defragment() == 0

    # ---- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def sequences_are_the_model_s(self) -> None:
        for m in self.live:
            s = m.sequence
            assert (s.length, s.written, s.tokens) == (len(m.tokens), m.written, m.tokens[: m.known])
            assert len(s.pages) == self.cache.spec.pages_needed(s.length)
            size = self.cache.spec.page_size
            for layer in range(LAYERS):
                arrays = self.cache.layer(layer)
                for part, factors in (("k", [1]), ("v", [1, -1])):
                    pages = arrays[f"{part}_pages"].reshape(PAGES, size, -1)  # of one head: both layouts are alike
                    for i in range(m.written):
                        wanted = [(m.value(i) + layer) * f for f in factors]
                        assert pages[s.pages[i // size], i % size].tolist() == wanted, f"token {i} of {s}"

    @invariant()
    def pages_are_counted(self) -> None:
        cache, size = self.cache, self.cache.spec.page_size
        holders = Counter(page for m in self.live for page in m.sequence.pages)
        cached = set(cache.prefixes.nodes)
        assert cache.pool.references == [holders[page] + (page in cached) for page in range(PAGES)]
        assert sorted(cache.pool.free) == [page for page in range(PAGES) if not cache.pool.references[page]]
        idle = {node.page for node in cache.prefixes.idle}
        assert idle == {page for page in cached if not holders[page]}
        full: dict[int, int] = {}
        for m in self.live:
            for i, page in enumerate(m.sequence.pages):
                full[page] = max(full.get(page, 0), min(size, len(m.tokens) - i * size))
        stats = cache.statistics
        assert stats.used + stats.cached + stats.free == stats.pages == PAGES
        assert (stats.used, stats.cached) == (len(holders), len(idle))
        assert stats.shared == sum(n > 1 for n in holders.values())
        assert stats.tokens == sum(len(m.tokens) for m in self.live)
        assert stats.filled + stats.wasted == stats.used * size
        assert stats.filled == sum(full.values())
        assert stats.bytes == (stats.used + stats.cached) * size * LAYERS * 3 * 4

    @invariant()
    def what_will_be_written_is_held_once(self) -> None:
        size = self.cache.spec.page_size
        for m in self.live:
            for page in m.sequence.pages[m.written // size :] if m.written < len(m.tokens) else ():
                assert self.cache.pool.references[page] == 1, f"page {page} of {m.sequence} has another holder"

    @invariant()
    def parents_of_pages_in_use_are_in_use(self) -> None:
        order = {node: i for i, node in enumerate(self.cache.prefixes.idle)}
        for node, place in order.items():
            assert all(order[child] < place for child in node.children.values())


def test_paged_cache_follows_its_model(bounded: bool) -> None:
    few = settings(  # a failure is not shrunk, which takes minutes: add Phase.shrink to look into one
        max_examples=10 if bounded else 100, stateful_step_count=30, deadline=None, derandomize=True,
        suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate],
    )  # fmt: skip
    run_state_machine_as_test(Machine, settings=few)
