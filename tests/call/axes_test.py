"""Arithmetic on shapes and strides, against NumPy's."""

from __future__ import annotations

import random

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.tensor.axes import broadcast_shapes, broadcast_strides, c_strides

rng = random.Random(5)
PAIRS = [
    tuple(tuple(rng.choice((0, 1, 1, 2, 3)) for _ in range(rng.randrange(5))) for _ in range(rng.randrange(1, 4)))
    for _ in range(200)
]


def test_shapes_broadcast_as_in_numpy() -> None:
    refused = 0
    for shapes in PAIRS:
        try:
            wanted = np.broadcast_shapes(*shapes)
        except ValueError:
            refused += 1
            with pytest.raises(ValueError, match="do not broadcast"):
                broadcast_shapes(*shapes)
        else:
            assert broadcast_shapes(*shapes) == wanted
    assert 20 < refused < 180


@pytest.mark.parametrize("rank", [33, 64])
def test_more_axes_than_numpy_broadcasts(rank: int) -> None:
    shape = (2, *(1,) * (rank - 2), 3)
    assert broadcast_shapes(shape, (3,), ()) == shape
    device = "sm_90a"
    desc = bp.BinaryDescriptor("add", shape, (3,), "f32", "f32")
    assert bp.BinaryPlan.select(desc, device=device).launch_config[0].grid == (1, 1, 1)
    product = bp.MatmulDescriptor((*shape, 8, 8), (*shape, 8, 8), "f16", "f16")
    if rank == 33:
        assert bp.MatmulPlan.select(product, device=device).kernels
    else:
        with pytest.raises(bp.InvalidProblemError, match="a_shape has 66 axes"):
            bp.MatmulPlan.select(product, device=device)


def test_an_empty_array_has_the_strides_of_one_that_is_not() -> None:
    assert c_strides((3, 0, 5)) == (5, 5, 1)
    assert c_strides((0, 2, 3), bp.F32) == (6, 3, 1)
    assert c_strides((2, 3), bp.S4) == (4, 1)


def test_only_what_is_repeated_has_no_stride() -> None:
    assert broadcast_strides((1, 4), (7, 1), (1, 4)) == (7, 1)
    assert broadcast_strides((1, 4), (7, 1), (3, 4)) == (0, 1)
    assert broadcast_strides((4,), (2,), (5, 4)) == (0, 2)
