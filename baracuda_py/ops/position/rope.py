"""rope: rotary position embedding of queries and keys, and its gradient, which is the rotation by the negative angle."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

from ...plan.descriptor import Slot, described, scalar
from ...plan.fields import integer
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee
from .._function import DerivedArgs, SignatureRules, function_of
from .._rows import FLOATS
from . import oracle, samples
from ._pairs import RotatePairs, guarantee_of
from ._problem import Roped
from .angles import ANGLES
from .scaling import RopeScaling, plain

__all__ = [
    "STATUSES",
    "RopeBackwardDescriptor",
    "RopeBackwardPlan",
    "RopeDescriptor",
    "RopePlan",
    "rope",
    "rope_backward",
]

POSITIONS = Slot("positions", optional=True, takes=(ElementKind.I32, ElementKind.I64), aligned=False)
R = TypeVar("R", bound=Roped)
STATUS = Slot("status", "out", element=ElementKind.I32, shape="tokens", strided=False, aligned=False)
STATUSES = {1: ("the position is outside of cos and sin", "pass longer tables, or positions from 0 to their rows - 1")}


@described(
    Slot("out", "out", takes=FLOATS), Slot("k_out", "out", takes=FLOATS, shape="k_out_shape", element="element"), STATUS,
    Slot("x", takes=FLOATS), Slot("k", optional=True, takes=FLOATS), POSITIONS, *ANGLES,
)  # fmt: skip
class RopeDescriptor(Roped):
    """x of `shape` in `head_layout`, beside a k with its own head count where there is a `k_shape`, rotated by frequencies
    (`inv_freq_shape`) or by tables (`cos_shape`, `sin_shape`), at the positions 0, 1, ... where there is no `positions_shape`."""

    name: ClassVar[str] = "rope"
    names: ClassVar[Mapping[str, str]] = {"out": "x", "k_out": "k"}

    @classmethod
    def of(
        cls, x: Any, k: Any = None, positions: Any = None, inv_freq: Any = None, cos: Any = None, sin: Any = None,
        out: Any = None, k_out: Any = None, status: Any = None, *, style: str = "half", layout: str = "BHSD",
        offset: float = 0.0, attention_factor: float = 1.0,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout."""
        arrays = {
            "out": out, "k_out": k_out, "status": status, "x": x, "k": k, "positions": positions, "inv_freq": inv_freq,
            "cos": cos, "sin": sin,
        }  # fmt: skip
        return cls.of_arrays(arrays, style=style, head_layout=layout, offset=offset, attention_factor=attention_factor)

    @property
    def k_out_shape(self) -> tuple[int, ...] | None:
        return self.shape_of("k")


@described(
    Slot("grad_x", "out", takes=FLOATS), Slot("grad_k", "out", takes=FLOATS, shape="grad_k_shape", element="element"), STATUS,
    Slot("grad", takes=FLOATS), Slot("k_grad", optional=True, takes=FLOATS), POSITIONS, *ANGLES,
)  # fmt: skip
class RopeBackwardDescriptor(Roped):
    """The gradient of `rope`, whose fields it has; `k_grad` is the gradient of k_out."""

    name: ClassVar[str] = "rope_backward"
    names: ClassVar[Mapping[str, str]] = {"grad_x": "grad", "grad_k": "k_grad"}
    inverse: ClassVar[bool] = True

    @classmethod
    def of(
        cls, grad: Any, k_grad: Any = None, positions: Any = None, inv_freq: Any = None, cos: Any = None, sin: Any = None,
        grad_x: Any = None, grad_k: Any = None, status: Any = None, *, style: str = "half", layout: str = "BHSD",
        offset: float = 0.0, attention_factor: float = 1.0,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout."""
        arrays = {
            "grad_x": grad_x, "grad_k": grad_k, "status": status, "grad": grad, "k_grad": k_grad, "positions": positions,
            "inv_freq": inv_freq, "cos": cos, "sin": sin,
        }  # fmt: skip
        return cls.of_arrays(arrays, style=style, head_layout=layout, offset=offset, attention_factor=attention_factor)

    @property
    def grad_k_shape(self) -> tuple[int, ...] | None:
        return self.shape_of("k_grad")


def _probes(second: str) -> tuple[Mapping[str, Any], ...]:
    """Both styles and kinds of angles, vectors and elements, one operand and two."""
    dense = {"shape": (2, 4, 17, 128), f"{second}_shape": (2, 2, 17, 128), "inv_freq_shape": (64,)}
    tables = {"cos_shape": (40, 32), "sin_shape": (40, 32), "positions_shape": (9,), "positions_element": "i32"}
    return (
        *({**dense, "element": e} for e in ("bf16", "f32", "f64")),
        {**tables, "shape": (9, 3, 80), "element": "f16", "head_layout": "THD"},
        {"shape": (3, 5, 2, 7), "element": "f32", "inv_freq_shape": (3,), "head_layout": "BSHD", "style": "interleaved"},
    )  # fmt: skip


class _RotationPlan(Plan[R]):
    """Both directions: what differs is in the descriptors."""

    category = OpCategory.ATTENTION
    candidates = (RotatePairs(),)
    measures = oracle.MEASURES
    reference = oracle.rope

    @staticmethod
    def reference_guarantee(desc: R) -> PrecisionGuarantee:
        return oracle.guarantee(desc, guarantee_of(desc))


class RopePlan(_RotationPlan[RopeDescriptor]):
    """A rotation: operands `x`, `out`, and as the problem has them `k`, `k_out`, `positions`, `inv_freq` or `cos`, `sin` and
    `status`."""

    descriptor = RopeDescriptor
    statuses = STATUSES
    probes = _probes("k")


class RopeBackwardPlan(_RotationPlan[RopeBackwardDescriptor]):
    """A rotation's gradient: operands `grad`, `grad_x`, and as the problem has them `k_grad`, `grad_k`, `positions`, `inv_freq`
    or `cos`, `sin` and `status`."""

    descriptor = RopeBackwardDescriptor
    statuses = STATUSES
    probes = _probes("k_grad")


GIVEN = ("inv_freq", "cos", "sin", "base", "scaling", "rotary_dim", "attention_factor")  # by which angles come about


def _angles(
    name: str, x: Any, inv_freq: Any, cos: Any, sin: Any, base: float | None, scaling: RopeScaling | None,
    rotary_dim: int | None, factor: float | None,
) -> tuple[Any, Any]:  # fmt: skip
    """inv_freq and attention_factor (None where it is 1), the frequencies put in where neither they nor tables are given."""
    given = inv_freq is not None or cos is not None or sin is not None
    if scaling is None and given:
        if base is not None or rotary_dim is not None:
            raise InvalidProblemError(
                f"{name}: {'base' if base is not None else 'rotary_dim'} was given beside the angles themselves",
                "leave it out: inv_freq and tables have a column a pair",
            )
        return inv_freq, factor
    scaling = _frequencies(name, x, given, base, scaling, rotary_dim)
    if scaling is None:
        return None, factor
    own = None if scaling.attention_factor == 1.0 else scaling.attention_factor
    return scaling.on(x), own if factor is None else factor


def _signature_rules(descriptor: type[RopeDescriptor] | type[RopeBackwardDescriptor]) -> SignatureRules:
    """How either function reads its arguments."""
    (_, x), (k_out, k) = descriptor.names.items()
    derived = DerivedArgs(("inv_freq", "attention_factor"), (x, *GIVEN), partial(_angles, descriptor.name))
    return SignatureRules(wanted={k_out: k, "status": "cos"}, derived=derived)


def _frequencies(
    name: str, x: Any, given: bool, base: float | None, scaling: RopeScaling | None, rotary_dim: int | None
) -> RopeScaling | None:
    """The frequencies of a call that names a base or a scaling; None of what is no array, which describing it refuses."""
    if scaling is None:
        try:
            width = integer(x.shape[-1] if rotary_dim is None else rotary_dim, f"{name}: rotary_dim")
        except Exception:  # whatever a foreign array's shape raises
            if rotary_dim is not None:
                raise
            return None
        if width < 2 or width % 2:
            raise InvalidProblemError(
                f"{name}: rotary_dim={width}{', the columns of a head' if rotary_dim is None else ''}",
                "give rotary_dim=, the even number of columns that are rotated, 2 or more",
            )
        return plain(width, scalar(10000.0 if base is None else base, f"{name}: base"))
    if not isinstance(scaling, RopeScaling):
        raise InvalidProblemError(
            f"{name}: scaling is a {type(scaling).__name__}", "pass what RopeScaling.plain, .linear, .yarn, ... return"
        )
    if given or base is not None or rotary_dim is not None:
        raise InvalidProblemError(f"{name}: scaling was given beside other frequencies", "leave either out")
    return scaling


@function_of(RopePlan, rules=_signature_rules(RopeDescriptor))
def rope(
    x: Any, positions: Any = None, *, k: Any = None, cos: Any = None, sin: Any = None, inv_freq: Any = None,
    base: float | None = None, scaling: RopeScaling | None = None, rotary_dim: int | None = None, style: str = "half",
    layout: str = "BHSD", offset: int = 0, attention_factor: float | None = None, out: Any = None, k_out: Any = None,
    status: Any = None,
) -> Any:  # fmt: skip
    """Rotary position embedding of x and, in the same launch, of k: pair i of each head turns by position * inv_freq[i].

    x: [B, H, S, D] ([H, S, D] or [S, D]), with layout="BSHD" [B, S, H, D] ([S, H, D]), with "THD" [T, H, D]; f16, bf16, f32 or
    f64, any strides. k: the same with a head count of its own. positions: device int32 or int64 [S], [B, S] or [T], by
    default 0, 1, ...; `offset`, a run-time whole number, is added to either.
    style: a pair is columns i and i + rotary_dim / 2 ("half": Llama, GPT-NeoX), or 2 i and 2 i + 1 ("interleaved": GPT-J).
    Columns from rotary_dim on are copied.
    Angles come from one of: base**(-2 i / rotary_dim), base 10000 and rotary_dim D by default; scaling, a `RopeScaling`;
    inv_freq, f32 [rotary_dim / 2] (position * inv_freq is exact, its reduction good to 2**-67, for angles below 2**40 and
    positions to 2**53); cos and sin, tables of f32 or x's dtype, [positions, rotary_dim / 2]. Frequencies of a base or a scaling
    are rounded to f32 whatever x's dtype: angles of more digits need tables of f64. A position outside of the tables is never
    read there: its columns that would turn are 0, and status (int32, of the positions' shape, 0 otherwise) says 1. A call on a
    GPU does not wait for it, so it raises nothing: look at the status. On ``device="cpu"`` and ``"ptx"`` such a
    position raises InvalidProblemError, unless `status` is given.
    attention_factor multiplies what turns; by default scaling's, else 1. A run-time value.
    Returns out, or the named tuple (out, k_out, status) of those that there are. Each is allocated if not given; out may be x,
    and k_out k. Computed in f32 (f64 for f64) and rounded once.
    """


@function_of(RopeBackwardPlan, rules=_signature_rules(RopeBackwardDescriptor))
def rope_backward(
    grad: Any, positions: Any = None, *, k_grad: Any = None, cos: Any = None, sin: Any = None, inv_freq: Any = None,
    base: float | None = None, scaling: RopeScaling | None = None, rotary_dim: int | None = None, style: str = "half",
    layout: str = "BHSD", offset: int = 0, attention_factor: float | None = None, grad_x: Any = None, grad_k: Any = None,
    status: Any = None,
) -> Any:  # fmt: skip
    """The gradients of `rope` with respect to x and k: the rotation of the results' gradients by the negative angles.

    grad: the gradient of out, k_grad that of k_out; all else as `rope` was given it. Returns grad_x, or the named tuple (grad_x,
    grad_k, status) of those that there are; grad_x may be grad, and grad_k k_grad.
    """


_SAVES, _GIVES = ("positions", "inv_freq", "cos", "sin"), {"x": "grad_x", "k": "grad_k"}
_gradient = Gradient("rope_backward", _SAVES, _GIVES, more={"k_out": "k_grad"})
register(Op("rope", RopePlan, rope, samples.rope, gradient=_gradient))
register(Op("rope_backward", RopeBackwardPlan, rope_backward, samples.rope_backward))
