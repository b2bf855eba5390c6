"""The op registry: one Op per public name, registered by its family's table. Everything else iterates over it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ..runtime.compile.sources import add_kernels_dir
from ..tensor.dispatch import trace_as_op
from ..types import InvalidProblemError, UnsupportedError
from ..types.deprecated import renamed_fields
from ..types.names import ALIASES
from .about.asked import answer_about
from .about.search import found, squeezed
from .family import Family

if TYPE_CHECKING:
    from ..samples.wanted import Wanted

__all__ = [
    "Gradient",
    "Op",
    "all_ops",
    "all_wanted",
    "composed",
    "composed_functions",
    "find",
    "function_named",
    "get_op",
    "list_ops",
    "names_of",
    "register",
    "summary",
]

GROUP = "baracuda_py.ops"  # of entry points
F = TypeVar("F", bound=Callable[..., Any])
Samples: TypeAlias = Callable[..., Iterator[Any]]


@renamed_fields(saves="saved", gives="gradients", called="renames")
@dataclass(frozen=True)
class Gradient:
    """The op that computes the gradients of another op. `grad` is its operand for the gradient of the result, `more` are its
    operands for the gradients of further results, by result. `saved` are the operands of the forward call that it takes, under
    the same names except for those in `renames`. `gradients` maps each forward operand to the output that is its gradient, as
    far as the call has them. With `broadcast`, operands that the forward call broadcasts have gradients of the common shape,
    which the caller sums over the axes that they were broadcast along. `shapes` are those of `saved` of which only the shape and
    the kind count: any array of these will do. With `views` there is no such op (`op` is ""): each gradient is a view of the
    result's. Given the arguments of the call, `views` returns by operand the function that makes this view. `withheld` are
    options that leave out a part of the gradient by convention, which is then no derivative of the result. `unchanged` are
    operands of the result's shape whose gradient is that of the result. With a `surrogate`, gradients are the derivatives of this
    function in place of the op's oracle: straight-through ones, of an op that rounds.

    It covers only the op's core: the caller differentiates the activation of a product and the terms that are added to it. If a
    norm adds a residual first, `residual_out` is the `x` to save.
    """

    op: str
    saved: tuple[str, ...]
    gradients: Mapping[str, str]
    grad: str = "grad"
    renames: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)
    broadcast: bool = False
    shapes: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    views: Callable[[Mapping[str, Any]], Mapping[str, Callable[[Any], Any]]] | None = None
    surrogate: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Op:
    """One public name.

    `samples` yields host problems (baracuda_py.samples.Sample) for tests, benches and `verify`. `fixed` are the descriptor
    fields that the name fixes (``{"kind": ...}``). `gradient` describes the op that computes its gradients. `peers` are its
    names in other libraries, and `arguments` maps arguments of the function to operands of another name.
    """

    name: str
    plan: type[Family[Any]]
    function: Callable[..., Any]
    samples: Samples
    fixed: Mapping[str, Any] = field(default_factory=dict)
    gradient: Gradient | None = None
    peers: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)

    def describe(self, **fields: Any) -> Any:
        """The op's descriptor, with its fixed fields."""
        return self.plan.descriptor(**{**self.fixed, **fields})

    def of(self, **operands: Any) -> Any:
        """The op's descriptor for arrays."""
        return self.plan.descriptor.of(**{**self.fixed, **operands})

    def of_sample(self, operands: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        """The descriptor of a sample's arrays and options; options that only the function takes are ignored."""
        known = inspect.signature(self.plan.descriptor.of).parameters
        return self.of(**{k: v for k, v in {**operands, **options}.items() if k in known})

    @property
    def summary(self) -> str:
        return summary(self.function)


def summary(function: Callable[..., Any]) -> str:
    """The first line of a function's documentation."""
    return (function.__doc__ or "").strip().partition("\n")[0]


_OPS: dict[str, Op] = {}
_COMPOSED: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {}


def register(op: Op, kernels: str | Path | None = None) -> Op:
    """Adds an op; a family's module calls this once per row of its table. `kernels` is the folder of the ``.cu`` files of an op
    of another package, as `add_kernels_dir` takes it."""
    package = __package__.partition(".")[0]
    foreign = op.function.__module__.partition(".")[0] != package
    if foreign and op.name in importlib.import_module(f"{package}._index").NAMES:  # even before the own op is imported
        raise ValueError(f"op {op.name!r} of {op.function.__module__} has the name of one of {package}: rename it")
    if kernels is not None:
        add_kernels_dir(kernels)
    if op.name in _OPS and _OPS[op.name].function.__module__ != op.function.__module__:
        raise ValueError(f"op {op.name!r} is registered twice")
    _OPS[op.name] = op
    trace_as_op(op.name, op.function)
    answer_about(op.function)
    return op


def composed(*words: str) -> Callable[[F], F]:
    """Has `find` know a public function that calls ops and is none, by its name and these words (as `SYNONYMS` spells them)."""

    def known(function: F) -> F:
        _COMPOSED[function.__name__] = function, words
        return function

    return known


def composed_functions() -> dict[str, Callable[..., Any]]:
    """The public functions that call ops and are none, as far as `find` knows them, by name."""
    _import_families()
    return {name: function for name, (function, _) in sorted(_COMPOSED.items())}


def _modules(*, wanted: bool) -> Iterator[ModuleType]:
    """Imports the modules of ops, which are found by walking the folder: those of wanted problems, or all others. Walking has
    imported the packages."""
    ops = importlib.import_module(f"{__package__.partition('.')[0]}.ops")
    for module in pkgutil.walk_packages(ops.__path__, ops.__name__ + "."):
        if not module.ispkg and ("wanted" in module.name.split(".")) == wanted:
            yield importlib.import_module(module.name)


@lru_cache(maxsize=1)
def _import_families() -> None:
    """Imports every family, once: walking their folders takes nearly a millisecond, and every look-up of an op needs it."""
    for _ in _modules(wanted=False):
        pass
    load_entry_points()


@lru_cache(maxsize=1)
def load_entry_points() -> None:
    """Imports the modules that installed packages name in the entry-point group ``baracuda_py.ops``, which register their ops.
    One that fails is left out, with a warning."""
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except (Exception, SystemExit) as error:  # another package's import may raise anything
            warnings.warn(
                f"{GROUP}: {point.name} = {point.value} is left out: {type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )


def function_named(name: str) -> Callable[..., Any] | None:
    """The function of an op that another package registers under that name; None if none does."""
    load_entry_points()
    op = _OPS.get(name)
    return None if op is None else op.function


@lru_cache(maxsize=1)
def all_wanted() -> tuple[Wanted, ...]:
    """The wanted problems of all families. Only this imports their modules, which make large arrays."""
    return tuple(problem for module in _modules(wanted=True) for problem in module.problems)


def all_ops() -> dict[str, Op]:
    """All ops by name, with all families imported, ordered by category and module, then by registration."""
    _import_families()
    return dict(sorted(_OPS.items(), key=lambda item: (item[1].plan.category.value, item[1].function.__module__)))


def names_of(plan: Any) -> tuple[str, ...]:
    """The names of the ops with that class of plans."""
    _import_families()
    return _names_of(plan, len(_OPS))


@lru_cache(maxsize=1024)
def _names_of(plan: Any, _count: int) -> tuple[str, ...]:
    return tuple(name for name, op in all_ops().items() if op.plan is plan)


def get_op(name: str) -> Op:
    """The op with that name or alias; otherwise raises UnsupportedError with near matches."""
    _import_families()
    if name not in _OPS and ALIASES.get(name) in _OPS:
        return _OPS[ALIASES[name]]
    if name in _COMPOSED:
        raise UnsupportedError(f"{name} is a function that calls ops, and no op", f"call bp.{name}")
    if name not in _OPS:
        near = find(name)
        hint = f"did you mean {', '.join(near[:8])}?" if near else "`python -m baracuda_py ops` lists them"
        raise UnsupportedError(f"there is no op {name!r}", hint)
    return _OPS[name]


def list_ops() -> list[str]:
    """The names of all ops."""
    return list(all_ops())


def find(text: str) -> list[str]:
    """Ops for a text, the likeliest first: a name ("silu"), another library's name ("swish"), a subject ("kv cache", "gptq"), or
    a part of a name, category or summary. Before them functions that call several ops, where the text is their name or subject
    ("conj", "complex")."""
    if not isinstance(text, str):
        raise InvalidProblemError(f"find: expected a text, got {type(text).__name__}", 'such as bp.find("kv cache")')
    ops = all_ops()
    functions = [name for name, (_, words) in sorted(_COMPOSED.items()) if squeezed(text) in (name, *words)]
    return functions + ([] if functions and squeezed(text) not in ops else found(text, ops))
