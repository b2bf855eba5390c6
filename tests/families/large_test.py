"""Problems of more than 2**31 elements: 64-bit indices from end to end. Needs about 20 GiB of device memory."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bp

MORE = (1 << 31) + 512
COVERS = ("write_slice", "contiguize", "add", "relu")
pytestmark = [pytest.mark.gpu, pytest.mark.heavy]


def _pattern(count: int) -> object:
    import cupy

    return (cupy.arange(count, dtype=np.uint32) * np.uint32(2654435761) >> np.uint32(24)).astype(np.uint8)


def test_elementwise_beyond_32_bits() -> None:
    x = _pattern(MORE)
    y = bp.add(x, x)
    assert bool((y == x + x).all())
    del y
    assert bool((bp.relu(x) == x).all())


def test_a_broadcast_beyond_32_bits() -> None:
    row = _pattern(1 << 16)
    column = _pattern((1 << 15) + 3).reshape(-1, 1)
    y = bp.add(column, row)
    assert y.size > 1 << 31
    for i in (0, 1, 1 << 14, (1 << 15) + 2):
        assert bool((y[i] == row + column[i]).all())


def test_a_window_beyond_32_bits() -> None:
    import cupy

    dest = cupy.zeros(((1 << 16) + 8, (1 << 15) + 16), np.uint8)
    source = _pattern((1 << 16) * 32768).reshape(1 << 16, 32768)
    bp.write_slice(dest, source, [(8, (1 << 16) + 8), (5, 32773)])
    assert bool((dest[8:, 5:32773] == source).all())
    assert not bool(dest[:8].any()) and not bool(dest[:, :5].any()) and not bool(dest[:, 32773:].any())


def test_a_transpose_beyond_32_bits() -> None:
    x = _pattern(((1 << 16) + 64) * 32768).reshape((1 << 16) + 64, 32768)
    y = bp.contiguize(x.T)
    assert bool((x == y.T).all())


def test_a_stepped_view_beyond_32_bits() -> None:
    x = _pattern(2 * MORE).reshape(-1, 2)[:, 1]
    assert bool((bp.contiguize(x) == x).all())


def test_short_rows_of_large_stride() -> None:
    """Gaps of almost 2**31 bytes are 32-bit numbers, and a few of them are not."""
    import cupy

    dest, source = cupy.zeros((4, (1 << 31) - (1 << 16)), np.uint8), _pattern(4 * 37).reshape(4, 37)
    bp.write_slice(dest, source, [(0, 4), (5, 42)], pref=bp.PlanPreference(variant="short_runs"))
    assert bool((dest[:, 5:42] == source).all())
    for row in range(4):
        assert int(cupy.count_nonzero(dest[row])) == int(cupy.count_nonzero(source[row]))


def test_more_short_rows_than_a_launch_has() -> None:
    import cupy

    dest, source = cupy.zeros((1 << 26, 64), np.uint8), _pattern((1 << 26) * 63).reshape(1 << 26, 63)
    bp.write_slice(dest, source, [(0, 1 << 26), (1, 64)], pref=bp.PlanPreference(variant="short_runs"))
    assert bool((dest[:, 1:] == source).all())
    assert not bool(dest[:, 0].any())
