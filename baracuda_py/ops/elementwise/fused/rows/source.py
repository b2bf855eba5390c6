"""The C++ of a graph with statistics of rows, as kernels/elementwise/rows.cu takes it."""

from __future__ import annotations

from collections.abc import Sequence

from .._kinds import Typed
from .._source import body, parts
from .statistics import REDUCERS

__all__ = ["graph_struct", "ordered"]


def ordered(typed: Typed) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The statistics of a graph in the order in which they can be computed, and the first of each pass over the row: one that
    takes no other is of the first."""
    graph, depths = typed.graph, dict[str, int]()
    for place, node in enumerate(graph.nodes):
        if node.op in REDUCERS:
            inner = graph.used([a for a in node.args if isinstance(a, str)])
            depths[f"t{place + 1}"] = 1 + max((depth for name, depth in depths.items() if name in inner), default=-1)
    names = tuple(sorted(depths, key=lambda name: depths[name]))
    counts = [sum(depth < p for depth in depths.values()) for p in range(max(depths.values(), default=-1) + 2)]
    return names, tuple(counts)


def graph_struct(typed: Typed) -> str:
    """What is put before the kernel: the functors of rows, the struct Graph and the reducers."""
    (names, first), graph = ordered(typed), typed.graph
    shared, headers = parts(typed)
    known = {name: f"r[{place}]" for place, name in enumerate(names)}
    terms = [body(typed, str(graph.node(name).args[0]), known) for name in names]
    results = [body(typed, output, known) for output in graph.outputs]
    passes = " ".join(f"if (pass == {p}) return {at};" for p, at in enumerate(first[:-1]))
    reducers = "".join(
        f"template <class C> struct Reducers<{place}, C> {{ using type = {REDUCERS[graph.node(name).op]}; }};\n"
        for place, name in enumerate(names)
    )
    return (
        "".join(f'#include "{header}"\n' for header in (*headers, "rows/reducers.cuh")) + shared
        + f"struct Graph {{  // fuse: {graph}\n  static constexpr int COUNT = {len(names)}, PASSES = {len(first) - 1};\n"
        + f"  static constexpr __device__ int first(int pass) {{ {passes} return COUNT; }}\n"
        + _chosen("term", graph.names, terms) + _chosen("result", graph.names, results) + "};\n"
        + "template <int S, class C> struct Reducers;\n" + reducers
    )  # fmt: skip


def _chosen(name: str, inputs: Sequence[str], bodies: Sequence[str]) -> str:
    """A function of one of several bodies, by a template argument."""
    parameters = ", ".join((*(f"C {x}" for x in inputs), "const C* r"))
    cases = " else ".join(f"if constexpr (K == {place}) {{ {text} }}" for place, text in enumerate(bodies))
    return (
        f"  template <int K, int digits, class C> static __device__ __forceinline__ C {name}({parameters}) {{\n"
        f"    {cases}\n  }}\n"
    )
