"""The gauntlet that every op of the registry runs: results, guards, repeats, bindings, variants, graphs, streams, refusals.

`cases` says which samples are run under which names, `parts` how a long test is shared out, `problem` lays one out and checks
it, `fresh` does so once more at other addresses, `aspects` and `refusals` are what is asked, `warm` compiles ahead.
"""

from .aspects import admissible, graph, other_stream, run, served, variants
from .cases import PER_VARIANT, SAMPLES, Case, cases, every_sample, few_of, samples_of, spread, spread_by_op
from .fresh import KINDS, CudaHome, Fresh, Home, HostHome, repeats, torch_over
from .parts import WHOLE, Part, in_parts
from .problem import Problem, named, parameters
from .refusals import Refusal, readable, readonly, refusals, refused, shared_memory
from .warm import warm, warm_op

__all__ = [
    "KINDS",
    "PER_VARIANT",
    "SAMPLES",
    "WHOLE",
    "Case",
    "CudaHome",
    "Fresh",
    "Home",
    "HostHome",
    "Part",
    "Problem",
    "Refusal",
    "admissible",
    "cases",
    "every_sample",
    "few_of",
    "graph",
    "in_parts",
    "named",
    "other_stream",
    "parameters",
    "readable",
    "readonly",
    "refusals",
    "refused",
    "repeats",
    "run",
    "samples_of",
    "served",
    "shared_memory",
    "spread",
    "spread_by_op",
    "torch_over",
    "variants",
    "warm",
    "warm_op",
]
