"""PagedKVCache: sequences whose keys and values are in pages; sequences with a common prefix share its pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..ops.cache.paged_kv_append import paged_kv_append
from ..ops.position.angles import STYLES
from ..ops.position.scaling import RopeScaling
from ..plan.fields import choice, integer
from ..types import InvalidProblemError, OutOfPagesError
from .arrays import PagedArrays
from .memory import memory_of
from .pool import PagePool
from .prefixes import PrefixIndex
from .sequence import PagedSequence, Tokens, tokens_of
from .shared import SharedPrefix, shared_prefix_of
from .spec import QUANTIZED, KVCacheSpec
from .statistics import CacheStatistics

__all__ = ["PagedKVCache"]

INT32 = (1 << 31) - 1


class PagedKVCache:
    """A cache of `pages` pages, for batches of at most `max_batch` sequences of at most `max_tokens` tokens (by default the
    capacity of all pages).

    With `rope`, appended keys are rotated by their positions in the same launch (`style` as in `bp.rope`). The host manages the
    pages; pages and tables are on `device`, as CuPy arrays, as PyTorch tensors with ``framework="torch"``, or as NumPy arrays
    with ``device="cpu"`` or ``"ptx"``. A step of a batch is

        cache.extend({sequence: [token], ...})   # places for new tokens; shared pages are copied before they are written
        cache.stage(batch)                       # tables, at addresses that do not change
        cache.append(layer, k, v)                # in every layer, and attention behind it: both may be in a captured graph
        cache.advance(batch)                     # what was appended is written

    A method that raises changes no sequence. Not thread-safe. Work on the device is queued on one stream (`stream`, or the
    current one), and pages are reused in that order.
    """

    def __init__(
        self, spec: KVCacheSpec, pages: int, *, max_batch: int = 256, max_tokens: int | None = None,
        device: Any = None, framework: str | None = None, rope: RopeScaling | None = None, style: str = "half",
    ) -> None:  # fmt: skip
        what = "PagedKVCache"
        for name, given, wanted in (("spec", spec, KVCacheSpec), ("rope", rope, RopeScaling)):
            if not isinstance(given, wanted) and (name == "spec" or given is not None):
                raise InvalidProblemError(f"{what}: {name} is a {type(given).__name__}", f"pass a {wanted.__name__}")
        self.spec, self.device = spec, device
        self.rope, self.style = rope, choice(STYLES)(style, f"{what}: style")
        if rope is None and self.style != "half":
            raise InvalidProblemError(f"{what}: style={style!r} was given and no rope", "pass rope=, a RopeScaling")
        if rope is not None and 2 * len(rope.inv_freq) > spec.head_dim:
            raise InvalidProblemError(
                f"{what}: rope has {len(rope.inv_freq)} pairs, and keys have {spec.head_dim} columns",
                f"give a scaling of {spec.head_dim} columns or fewer",
            )
        if rope is not None and spec.kind in QUANTIZED and spec.scaling == "none":
            raise InvalidProblemError(
                f"{what}: rope, and tokens that are {spec.kind} already, which cannot be turned",
                'give the spec scaling="token" or "head", or leave rope out',
            )
        self.max_batch = integer(max_batch, f"{what}: max_batch")
        count = integer(pages, f"{what}: pages")
        all_slots = min(count * spec.page_size, INT32)
        self.max_tokens = all_slots if max_tokens is None else integer(max_tokens, f"{what}: max_tokens")
        for name, value in (("pages", count), ("max_batch", self.max_batch), ("max_tokens", self.max_tokens)):
            if not 1 <= value <= INT32:
                raise InvalidProblemError(f"{what}: {name}={value}", f"give 1 to {INT32}: tables are of int32")
        self.pool = PagePool(count)
        self.prefixes = PrefixIndex(self.pool, spec.page_size)
        self.sequences: dict[int, PagedSequence] = {}
        self._counted: Counter[str] = Counter()
        self._next = 0
        self._staged = False
        columns = spec.pages_needed(self.max_tokens)
        self.arrays = PagedArrays(spec, count, self.max_batch, columns, memory_of(device, framework))

    def __repr__(self) -> str:
        spec, now = self.spec, self.statistics
        return (
            f"<bp.PagedKVCache of {spec.layers} layers, {now.pages} pages of {spec.page_size} tokens "
            f"({spec.kind}, {spec.layout}): {now.used} used, {now.cached} cached, {now.free} free; "
            f"{now.sequences} sequences, {now.tokens} tokens>"
        )

    # ---- sequences --------------------------------------------------------------------------------------------------

    def allocate(self, tokens: Tokens = 0, *, share: bool = True) -> PagedSequence:
        """A new sequence with slots for `tokens`, given as ids or as a number.

        The cached whole pages of its prefix are shared and need not be computed again. They hold `sequence.cached` tokens, at
        most all but one, so that one query remains. With ``share=False`` nothing is shared.
        """
        count, ids = tokens_of(tokens, "allocate")
        self._fits(0, count, "allocate")
        whole = max(count - 1, 0) // self.spec.page_size if share and ids else 0
        found = self.prefixes.match(ids or (), whole)
        resting = sum(self.prefixes.is_idle(page) for page in found)
        self._need(self.spec.pages_needed(count) - len(found), "allocate", resting)
        for page in found:
            self.pool.hold(page)
            self.prefixes.acquire(page)
        pages = [*found, *self._take(self.spec.pages_needed(count) - len(found))]
        cached = len(found) * self.spec.page_size
        self._counted["hits"] += cached
        return self._added(PagedSequence(self._next, count, cached, cached, pages, ids or []))

    def extend(self, additions: Mapping[PagedSequence, Tokens], *, stream: Any = None) -> None:
        """Gives every sequence slots for more tokens, or raises and gives none. A shared page that a token will be written to
        is replaced by a copy; all copies are queued on the stream in one launch."""
        if not isinstance(additions, Mapping):
            raise InvalidProblemError(
                f"extend: additions is a {type(additions).__name__}", "give tokens by sequence: {sequence: tokens}"
            )
        size, asked = self.spec.page_size, []
        copied: Counter[int] = Counter()
        needed = 0
        for sequence, tokens in additions.items():
            self._known(sequence, "extend")
            count, ids = tokens_of(tokens, "extend")
            self._fits(sequence.length, count, "extend")
            more = self.spec.pages_needed(sequence.length + count) - len(sequence.pages)
            copies = False
            if count and sequence.length % size:
                last = sequence.pages[-1]
                copies = self.pool.references[last] - copied[last] > 1
                copied[last] += copies
            needed += more + copies
            asked.append((sequence, count, ids, more, copies))
        self._need(needed, "extend")
        fresh = self._take(needed)
        ends = iter(fresh)
        replaced = {sequence: next(ends) for sequence, _, _, _, copies in asked if copies}
        try:
            self.arrays.copy([(sequence.pages[-1], page) for sequence, page in replaced.items()], stream)
        except BaseException:
            for page in reversed(fresh):
                self.pool.release(page)
            raise
        self._counted["copied"] += len(replaced)
        for sequence, count, ids, more, copies in asked:
            if copies:
                self._leave([sequence.pages.pop()])
                sequence.pages.append(replaced[sequence])
            sequence.pages += [next(ends) for _ in range(more)]
            sequence.version += bool(copies or more)
            if ids is not None and len(sequence.tokens) == sequence.length:
                sequence.tokens += ids
            sequence.length += count

    def truncate(self, sequence: PagedSequence, length: int) -> None:
        """Drops the tokens of a sequence from `length` on."""
        self._known(sequence, "truncate")
        kept = integer(length, "truncate: length")
        if not 0 <= kept <= sequence.length:
            raise InvalidProblemError(
                f"truncate: length={kept} of {sequence.length}", "give what the sequence has, or less"
            )
        whole = self.spec.pages_needed(kept)
        dropped = sequence.pages[whole:]
        del sequence.pages[whole:], sequence.tokens[kept:]
        self._leave(dropped)
        sequence.version += bool(dropped)
        sequence.length, sequence.written = kept, min(sequence.written, kept)
        sequence.cached = min(sequence.cached, kept)

    def fork(self, sequence: PagedSequence) -> PagedSequence:
        """A new sequence with the same tokens on the same pages. The first of the two that writes to the last page copies
        it."""
        self._known(sequence, "fork")
        if sequence.pending:
            raise InvalidProblemError(
                f"fork: {sequence.pending} tokens of sequence {sequence.number} are not written",
                "append and advance them first",
            )
        for page in sequence.pages:
            self.pool.hold(page)
        own = PagedSequence(self._next, sequence.length, sequence.written, 0, [*sequence.pages], [*sequence.tokens])
        return self._added(own)

    def free(self, sequence: PagedSequence) -> None:
        """Releases a sequence's pages; published pages stay cached until they are evicted."""
        self._known(sequence, "free")
        self.truncate(sequence, 0)
        del self.sequences[sequence.number]
        sequence.freed = True

    # ---- prefixes and places ----------------------------------------------------------------------------------------

    def publish(self, sequence: PagedSequence) -> int:
        """Lets later sequences share the whole written pages whose tokens are known. Returns the number of newly published
        pages."""
        self._known(sequence, "publish")
        whole = min(sequence.written, len(sequence.tokens)) // self.spec.page_size
        return self.prefixes.insert(sequence.tokens, sequence.pages[:whole])

    def shared_prefix(self, batch: Iterable[PagedSequence]) -> SharedPrefix:
        """The whole written pages that all sequences of a batch begin with, and each one's own pages and keys behind them, its
        pending tokens included: prefix_table, prefix_length, page_table and lengths as `cascade_attention` takes them, NumPy
        arrays on the host."""
        return shared_prefix_of(self._batch(batch, "shared_prefix"), self.spec.page_size)

    def evict(self, pages: int | None = None) -> int:
        """Evicts that many cached pages without a sequence (None: all), the least recently used first. Returns their number."""
        idle = len(self.prefixes.idle)
        count = idle if pages is None else min(idle, integer(pages, "evict: pages"))
        if count < 0:
            raise InvalidProblemError(f"evict: pages={count}", "give 0 or more")
        for _ in range(count):
            self.prefixes.evict()
        self._counted["evicted"] += count
        return count

    def defragment(self, *, stream: Any = None) -> int:
        """Moves pages, on the stream and in one launch, so that all held pages precede all free ones. Returns the number of
        moved pages. The lowest free page receives the lowest page behind the end, so the result is deterministic. Call `stage`
        again afterwards."""
        moves = self.pool.moves()
        self.arrays.copy(moves, stream)
        to = dict(moves)
        for sequence in self.sequences.values():
            sequence.version += any(page in to for page in sequence.pages)
            sequence.pages[:] = [to.get(page, page) for page in sequence.pages]
        self.prefixes.renumber(to)
        self.pool.renumber(moves)
        self._counted["moved"] += len(moves)
        return len(moves)

    # ---- the device -------------------------------------------------------------------------------------------------

    @property
    def page_table(self) -> Any:
        """int32 [max_batch, pages per sequence], on the device, as last staged. Entries behind a row's pages are undefined."""
        return self.arrays.table

    @property
    def lengths(self) -> Any:
        """int32 [max_batch]: the written tokens of each staged sequence before the append; 0 in unused rows."""
        return self.arrays.counts[0][:-1]

    @property
    def lengths_after(self) -> Any:
        """int32 [max_batch]: the tokens of each staged sequence after the append of pending tokens."""
        return self.arrays.counts[1][:-1]

    @property
    def cu_seqlens(self) -> Any:
        """int32 [max_batch + 1]: the offset of each staged sequence's pending tokens among all pending tokens."""
        return self.arrays.counts[2]

    def layer(self, layer: int) -> dict[str, Any]:
        """Views of a layer's `k_pages` and `v_pages`, and of `k_scales` and `v_scales` (f32, one per token and head) or
        `k_scale` and `v_scale` (f32 [kv_heads], initially 1)."""
        at = integer(layer, "layer")
        if not 0 <= at < self.spec.layers:
            raise InvalidProblemError(f"layer: layer={at} of {self.spec.layers}", f"give 0 to {self.spec.layers - 1}")
        return self.arrays.of_layer(at)

    def stage(self, batch: Iterable[PagedSequence], *, stream: Any = None) -> None:
        """Writes the tables of a batch to the device: row b is the b-th sequence."""
        sequences = self._batch(batch, "stage")
        if len(sequences) > self.max_batch or len(set(sequences)) < len(sequences):
            raise InvalidProblemError(
                f"stage: {len(sequences)} sequences, {len(set(sequences))} of them different",
                f"give {self.max_batch} at most, each once",
            )
        self.arrays.stage(sequences, stream)
        self._staged = True

    def append(
        self, layer: int, k: Any, v: Any, *, positions: Any = None, stream: Any = None, status: Any = None
    ) -> Any:
        """Appends the staged batch's pending tokens to a layer with `paged_kv_append`. k and v are [T, kv_heads, D], the tokens
        of all sequences in the batch's order; T may exceed their number. Returns the status, int32 [max_batch], by default the
        cache's own, one per layer. If the cache has a `rope`, keys are rotated by their position in the sequence, or by
        `positions`, int32 or int64 [T]."""
        if not self._staged:
            raise InvalidProblemError(
                "append: no batch is staged, so that no token has a place", "call cache.stage(batch) first"
            )
        rope_args: dict[str, Any] = {}
        if self.rope is not None:
            rope_args = {
                "inv_freq": self.rope.on(k),
                "attention_factor": self.rope.attention_factor,
                "style": self.style,
            }
        made = paged_kv_append(
            **self.layer(layer), k=k, v=v, page_table=self.page_table, lengths=self.lengths, cu_seqlens=self.cu_seqlens,
            layout=self.spec.layout, stream=stream,
            status=self.arrays.status[layer] if status is None else status, device=self.device,
            positions=positions, **rope_args,
        )  # fmt: skip
        return made.status

    def advance(self, batch: Iterable[PagedSequence]) -> None:
        """Marks the pending tokens of these sequences as written: they were appended in every layer (the launches are
        queued)."""
        for sequence in self._batch(batch, "advance"):
            sequence.written = sequence.length

    # ---- counts -----------------------------------------------------------------------------------------------------

    @property
    def statistics(self) -> CacheStatistics:
        """Computes the statistics over all pages of all sequences."""
        size = self.spec.page_size
        full: dict[int, int] = {}
        holders = Counter[int]()
        for sequence in self.sequences.values():
            holders.update(sequence.pages)
            for i, page in enumerate(sequence.pages):
                full[page] = max(full.get(page, 0), min(size, sequence.length - i * size))
        used, cached, filled = len(holders), len(self.prefixes.idle), sum(full.values())
        return CacheStatistics(
            pages=self.pool.total, used=used, shared=sum(n > 1 for n in holders.values()), cached=cached,
            free=len(self.pool.free), sequences=len(self.sequences), tokens=sum(s.length for s in self.sequences.values()),
            filled=filled, wasted=used * size - filled, bytes=(used + cached) * self.spec.bytes_per_page,
            copied=self._counted["copied"], moved=self._counted["moved"], evicted=self._counted["evicted"],
            hits=self._counted["hits"],
        )  # fmt: skip

    # ---- within -----------------------------------------------------------------------------------------------------

    def _added(self, sequence: PagedSequence) -> PagedSequence:
        self._next += 1
        self.sequences[sequence.number] = sequence
        return sequence

    def _known(self, sequence: PagedSequence, what: str) -> None:
        if not isinstance(sequence, PagedSequence) or self.sequences.get(sequence.number) is not sequence:
            raise InvalidProblemError(
                f"{what}: {sequence!r} is no sequence of this cache", "pass what allocate or fork gave"
            )

    def _batch(self, batch: Iterable[PagedSequence], what: str) -> list[PagedSequence]:
        if not isinstance(batch, Iterable):
            raise InvalidProblemError(f"{what}: batch is a {type(batch).__name__}", "give a list of sequences")
        sequences = list(batch)
        for sequence in sequences:
            self._known(sequence, what)
        return sequences

    def _fits(self, length: int, count: int, what: str) -> None:
        if length + count > self.max_tokens:
            raise InvalidProblemError(
                f"{what}: {length + count} tokens, and a sequence has {self.max_tokens} at most",
                "make a cache for longer ones",
            )

    def _need(self, pages: int, what: str, resting: int = 0) -> None:
        """Raises if there are too few pages. `resting` evictable pages are excluded, because the request shares them."""
        free, evictable = len(self.pool.free), len(self.prefixes.idle) - resting
        if pages > free + evictable:
            raise OutOfPagesError(
                f"{what}: {pages} pages are needed, {free} are free and {evictable} could be evicted", pages, free, evictable,
                "free or truncate sequences, or make a cache of more pages",
            )  # fmt: skip

    def _take(self, count: int) -> list[int]:
        """Takes free pages, after `_need` has checked that there are enough, and evicts if necessary."""
        if count > len(self.pool.free):
            self.evict(count - len(self.pool.free))
        return [self.pool.take() for _ in range(count)]

    def _leave(self, pages: list[int]) -> None:
        """Releases a sequence's pages, the last one first."""
        for page in reversed(pages):
            self.pool.release(page)
            self.prefixes.release(page)
