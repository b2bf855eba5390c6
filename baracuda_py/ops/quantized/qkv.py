"""qkv_project_int8: queries, keys and values of the same tokens, of weights of a byte. `WEIGHTS` lists what weights may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

from ...plan.descriptor import Descriptor, Slot, described
from ...plan.lowering import Place
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...reference import int8_projection as oracle
from ...runtime.steps import Ptr
from ...samples import int8_projection as samples
from ...types import ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee
from .._function import function_of
from ._flag import flag
from ._int8_gemv import Matrix
from ._projections import FusedGemv, ThreeProducts
from .int8 import Int8MatmulDescriptor

__all__ = ["QkvProjectDescriptor", "QkvProjectPlan", "qkv_project_int8"]

WEIGHTS = ("int8",)
PARTS = ("q", "k", "v")
OF_WEIGHT = {"b": "w{}", "scale_b": "scale_{}", "bias": "bias_{}", "out": "{}"}  # a product's operands, and ours
FIELDS = ("shape", "element", "strides", "align")


@described(
    *(Slot(part, "out", shape=f"{part}_shape", element="out_element") for part in PARTS),
    Slot("x", element="element"),
    *(Slot(f"w{part}") for part in PARTS),
    Slot("scale_x", optional=True),
    *(Slot(f"scale_{part}", optional=True) for part in PARTS),
    *(Slot(f"bias_{part}", optional=True) for part in PARTS),
)
class QkvProjectDescriptor(Descriptor):
    """q, k, v = x wq + bias_q, x wk + bias_k, x wv + bias_v, each weight with scales of its own, of any width: x [..., K].

    `dynamic`: each row of floats x is quantised first, once for all three.
    """

    x_shape: tuple[int, ...]
    wq_shape: tuple[int, ...]
    wk_shape: tuple[int, ...]
    wv_shape: tuple[int, ...]
    element: ElementKind
    wq_element: ElementKind = ElementKind.I8
    wk_element: ElementKind = ElementKind.I8
    wv_element: ElementKind = ElementKind.I8
    out_element: ElementKind | None = None
    dynamic: bool = False
    weights: str = "int8"

    def __post_init__(self) -> None:
        self._member(WEIGHTS, "weights")
        super().__post_init__()
        object.__setattr__(self, "dynamic", flag(self.dynamic, f"{self.op}: dynamic"))

    @property
    def op(self) -> str:
        return f"qkv_project_{self.weights}"

    @classmethod
    def of(
        cls, x: Any, wq: Any, wk: Any, wv: Any, scale_q: Any = None, scale_k: Any = None, scale_v: Any = None, *,
        scale_x: Any = None, bias_q: Any = None, bias_k: Any = None, bias_v: Any = None, q: Any = None, k: Any = None,
        v: Any = None, out_dtype: Any = None, dynamic: bool = False, weights: str = "int8",
    ) -> Self:  # fmt: skip
        """The descriptor of arrays as they lie."""
        tensors = cls.taken(f"qkv_project_{weights}", {
            "q": q, "k": k, "v": v, "x": x, "wq": wq, "wk": wk, "wv": wv, "scale_x": scale_x, "scale_q": scale_q,
            "scale_k": scale_k, "scale_v": scale_v, "bias_q": bias_q, "bias_k": bias_k, "bias_v": bias_v,
        })  # fmt: skip
        options = {} if out_dtype is None else {"out_element": ElementKind.of(out_dtype)}
        return cls.of_tensors(tensors, dynamic=dynamic, weights=weights, **options)

    # ---- the three products -----------------------------------------------------------------------------------------

    @property
    def outputs(self) -> tuple[str, ...]:
        return PARTS

    def _width(self, part: str) -> tuple[int, ...]:
        return (*self.x_shape[:-1], *getattr(self, f"w{part}_shape")[-1:])

    @property
    def q_shape(self) -> tuple[int, ...]:
        return self._width("q")

    @property
    def k_shape(self) -> tuple[int, ...]:
        return self._width("k")

    @property
    def v_shape(self) -> tuple[int, ...]:
        return self._width("v")

    def default_element(self, name: str) -> ElementKind:
        return self.part("q").default_element("out")

    def part(self, part: str) -> Int8MatmulDescriptor:
        """One of the products."""
        own: dict[str, Any] = {"a_shape": self.x_shape, "a_element": self.element}
        own |= {f"a_{what}": getattr(self, f"x_{what}") for what in ("strides", "align")}
        own |= {f"scale_a_{what}": getattr(self, f"scale_x_{what}") for what in FIELDS}
        for theirs, ours in OF_WEIGHT.items():
            for what in FIELDS if theirs != "out" else ("strides", "align"):
                own[f"{theirs}_{what}"] = getattr(self, f"{ours.format(part)}_{what}")
        return Int8MatmulDescriptor(**own, out_element=self.out_element, dynamic=self.dynamic)

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """The products, canonical, and what their operands are called here."""

        def called(part: str) -> dict[str, Place]:
            own = {name: Ptr(ours.format(part)) for name, ours in OF_WEIGHT.items()}
            return {"a": Ptr("x"), "scale_a": Ptr("scale_x"), **own}

        return tuple(Matrix(self.part(part).canonical(), called(part)) for part in PARTS)

    @staticmethod
    def of_codes(part: Int8MatmulDescriptor, pitch: int) -> Int8MatmulDescriptor:
        """A product of floats as that of their codes, whose rows are `pitch` bytes apart."""
        own, i8 = part.product, ElementKind.I8
        return replace(
            part, dynamic=False, a_shape=(own.m, own.k), a_element=i8, a_strides=(pitch, 1), a_align=16, scale_a_shape=(own.m,),
            scale_a_element=ElementKind.F32, out_strides=(own.out.row, own.out.col),
        )  # type: ignore[call-arg]  # fmt: skip

    def check(self) -> None:
        for part in PARTS:
            shape = getattr(self, f"w{part}_shape")
            if len(shape) != 2 or not self.x_shape or shape[0] != self.x_shape[-1]:
                raise InvalidProblemError(
                    f"{self.op}: x has shape {self.x_shape} and w{part} {shape}", "pass x [..., K] and weights [K, N]"
                )
        for part in PARTS:
            try:
                self.part(part).validate()
            except (InvalidProblemError, TypeError, NotImplementedError) as error:
                raise type(error)(f"{self.op}: of {part}: {_reason(error)}", getattr(error, "fix", "")) from None


def _reason(error: Any) -> str:
    return str(getattr(error, "reason", error))


def _probes() -> Iterator[dict[str, Any]]:
    for m, element, more in (
        (1, "bf16", {}), (7, "i8", {}), (512, "bf16", {}), (512, "f16", {"dynamic": True}), (16, "f16", {"out_element": "f32"}),
    ):  # fmt: skip
        made: dict[str, Any] = {"x_shape": (m, 1024), "element": element, **more}
        for part, n in zip(PARTS, (1024, 256, 128)):
            made |= {f"w{part}_shape": (1024, n), f"w{part}_strides": (1, 1024)}
            made |= {f"scale_{part}_shape": (n,), f"scale_{part}_element": "f32"}
            made |= {f"bias_{part}_shape": (n,), f"bias_{part}_element": "f32"} if m == 7 else {}
        yield made


class QkvProjectPlan(Plan[QkvProjectDescriptor]):
    """Queries, keys and values of the same tokens: operands `x`, `wq`, `wk`, `wv`, `q`, `k`, `v`, and those of `scale_x`,
    `scale_q`, `scale_k`, `scale_v`, `bias_q`, `bias_k`, `bias_v` that it has."""

    descriptor = QkvProjectDescriptor
    category = OpCategory.GEMM
    candidates = (FusedGemv(), ThreeProducts())
    measures = oracle.MEASURES
    probes = tuple(_probes())

    @classmethod
    def reference(cls, desc: QkvProjectDescriptor, **arrays: Any) -> Any:
        return oracle.project(desc, **arrays)

    @classmethod
    def reference_guarantee(cls, desc: QkvProjectDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc)


@function_of(QkvProjectPlan)
def qkv_project_int8(
    x: Any, wq: Any, wk: Any, wv: Any, scale_q: Any = None, scale_k: Any = None, scale_v: Any = None, *, scale_x: Any = None,
    bias_q: Any = None, bias_k: Any = None, bias_v: Any = None, out_dtype: Any = None, dynamic: bool = False, q: Any = None,
    k: Any = None, v: Any = None,
) -> Any:  # fmt: skip
    """Queries, keys and values of the same tokens: x wq * scale_q + bias_q, and likewise of k and v, x being read once.

    x: [..., K], f16 or bf16, or i8 or u8 with `scale_x`. wq, wk, wv: [K, N] of i8, each of a width of its own, as grouped
    queries have them. Scales, biases, `out_dtype`, `dynamic`: as for `matmul_int8`.
    Returns the named tuple (q, k, v), [..., N] each, all of one dtype: by default x's, of bytes f32 (i32 without scales).
    """


register(Op("qkv_project_int8", QkvProjectPlan, qkv_project_int8, samples.project, {"weights": "int8"}))
