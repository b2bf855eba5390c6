"""A projection to queries, keys and values as a problem: operands of every kind of weights, three products, a rotation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ....packed.int4 import Int4Layout
from ....plan.descriptor import Descriptor, Slot, described, scalar
from ....plan.fields import choice
from ....plan.lowering import Place
from ....runtime.steps import Ptr
from ....tensor import Tensor
from ....tensor.axes import c_strides
from ....types import ElementKind, InvalidProblemError
from ....types.keeping import complete
from ...position.angles import ANGLES, STYLES, refuse_positions
from ...position.rope import POSITIONS, STATUS, RopeDescriptor
from .._arguments import flag
from ..int4.weight import HALVES, WORDS
from ..int8.gemv import Matrix
from ._packed import arrays_of_each, packing_of
from ._rotation import OF_ANGLES, check_heads, rotation_of
from ._weights import PARTS, WEIGHTS, Weights

__all__ = ["QkvProjectDescriptor"]

U8, I32 = ElementKind.U8, ElementKind.I32


def _of_each(name: str, **given: Any) -> Iterator[Slot]:
    """What each projection has of its own; {} is its name."""
    for part in PARTS:
        named: dict[str, Any] = {what: x.format(part) if isinstance(x, str) else x for what, x in given.items()}
        yield Slot(name.format(part), **named)


def _in_layout(name: str, what: str, **given: Any) -> Iterator[Slot]:
    """An operand of int4 weights, whose layout says its shape."""
    return _of_each(name, optional=True, shape=f"{what}_shape_{{}}", strided=False, **given)


def _each(of: Callable[[Any, str], tuple[int, ...]]) -> Iterator[property]:
    """A property of each projection."""
    return (property(lambda self, part=part: of(self, part)) for part in PARTS)  # type: ignore[misc]


def _in_words(what: str) -> Iterator[property]:
    return _each(lambda self, part: self.part(part).shapes[what])


@described(
    *_of_each("{}", role="out", shape="{}_shape", element="out_element"),
    STATUS,
    Slot("x", element="element"),
    *_of_each("w{}", shape="codes_shape_{}", element="w{}_element"),
    Slot("scale_x", optional=True),
    *_of_each("scale_{}", optional=True),
    *_in_layout("scales_{}", "scales", takes=HALVES),
    *_in_layout("zeros_{}", "points", takes=(U8, *WORDS)),
    *_in_layout("order_{}", "places", takes=(I32,), aligned=False),
    *_of_each("bias_{}", optional=True),
    POSITIONS,
    *ANGLES,
)
class QkvProjectDescriptor(Descriptor):
    """q, k, v = x wq + bias_q, x wk + bias_k, x wv + bias_v, each weight with scales of its own, of any width: x [..., K].

    `weights` "int8": [K, N] of i8, `wq_shape` and so on. `dynamic`: each row of floats x is quantised first, once for all three.
    "int4": codes of weights [K, `widths`], in one layout, `packing`, with a scale for `group_size` of K.
    With frequencies (`inv_freq_shape`) or tables (`cos_shape`, `sin_shape`) q and k are rotated, in heads of `head_dim` columns,
    at the positions 0, 1, ... along the last leading axis of x where there is no `positions_shape`.
    """

    needed: ClassVar[tuple[str, ...]] = (
        *(f"{name}{part}_shape" for name in ("w", "scale_") for part in PARTS), "widths", "group_size", "packing",
    )  # fmt: skip

    x_shape: tuple[int, ...]
    element: ElementKind
    weights: str = "int8"
    wq_shape: tuple[int, ...] | None = None
    wk_shape: tuple[int, ...] | None = None
    wv_shape: tuple[int, ...] | None = None
    wq_element: ElementKind | None = None
    wk_element: ElementKind | None = None
    wv_element: ElementKind | None = None
    widths: tuple[int, ...] | None = None
    group_size: int = 128
    packing: Int4Layout = Int4Layout.TILED
    out_element: ElementKind | None = None
    dynamic: bool = False
    head_dim: int | None = None
    style: str = "half"
    attention_factor: float = 1.0

    if TYPE_CHECKING:  # fields that the table puts in
        positions_shape: tuple[int, ...] | None = None
        inv_freq_shape: tuple[int, ...] | None = None
        cos_shape: tuple[int, ...] | None = None
        sin_shape: tuple[int, ...] | None = None

    q_shape, k_shape, v_shape = _each(lambda self, part: (*self.x_shape[:-1], self.width(part)))
    codes_shape_q, codes_shape_k, codes_shape_v = _each(lambda self, part: self.codes_shape(part))
    scales_shape_q, scales_shape_k, scales_shape_v = _in_words("scales")
    points_shape_q, points_shape_k, points_shape_v = _in_words("zeros")
    places_shape_q, places_shape_k, places_shape_v = _in_words("order")

    def __post_init__(self) -> None:
        self._names_op(tuple(WEIGHTS), "weights")
        self._member(STYLES, "style")
        super().__post_init__()
        complete(self, dynamic=flag(self.dynamic, f"{self.op}: dynamic"))
        factor = scalar(self.attention_factor, f"{self.op}: attention_factor")
        complete(self, attention_factor=factor)
        for part in PARTS:
            self._usual(f"w{part}_element", self.kind.codes)
            if self.weights == "int4":
                self._usual(f"scales_{part}_element", ElementKind.F16)
            if getattr(self, f"scale_{part}_shape") is not None:
                self._usual(f"scale_{part}_element", ElementKind.F32)
        for name in ("cos", "sin", "inv_freq"):
            if getattr(self, f"{name}_shape") is not None:
                self._usual(f"{name}_element", ElementKind.F32)
        if self.positions_shape is not None:
            self._usual("positions_element", ElementKind.I64)

    def _usual(self, field: str, kind: ElementKind) -> None:
        if getattr(self, field) is None:
            complete(self, **{field: kind})

    @property
    def op(self) -> str:
        return f"qkv_project_{self.weights}"

    @property
    def kind(self) -> Weights:
        """What its weights are."""
        return WEIGHTS[self.weights]

    @classmethod
    def of(
        cls, x: Any, wq: Any, wk: Any, wv: Any, scale_q: Any = None, scale_k: Any = None, scale_v: Any = None, *,
        scale_x: Any = None, scales_q: Any = None, scales_k: Any = None, scales_v: Any = None, zeros_q: Any = None,
        zeros_k: Any = None, zeros_v: Any = None, order_q: Any = None, order_k: Any = None, order_v: Any = None,
        bias_q: Any = None, bias_k: Any = None, bias_v: Any = None, positions: Any = None, inv_freq: Any = None, cos: Any = None,
        sin: Any = None, q: Any = None, k: Any = None, v: Any = None, status: Any = None, widths: Any = None,
        group_size: int | None = None, layout: Any = None, out_dtype: Any = None, dynamic: bool = False,
        head_dim: int | None = None, style: str = "half", attention_factor: float = 1.0, weights: str = "int8",
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout; `wq`, `wk` and `wv` may be PackedInt4, in place of all that describes them."""
        op = f"qkv_project_{choice(tuple(WEIGHTS))(weights, 'QkvProjectDescriptor: weights')}"
        own: dict[str, Any] = {"widths": widths, "group_size": 128 if group_size is None else group_size}
        arrays: dict[str, Any] = {
            "wq": wq, "wk": wk, "wv": wv, "scales_q": scales_q, "scales_k": scales_k, "scales_v": scales_v, "zeros_q": zeros_q,
            "zeros_k": zeros_k, "zeros_v": zeros_v, "order_q": order_q, "order_k": order_k, "order_v": order_v,
        }  # fmt: skip
        if weights == "int4":
            arrays, own = arrays_of_each(op, arrays, widths, group_size, layout)
            layout = own.pop("layout")
        tensors = cls.taken(op, {
            "q": q, "k": k, "v": v, "status": status, "x": x, "scale_x": scale_x, "scale_q": scale_q, "scale_k": scale_k,
            "scale_v": scale_v, **arrays, "bias_q": bias_q, "bias_k": bias_k, "bias_v": bias_v, "positions": positions,
            "inv_freq": inv_freq, "cos": cos, "sin": sin,
        })  # fmt: skip
        options: dict[str, Any] = {"weights": weights, "dynamic": dynamic, "head_dim": head_dim}
        options |= {"style": choice(STYLES)(style, f"{op}: style")}
        options |= {"attention_factor": attention_factor, **own}
        if weights == "int4":
            options |= packing_of(op, tensors, own["widths"], own["group_size"], layout)
        else:
            options |= {f"w{part}_shape": tensors[f"w{part}"].shape for part in PARTS}
            options |= {} if layout in (None, "tiled") else {"packing": layout}
        options |= {} if out_dtype is None else {"out_element": ElementKind.of(out_dtype)}
        return cls.of_tensors(tensors, **options)

    # ---- the three products -----------------------------------------------------------------------------------------

    @property
    def outputs(self) -> tuple[str, ...]:
        """What the products make."""
        return PARTS

    def width(self, part: str) -> int:
        if self.weights == "int4":
            return self.widths[PARTS.index(part)] if self.widths and len(self.widths) == len(PARTS) else 0
        return (getattr(self, f"w{part}_shape") or (0,))[-1]

    def codes_shape(self, part: str) -> tuple[int, ...]:
        if self.weights == "int4":
            return tuple(self.part(part).shapes["codes"])
        return getattr(self, f"w{part}_shape") or ()

    def default_element(self, name: str) -> ElementKind:
        found: ElementKind = self.part("q").default_element("out")
        return found

    def part(self, part: str) -> Any:
        """One of the products."""
        return self.kind.part(self, part, self.width(part))

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """The products, canonical, and what their operands are called here."""

        def renames(part: str) -> Mapping[str, Place]:
            return {theirs: Ptr(ours) for theirs, ours in self.kind.operands(part).items()}

        made = tuple(Matrix(self.part(part).canonical(), renames(part)) for part in PARTS)
        for part, matrix in zip(PARTS, made):
            with self._within(matrix.desc, f"of {part}"):
                _ = matrix.desc.product  # refuses rows that are not evenly spaced
        return made

    # ---- the rotation -----------------------------------------------------------------------------------------------

    @property
    def rotates(self) -> bool:
        """Whether angles are given."""
        return self.inv_freq_shape is not None or self.cos_shape is not None or self.sin_shape is not None

    @cached_property
    def rotation(self) -> RopeDescriptor:
        """That of q and k, where there are angles."""
        return rotation_of(self)

    def has(self, name: str) -> bool:
        return self.cos_shape is not None if name == "status" else super().has(name)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The shape of what there is one of a position."""
        return self.positions_shape or self.x_shape[-2:-1] or (1,)

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        refuse_positions(self, tensors)

    # ---- validity ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self._check_kind()
        for part in PARTS:
            shape = getattr(self, f"w{part}_shape")
            if self.weights == "int8" and (
                shape is None or len(shape) != 2 or not self.x_shape or shape[0] != self.x_shape[-1]
            ):
                raise InvalidProblemError(
                    f"{self.op}: x has shape {self.x_shape} and w{part} {shape}", "pass x [..., K] and weights [K, N]"
                )
        for part in PARTS:
            inner = self.part(part)
            with self._within(inner, f"of {part}"):
                inner.validate()
        if self.rotates:
            check_heads(self)
            with self._within(self.rotation, "the rotation"):
                self.rotation.validate()
            return
        for name, usual in OF_ANGLES.items():
            if getattr(self, name) != usual:
                given = f"{self.op}: {name.removesuffix('_shape')} was given and no angles"
                raise InvalidProblemError(given, "give inv_freq, or cos and sin")

    @contextlib.contextmanager
    def _within(self, inner: Descriptor, what: str) -> Iterator[None]:
        """What a part of the problem refuses is refused by this op."""
        try:
            yield
        except (InvalidProblemError, TypeError, NotImplementedError) as error:
            reason, fix = str(getattr(error, "reason", error)).removeprefix(f"{inner.op}: "), getattr(error, "fix", "")
            raise type(error)(f"{self.op}: {what}: {reason}", fix) from None

    def _check_kind(self) -> None:
        """Nothing is given that only other weights have, and codes in words are in C order."""
        if self.weights == "int4" and (not self.x_shape or len(self.widths or ()) != len(PARTS)):
            raise InvalidProblemError(
                f"{self.op}: x has shape {self.x_shape} and widths={self.widths}",
                "pass x [..., K], and the widths of q, k and v",
            )
        for other, kind in WEIGHTS.items():
            if other == self.weights:
                continue
            mine = {name for part in PARTS for name in self.kind.operands(part).values()}
            theirs = {name for part in PARTS for name in kind.operands(part).values()} - mine
            given = [name for name in theirs if self.has(name)]
            given += [name for name, usual in kind.options.items() if getattr(self, name) != usual]
            if given:
                raise InvalidProblemError(f"{self.op}: {sorted(given)[0]} is of {other} weights", "leave it out")
        if self.weights == "int4":
            for part in PARTS:
                self._check_packed(f"w{part}")

    def _check_packed(self, name: str) -> None:
        given = getattr(self, f"{name}_strides")
        if given is not None and self.layout(name).strides != c_strides(self.layout(name).shape):
            raise InvalidProblemError(f"{self.op}: {name} has strides {given}", f"pass {name} in C order")
