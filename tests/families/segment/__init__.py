"""Reductions of segments of rows, and of bags of a table's rows."""

from __future__ import annotations

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from .independent import CHECKS

__all__ = ["FAMILY"]

LONG = ("one segment", "long and short ones", "more pieces than shares")
BAGS = tuple(f"long bags, {reduce}" for reduce in ("sum", "mean", "max"))
SEGMENTS = tuple(name for name in CHECKS if not name.startswith("embedding") and name != "segment_offsets")
IDS, TABLE = np.zeros((2, 3), np.int64), np.zeros((4, 5))
BAG, BACK = ("embedding_bag", (IDS, TABLE)), ("embedding_bag_backward", (np.zeros((2, 5)), IDS, TABLE))
FAMILY = Family(
    independent=CHECKS,
    always=("grad_x", "grad_weight", "reduce", "padding_idx"),
    also={
        **dict.fromkeys(SEGMENTS, LONG),
        **dict.fromkeys(("segment_softmax", "segment_softmax_backward"), ("long and short ones",)),
        "embedding_bag": BAGS,
        "embedding_bag_backward": ("long bags, sum", "equal ids, mean", "weights of rows of ids", "three digits"),
    },
    no_meaning=(
        *(
            NoMeaning(
                op,
                (arrays, {"mode": "drop", "status": np.array(7, np.int32)}),
                bp.InvalidProblemError,
                "operand 'status'",
            )
            for op, arrays in (
                *(
                    (f"segment_{by}", (np.zeros(3), np.array([0, 3])))
                    for by in ("sum", "mean", "max", "min", "prod", "logsumexp", "softmax")
                ),
                BAG,
            )
        ),
        *(
            NoMeaning(op, (arrays, options), bp.InvalidProblemError, says)
            for op, arrays in (BAG, BACK)
            for options, says in (
                ({"offsets": np.array([0, 1])}, "pass an input of shape"),
                ({"include_last_offset": True}, "there are no offsets"),
                ({"per_sample_weights": np.ones((2, 3))}, "per_sample_weights with reduce='mean'"),
            )
        ),
        NoMeaning(BACK[0], (BACK[1], {"grad_per_sample_weights": np.ones((2, 3))}), bp.InvalidProblemError, "grad_per"),
    ),
    cases={
        "segment_test.py::test_more_segments_than_a_search_step_has_places": 0,
        "segment_test.py::test_softmax_of_refused_offsets_is_0": ("cpu",),
        "bags_test.py::test_order_follows_from_the_bag_alone": 0,
        "segment_test.py::test_refusals": 12,
        "bags_test.py::test_refusals": 12,
        "segment_test.py::test_half_is_summed_in_single_precision": ("cpu",),
        "segment_test.py::test_segments_of_any_length": ("2",),
        "segment_test.py::test_refused_offsets_read_nothing": 5,
        "bags_test.py::test_ties_share_the_gradient_of_a_maximum": 0,
        "bags_test.py::test_what_is_out_of_range_is_left_out": ("sum-cpu", "mean-cpu", "max-cpu"),
        "bags_test.py::test_bags_of_any_length": 0,
    },
)
