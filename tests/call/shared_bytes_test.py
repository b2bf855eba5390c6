"""Whether two views share a byte: against brute force over the bytes, and undecided where the work would have no bound."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.tensor import Tensor, overlap, overlaps, same_view
from baracuda_py.tensor.axes import rows_may_overlap
from baracuda_py.types import ElementKind

BASE = 1 << 20
KINDS = (bp.U8, bp.BF16, bp.F32, bp.COMPLEX128, bp.S4, bp.U4, bp.S4, bp.U4, bp.BIN)


def view(
    kind: ElementKind, shape: tuple[int, ...], strides: tuple[int, ...], place: int = 0, ordinal: int = 0
) -> Tensor:
    """A view whose first element is element `place` of memory at BASE."""
    pointer, phase = BASE + place * kind.bits // 8, place % kind.per_byte
    return Tensor(pointer, shape, strides, kind, ordinal, "cupy", phase=phase)


def touched(tensor: Tensor) -> set[int]:
    """The bytes of a view, one element after another."""
    places = np.zeros(tensor.shape, np.int64) + tensor.phase
    for axis, (extent, stride) in enumerate(zip(tensor.shape, tensor.strides)):
        places += (np.arange(extent) * stride).reshape([-1 if a == axis else 1 for a in range(len(tensor.shape))])
    first = np.unique(places * tensor.element.bits // 8) + tensor.pointer
    return set((first[:, None] + np.arange(max(tensor.element.bits // 8, 1))).ravel().tolist())


def drawn(rng: np.random.Generator) -> Tensor:
    """A view of up to three axes, of any kind, beginning anywhere, of strides that step, stand, and turn back."""
    kind = KINDS[rng.integers(len(KINDS))]
    rank = int(rng.integers(0 if not kind.packed else 1, 4))
    shape = tuple(int(n) for n in rng.integers(0 if rng.random() < 0.05 else 1, 7, rank))
    reach = 9 * kind.per_byte
    strides = [int(s) for s in rng.integers(-reach, reach + 1, rank)]
    if rank and rng.random() < 0.5:
        strides[-1] = int(rng.choice([1, -1, 2, -2, 3]))
    return view(kind, shape, tuple(strides), int(rng.integers(-30, 60)) * kind.per_byte + int(rng.integers(8)))


def test_overlap_is_exact_on_the_bytes_touched() -> None:
    rng = np.random.default_rng(0)
    seen: Counter[tuple[int, bool]] = Counter()
    for _ in range(4000):
        a, b = drawn(rng), drawn(rng)
        truth = bool(touched(a) & touched(b))
        if any(overlap._views(t) is None for t in (a, b)):
            assert bp.BIN in (a.element, b.element), "nibbles in three axes are always decided"
            assert overlaps(a, b) >= truth
            continue
        assert overlaps(a, b) == overlaps(b, a) == truth, (a, b)
        seen[a.element.packed + b.element.packed, truth] += 1
    assert min(seen[packed, truth] for packed in range(3) for truth in (False, True)) > 100, seen


def test_each_view_overlaps_itself_and_no_empty_view() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        a = drawn(rng)
        assert same_view(a, a)
        assert overlaps(a, a) == (0 not in a.shape)


@pytest.mark.parametrize(
    ("a", "b", "meet"),
    [
        # nibbles 0, 8, …, 120 are in bytes 0, 4, …, 60
        (view(bp.S4, (16,), (8,)), view(bp.U8, (8,), (1,), 32), True),
        (view(bp.S4, (16,), (8,)), view(bp.U8, (3,), (1,), 33), False),
        (view(bp.S4, (2,), (1,), 1), view(bp.U8, (1,), (1,), 1), True),  # nibbles 1 and 2
        (view(bp.S4, (2,), (1,), 1), view(bp.U8, (1,), (1,), 2), False),
        (view(bp.S4, (1,), (1,), 0), view(bp.S4, (1,), (1,), 1), True),  # two halves of one byte
        (view(bp.U4, (4,), (-1,), 7), view(bp.U8, (1,), (1,), 1), False),  # nibbles 7 to 4, backwards
        (view(bp.U4, (4,), (-1,), 7), view(bp.U8, (1,), (1,), 2), True),
        (view(bp.S4, (3, 5), (6, 1)), view(bp.U8, (1,), (1,), 8), True),  # the last nibble of the last odd row
        (view(bp.S4, (3, 5), (6, 1)), view(bp.U8, (1,), (1,), 9), False),
        (view(bp.BIN, (3,), (8,), 7), view(bp.U8, (1,), (1,), 2), True),
        (view(bp.BIN, (3,), (9,), 7), view(bp.U8, (1,), (1,), 1), False),  # bits 7, 16, 25
        # the first bytes of words: steps of whole bytes need not be split, however many there are
        (view(bp.BIN, (5, 5, 5, 8), (800, 160, 32, 1)), view(bp.U8, (1,), (1,), 5), False),
        (view(bp.BIN, (5, 5, 5, 8), (800, 160, 32, 1)), view(bp.U8, (1,), (1,), 8), True),
    ],
)
def test_packed_views(a: Tensor, b: Tensor, meet: bool) -> None:
    assert bool(touched(a) & touched(b)) == meet
    assert overlaps(a, b) == overlaps(b, a) == meet


def test_rows_that_do_not_meet_share_no_byte() -> None:
    """Where it is said that no two rows of a packed view meet, none do: threads write rows without regard for each other."""
    rng = np.random.default_rng(2)
    seen: Counter[bool] = Counter()
    while min(seen[False], seen[True]) < 200:
        x = drawn(rng)
        if not x.element.packed:
            continue
        meet = rows_may_overlap(x.shape, x.strides, x.element, x.phase)
        seen[meet] += 1
        lines = [sum(i * s for i, s in zip(at, x.strides)) for at in np.ndindex(x.shape[:-1])]
        rows = [touched(view(x.element, x.shape[-1:], x.strides[-1:], x.phase + first)) for first in lines]
        assert meet or sum(map(len, rows)) == len(set().union(*rows)), x


@pytest.mark.parametrize(
    ("shape", "strides", "meet"),
    [
        ((3, 5), (6, 1), False),  # whole bytes each
        ((2, 3), (3, 1), True),  # the second begins in the first's last byte
        ((2, 3, 1), (7, 3, 1), True),  # of elements 0, 3, 6, 7, 10, 13 two are in byte 3
        ((3, 1), (0, 1), True),
        ((0, 2, 3), (9, 3, 1), False),  # nothing, along an axis that is uneven
    ],
)
def test_rows_of_nibbles(shape: tuple[int, ...], strides: tuple[int, ...], meet: bool) -> None:
    assert rows_may_overlap(shape, strides, bp.S4) is meet


def test_phase_distinguishes_views() -> None:
    first, second = view(bp.S4, (3,), (2,), 0), view(bp.S4, (3,), (2,), 1)
    assert first.pointer == second.pointer
    assert not same_view(first, second)


def test_undecided_counts_as_overlap() -> None:
    """A subset sum that NumPy gives up on within the work allowed."""
    shape = (46,) * 6
    x = view(bp.U8, shape, (104900, 562986, 1092220, 1039064, 869208, 1945676))
    y = view(bp.U8, shape, (1019496, 770882, 1243440, 1889946, 1924450, 478106), 12177486)
    pair = [np.asarray(overlap._views(t)[0]) for t in (x, y)]  # type: ignore[index]
    with pytest.raises(np.exceptions.TooHardError):
        np.shares_memory(*pair, max_work=overlap._MAX_CANDIDATES)
    assert overlaps(x, y)
    assert overlaps(y, x)


def test_too_many_ways_into_a_byte_count_as_overlap() -> None:
    """Seven axes of odd steps are 2**7 views of bytes, none of them a run."""
    scattered = view(bp.S4, (2,) * 7, (101, 1001, 10001, 100001, 1000001, 10000001, 100000001))
    assert overlap._views(scattered) is None
    assert overlaps(scattered, view(bp.U8, (1,), (1,), 20))
    assert not overlaps(scattered, view(bp.U8, (1,), (1,), -1)), "outside the interval there is nothing to decide"


def test_what_numpy_cannot_hold_counts_as_overlap() -> None:
    """More bytes, and at greater distances, than NumPy's 64 bits."""
    huge = Tensor(BASE, (1 << 40, 1 << 40), (1 << 41, 1 << 20), bp.U8, 0, "cupy")
    assert overlaps(huge, view(bp.U8, (1,), (1,), 5))


def test_other_devices_never_overlap() -> None:
    assert not overlaps(view(bp.U8, (4,), (1,)), view(bp.U8, (4,), (1,), ordinal=1))
