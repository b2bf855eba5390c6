"""PagedKVCache and KVCacheSpec: sizes, sharing, eviction, tables, quantised pages, every framework, and refusals."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

from ...gauntlet import readable

SPEC = bp.KVCacheSpec(2, 2, 8, 4, page_size=4, element="f32")


def made(pages: int = 8, spec: bp.KVCacheSpec = SPEC, **more: Any) -> bp.PagedKVCache:
    return bp.PagedKVCache(spec, pages, **{"max_batch": 3, "device": "cpu", **more})


def write(cache: bp.PagedKVCache, batch: list[bp.PagedSequence], value: float = 1.0) -> None:
    """Appends what is pending: `value` for every key, its negative for every value."""
    cache.stage(batch)
    count, spec = sum(s.pending for s in batch), cache.spec
    for layer in range(spec.layers):
        k, v = (np.full((count, spec.kv_heads, spec.page_shape(part)[2]), value, np.float32) for part in "kv")
        assert not np.asarray(cache.append(layer, k, -v)).any()
    cache.advance(batch)


def held(cache: bp.PagedKVCache, sequence: bp.PagedSequence, layer: int = 1) -> list[float]:
    """The first number of each written key, as the sequence's table finds it."""
    pages, size = np.asarray(cache.layer(layer)["k_pages"]), cache.spec.page_size
    return [float(pages[sequence.pages[i // size], i % size, 0, 0]) for i in range(sequence.written)]


def filled(cache: bp.PagedKVCache, tokens: list[int], value: float = 1.0) -> bp.PagedSequence:
    sequence = cache.allocate(tokens)
    write(cache, [sequence], value)
    cache.publish(sequence)
    return sequence


def test_a_cache_says_what_it_holds() -> None:
    cache = bp.PagedKVCache(bp.KVCacheSpec(2, 1, 4, page_size=4, element="f16", layout="HND"), 8, device="cpu")
    cache.allocate([1, 2, 3, 4, 5])
    assert repr(cache) == (
        "<bp.PagedKVCache of 2 layers, 8 pages of 4 tokens (f16, HND): 2 used, 0 cached, 6 free; 1 sequences, 5 tokens>"
    )


# ---- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "pages"), [(0, 0), (1, 1), (64, 1), (65, 2), (100, 2), (128, 2), (129, 3), (2048, 32)]
)
def test_pages_needed(tokens: int, pages: int) -> None:
    assert bp.KVCacheSpec(1, 1, 64).pages_needed(tokens) == pages


def test_bytes_by_hand() -> None:
    llama = bp.KVCacheSpec(32, 8, 128)
    assert llama.bytes_per_token_per_layer == 2 * 8 * 128 * 2
    assert llama.bytes_per_page == 64 * 32 * 4096
    assert llama.bytes_per_layer(2048) == 2048 * 4096
    assert llama.bytes_total(2048) == 32 * 2048 * 4096
    assert llama.pages_that_fit(10 * llama.bytes_per_page - 1) == 9
    mla = bp.KVCacheSpec(61, 1, 576, 512, element="fp8_e4m3")
    assert (mla.scaling, mla.bytes_per_token_per_layer) == ("token", 576 + 512 + 8)
    assert bp.KVCacheSpec(1, 4, 64, element=bp.I8, scaling="head").bytes_per_token_per_layer == 2 * 4 * 64


def test_numbers_beyond_32_and_64_bits() -> None:
    large = bp.KVCacheSpec(layers=128, kv_heads=128, head_dim=128, element="f32")
    assert large.bytes_per_layer(131072) == 131072 * 128 * 128 * 2 * 4 == 2**34
    assert large.bytes_total(10**15 * 64) == 10**15 * 64 * 128 * 128 * 128 * 8


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"layers": 0}, "layers=0"), ({"kv_heads": -1}, "kv_heads=-1"), ({"head_dim": 2.5}, "head_dim"),
        ({"page_size": 0}, "page_size=0"), ({"layout": "DHN"}, "NHD, HND"), ({"element": "f64"}, "element=f64"),
        ({"scaling": False, "element": "i8"}, "none, token, head"), ({"scaling": "", "element": "i8"}, "none, token, head"),
        ({"scaling": "token"}, "scaling='token' of bf16"), ({"scaling": "page", "element": "i8"}, "none, token, head"),
    ],
)  # fmt: skip
def test_a_spec_that_makes_no_sense(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(bp.BaracudaError) as caught:
        bp.KVCacheSpec(**{"layers": 1, "kv_heads": 1, "head_dim": 8, **wrong})
    readable(caught.value, "KVCacheSpec", says)


# ---- sharing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_a_fork_copies_before_it_writes(device: str) -> None:
    cache = made(device=device)
    a = filled(cache, [1, 2, 3, 4, 5, 6])
    b = cache.fork(a)
    assert b.pages == a.pages
    assert cache.statistics.shared == 2
    cache.extend({a: [7], b: [8]})
    assert (a.pages[0], a.pages[1] != b.pages[1]) == (b.pages[0], True)
    assert cache.statistics.copied == 1  # the second of the two has the page for itself by then
    write(cache, [a], 2.0)
    write(cache, [b], 3.0)
    assert held(cache, a) == [1.0] * 6 + [2.0]
    assert held(cache, b) == [1.0] * 6 + [3.0]


def test_a_prompt_finds_what_is_cached_of_it() -> None:
    cache = made(12)
    a = filled(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9], 5.0)
    b = cache.allocate([1, 2, 3, 4, 5, 6, 7, 8, 1])
    assert (b.cached, b.pending, b.pages[:2]) == (8, 1, a.pages[:2])
    assert held(cache, b) == [5.0] * 8
    assert cache.allocate([1, 2, 3, 4, 5, 6, 7, 8]).cached == 4  # one token is left to attend from
    assert cache.allocate([1, 2, 3, 4, 5, 6, 0, 8, 9]).cached == 4
    assert cache.allocate([0, 2, 3, 4, 5]).cached == cache.allocate([1, 2, 3, 4, 5], share=False).cached == 0
    assert cache.statistics.hits == 16


def test_tokens_are_compared_and_not_their_hashes() -> None:
    class Token(int):
        def __hash__(self) -> int:
            return 1

    cache = made()
    filled(cache, [Token(i) for i in (1, 2, 3, 4, 5)])
    assert cache.allocate([Token(i) for i in (4, 3, 2, 1, 5)]).cached == 0
    assert hash(-1) == hash(-2)
    filled(cache, [-1, 0, 0, 0, 0])
    assert cache.allocate([-2, 0, 0, 0, 0]).cached == 0


def test_two_that_computed_the_same_do_not_mix_their_pages() -> None:
    """What follows a page that another has published is its own: a page's parents are those of its sequence."""
    cache = made()
    a, b = cache.allocate([1] * 5), cache.allocate([1] * 9)
    write(cache, [a, b])
    assert (cache.publish(a), cache.publish(b)) == (1, 0)
    cache.free(a)
    cache.free(b)
    assert (cache.statistics.cached, cache.evict(), cache.statistics.free) == (1, 1, 8)


def test_what_is_pending_is_not_shared() -> None:
    cache = made()
    a = cache.allocate([1, 2, 3, 4, 5])
    assert cache.publish(a) == 0
    write(cache, [a])
    assert (cache.publish(a), cache.publish(a)) == (1, 0)


def test_the_longest_unused_prefix_goes_first() -> None:
    cache = made(6)
    first, second = filled(cache, [1] * 5), filled(cache, [2] * 5)
    cache.free(first)
    cache.free(second)
    cache.free(cache.allocate([1] * 5))  # used again: the other one is older now
    assert (cache.statistics.cached, cache.statistics.free) == (2, 4)
    cache.allocate(5 * SPEC.page_size)
    assert cache.statistics.evicted == 1
    assert cache.prefixes.match([1] * 5, 1)
    assert not cache.prefixes.match([2] * 5, 1)


def test_a_prefix_that_is_found_is_not_evicted_for_what_follows() -> None:
    cache = made(3, max_tokens=20)
    cache.free(filled(cache, [1] * 9))  # two whole pages stay
    found = cache.allocate([1] * 12)  # both are taken, and the third
    assert (found.cached, cache.statistics.evicted) == (8, 0)
    cache.free(found)
    with pytest.raises(bp.OutOfPagesError):
        cache.allocate([1] * 16)
    assert cache.statistics.cached == 2


# ---- out of pages --------------------------------------------------------------------------------------------------------


def test_a_batch_is_extended_as_a_whole_or_not_at_all() -> None:
    cache = made(4)
    a, b = filled(cache, [1, 2, 3, 4]), filled(cache, [5])
    before = (a.pages[:], b.pages[:], cache.statistics)
    with pytest.raises(bp.OutOfPagesError) as caught:
        cache.extend({a: [1], b: [2] * 8})
    readable(caught.value, "extend", "3 pages are needed, 2 are free and 0 could be evicted")
    assert (caught.value.needed, caught.value.free, caught.value.evictable) == (3, 2, 0)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.needed) == (str(caught.value), 3)
    assert (a.pages, b.pages, cache.statistics) == before
    assert (a.length, b.length, a.tokens) == (4, 1, [1, 2, 3, 4])


def test_a_copy_needs_a_page_too() -> None:
    cache = made(1, max_tokens=8)
    a = filled(cache, [1, 2])
    b = cache.fork(a)
    with pytest.raises(bp.OutOfPagesError) as caught:
        cache.extend({b: [3]})
    assert (caught.value.needed, caught.value.free) == (1, 0)
    cache.free(a)
    cache.extend({b: [3]})  # no other sequence has the page now
    assert cache.statistics.copied == 0


def test_a_copy_that_fails_leaves_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = made()
    a = filled(cache, [1, 2])
    b = cache.fork(a)
    before = (a.pages[:], cache.statistics, [*cache.pool.free])

    def broken(*_: Any) -> None:
        raise bp.DriverError("no")

    monkeypatch.setattr(cache.arrays, "copy", broken)
    with pytest.raises(bp.DriverError):
        cache.extend({a: [3]})
    assert (a.pages, cache.statistics, cache.pool.free) == before
    assert b.pages == a.pages


# ---- defragmentation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_defragmentation_moves_pages_and_rewires_tables(device: str) -> None:
    def layout() -> Any:
        cache = made(8, device=device)
        kept = [filled(cache, [i] * 5, float(i)) for i in range(1, 5)]
        cache.free(kept.pop(2))
        cache.free(kept.pop(0))
        cache.evict()
        cache.stage(kept)
        assert cache.defragment() == 2
        assert sorted(page for s in kept for page in s.pages) == [0, 1, 2, 3]
        assert [held(cache, s) for s in kept] == [[2.0] * 5, [4.0] * 5]
        assert cache.allocate([2] * 6).cached == 4  # prefixes have moved too
        cache.stage(kept)
        table = np.asarray(cache.page_table)
        assert [table[b, :2].tolist() for b in range(2)] == [s.pages for s in kept]
        return [s.pages for s in kept]

    assert layout() == layout() == [[2, 3], [0, 1]]


# ---- tables --------------------------------------------------------------------------------------------------------------


def test_tables_stay_where_they_are() -> None:
    cache = made()
    names = ("page_table", "lengths", "lengths_after", "cu_seqlens")
    before = [getattr(cache, name).ctypes.data for name in names]
    a, b = cache.allocate([1] * 6), cache.allocate([2])
    cache.stage([a, b])
    assert cache.page_table[:2, :2].tolist() == [[0, 1], [2, 0]]
    assert cache.lengths.tolist() == [0, 0, 0]
    assert cache.lengths_after.tolist() == [6, 1, 0]
    assert cache.cu_seqlens.tolist() == [0, 6, 7, 7]
    write(cache, [a, b])
    cache.extend({b: [3, 4, 5, 6]})
    cache.stage([b])
    assert (cache.lengths.tolist(), cache.lengths_after.tolist()) == ([1, 0, 0], [5, 0, 0])
    assert cache.page_table[0, :2].tolist() == b.pages
    assert [getattr(cache, name).ctypes.data for name in names] == before


def test_pages_that_only_changed_places_are_written() -> None:
    """A sequence whose number of pages stays gets a new last page where the old one was shared."""
    cache = made()
    a = filled(cache, [1, 2])
    cache.stage([a])
    b = cache.fork(a)
    cache.extend({a: [3]})
    cache.stage([a, b])
    assert cache.page_table[:2, 0].tolist() == [a.pages[0], b.pages[0]]


# ---- elements, frameworks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize(
    ("element", "scaling"), [("i8", "token"), ("fp8_e4m3", "token"), ("i8", "head"), ("bf16", None)]
)
def test_quantized_pages_are_copied_with_their_scales(device: str, layout: str, element: str, scaling: Any) -> None:
    spec = bp.KVCacheSpec(1, 2, 8, page_size=4, element=element, layout=layout, scaling=scaling)
    cache = made(spec=spec, device=device)
    of_layer = cache.layer(0)
    if scaling == "head":
        of_layer["k_scale"][...] = of_layer["v_scale"][...] = 0.25
    a = cache.allocate(6)
    cache.stage([a])
    k = np.random.default_rng(0).standard_normal((6, 2, 8)).astype(np.float32)
    k = k if element != "bf16" else k.astype(bp.BF16.dtype)
    assert not cache.append(0, k, -k).any()
    cache.advance([a])
    b = cache.fork(a)
    cache.extend({b: [1]})
    for sequence in (a, b):
        for part, sign in (("k", 1), ("v", -1)):
            pages = of_layer[f"{part}_pages"].astype(np.float64)
            scales = of_layer.get(f"{part}_scales")
            if layout == "HND":
                pages, scales = np.swapaxes(pages, 1, 2), None if scales is None else np.swapaxes(scales, 1, 2)
            scale = 1.0 if scaling is None else 0.25 if scaling == "head" else scales[..., None]
            stored = (pages * scale)[sequence.pages].reshape(8, 2, 8)[:6]
            assert np.abs(stored - sign * k.astype(np.float64)).max() < 0.2


@pytest.mark.parametrize("element", ["bf16", "fp8_e4m3"])
def test_torch_tensors(element: str) -> None:
    torch = pytest.importorskip("torch")
    spec = bp.KVCacheSpec(2, 2, 8, page_size=4, element=element)
    cache = made(spec=spec, framework="torch")
    a = cache.allocate([1, 2, 3, 4, 5, 6])
    cache.stage([a])
    k = torch.ones((6, 2, 8), dtype=torch.bfloat16)
    assert isinstance(cache.append(1, k, -k), torch.Tensor)
    cache.advance([a])
    b = cache.fork(a)
    cache.extend({b: [7]})
    pages = cache.layer(1)["v_pages"].to(torch.float32)
    assert (pages[b.pages[1], :2] == (-1 if element == "bf16" else -448)).all()


# ---- keys that are rotated ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_a_cache_with_rope_turns_keys_by_their_places(device: str) -> None:
    """A prompt, then two sequences that go on from different lengths; positions may be given instead."""
    scaling = bp.RopeScaling.yarn(8, 4.0, 64)
    cache = made(rope=scaling, style="interleaved", device=device)
    rng = np.random.default_rng(2)

    def written(batch: list[bp.PagedSequence], at: list[int], **given: Any) -> None:
        cache.stage(batch)
        k, v = (rng.standard_normal((len(at), 2, columns)).astype(np.float32) for columns in (8, 4))
        assert not cache.append(1, k, v, **given).any()
        rotated = bp.rope(k, np.array(at), scaling=scaling, style="interleaved", layout="THD", device=device)
        after = [(s, i) for s in batch for i in range(s.written, s.length)]
        for (sequence, i), key, value in zip(after, rotated, v, strict=True):
            held = cache.layer(1)
            assert np.array_equal(held["k_pages"][sequence.pages[i // 4], i % 4], key)
            assert np.array_equal(held["v_pages"][sequence.pages[i // 4], i % 4], value)
        cache.advance(batch)

    first, second = cache.allocate(6), cache.allocate(3)
    written([first, second], [*range(6), *range(3)])
    cache.extend({first: 1, second: 2})
    written([second, first], [3, 4, 6])
    cache.extend({first: 1})
    written([first], [70], positions=np.array([70], np.int32))


def test_a_rope_that_does_not_fit() -> None:
    given = {"spec": replace(SPEC, element="i8", scaling="none"), "rope": bp.RopeScaling.plain(4)}
    for wrong, says in (
        ({"rope": bp.RopeScaling.plain(16)}, "8 pairs"), ({"style": "neox"}, "half, interleaved"), (given, "i8 already"),
        ({"style": "interleaved"}, "style='interleaved' was given and no rope"),
    ):  # fmt: skip
        with pytest.raises(bp.InvalidProblemError) as caught:
            made(**wrong)
        readable(caught.value, "PagedKVCache", says)
    cache = made()
    cache.stage([cache.allocate(1)])
    with pytest.raises(bp.InvalidProblemError, match="positions was passed and no angles"):
        cache.append(0, np.ones((1, 2, 8), np.float32), np.ones((1, 2, 4), np.float32), positions=np.zeros(1, np.int32))


def test_an_unknown_framework() -> None:
    with pytest.raises(bp.InvalidProblemError, match="cupy"):
        made(framework="cupy")


# ---- refusals ----------------------------------------------------------------------------------------------------------


def test_refusals_change_nothing() -> None:
    cache, other = made(), made()
    a, foreign = filled(cache, [1, 2, 3, 4, 5]), other.allocate(1)
    freed = cache.allocate(1)
    cache.free(freed)
    before = (cache.statistics, a.pages[:])
    for call, says in (
        (lambda: cache.extend({a: -1}), "-1 tokens"),
        (lambda: cache.extend({a: [1.5]}), "a token's id"),
        (lambda: cache.extend({a: 33}), "38 tokens, and a sequence has 32"),
        (lambda: cache.extend({foreign: 1}), "no sequence of this cache"),
        (lambda: cache.extend({a: 1, freed: 1}), "freed"),
        (lambda: cache.truncate(a, 6), "length=6 of 5"),
        (lambda: cache.truncate(a, -1), "length=-1"),
        (lambda: cache.free(freed), "free: <PagedSequence 1: freed> is no sequence of this cache"),
        (lambda: cache.fork(foreign), "no sequence of this cache"),
        (lambda: cache.stage([a, a]), "2 sequences, 1 of them different"),
        (lambda: cache.layer(2), "layer=2 of 2"),
        (lambda: cache.allocate(True), "give their ids"),
        (lambda: cache.allocate(None), "give their ids"),  # type: ignore[arg-type]
        (lambda: cache.allocate(np.array(3)), "give their ids"),
        (lambda: cache.extend([a]), "extend: additions is a list"),  # type: ignore[arg-type]
        (lambda: cache.stage(a), "stage: batch is a PagedSequence"),  # type: ignore[arg-type]
        (lambda: cache.advance(None), "advance: batch is a NoneType"),  # type: ignore[arg-type]
        (lambda: cache.evict(-1), "evict: pages=-1"),
        (lambda: bp.PagedKVCache({}, 1, device="cpu"), "spec is a dict"),  # type: ignore[arg-type]
        (lambda: bp.PagedKVCache(SPEC, 1, rope="yarn", device="cpu"), "rope is a str"),  # type: ignore[arg-type]
        (lambda: bp.PagedKVCache(SPEC, 0, device="cpu"), "pages=0"),
        (lambda: bp.PagedKVCache(SPEC, 2**31, device="cpu"), "pages=2147483648"),
        (lambda: bp.PagedKVCache(SPEC, 1, max_tokens=2**31, device="cpu"), "max_tokens=2147483648"),
    ):  # fmt: skip
        with pytest.raises(bp.InvalidProblemError) as caught:
            call()
        readable(caught.value, "", says)
        assert (cache.statistics, a.pages) == before


def test_a_fork_waits_for_what_is_pending() -> None:
    cache = made()
    a = cache.allocate([1, 2])
    with pytest.raises(bp.InvalidProblemError, match="2 tokens of sequence 0 are not written"):
        cache.fork(a)


def test_append_before_any_batch_is_staged_is_refused() -> None:
    cache = bp.PagedKVCache(bp.KVCacheSpec(layers=1, kv_heads=1, head_dim=16, element="f32"), pages=4, device="cpu")
    sequence, k = cache.allocate(3), np.ones((3, 1, 16), "f4")
    with pytest.raises(bp.InvalidProblemError, match=r"stage\(batch\) first"):
        cache.append(0, k, k)
    cache.stage([sequence])
    assert not cache.append(0, k, k).any()
