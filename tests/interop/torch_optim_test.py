"""torch's optimizers on this library's steps, beside torch's own on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.ops.optim import lists

torch = pytest.importorskip("torch")
optim = pytest.importorskip("baracuda_py.interop.torch.optim")

COVERS = (
    "adam_update", "adamw_update", "sgd_update", "rmsprop_update", "adagrad_update", "lion_update", "lamb_update", "lars_update",
    "adafactor_update", "muon_update", "adam8bit_update", "adamw8bit_update", "lion8bit_update", "sgd8bit_update",
    "rmsprop8bit_update", "adagrad8bit_update",
)  # fmt: skip
SHAPES = ((37,), (5, 7), (), (0, 3), (3, 1, 2))
KINDS = (torch.float64, torch.float32, torch.float64, torch.float32, torch.float32)
STEPS = 50

CASES = (
    ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.5, "maximize": True}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {"weight_decay": 0.1, "betas": (0.5, 0.9)}),
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "maximize": True, "lr": 0.01}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "alpha": 0.9}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
)
# Of one dtype, or with an eps[0]: torch takes its default of the first parameter of a group. It divides by an array's length.
ADAFACTOR: tuple[dict[str, Any], ...] = (
    {"eps": (1e-8, 1e-3)},
    {"lr": 0.1, "beta2_decay": -0.5, "eps": (1e-6, 0.1), "d": 1.5, "weight_decay": 0.1, "maximize": True},
)


@pytest.fixture(autouse=True)
def on_host() -> Iterator[None]:
    with bp.device("cpu"):
        yield


def _params(seed: int = 3) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator, dtype=kind) for shape, kind in zip(SHAPES, KINDS)]
    return [torch.nn.Parameter(x) for x in made]


def _give_gradients(step: int, *lists: list[Any], absent: bool = False) -> None:
    """The same to each list; with `absent` the second parameter lacks one in some steps."""
    for params in lists:
        generator = torch.Generator().manual_seed(step)
        for i, p in enumerate(params):
            grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)
            p.grad = None if absent and i == 1 and step % 3 == 2 else grad


def _same(ours: list[Any], theirs: list[Any]) -> None:
    for a, b in zip(ours, theirs):
        exact = {"rtol": 1e-11, "atol": 1e-12} if a.dtype == torch.float64 else {"rtol": 2e-5, "atol": 2e-6}
        torch.testing.assert_close(a.detach(), b.detach(), **exact)


def _groups(params: list[Any]) -> list[dict[str, Any]]:
    return [{"params": params[:3]}, {"params": params[3:], "weight_decay": 0.25}]


@pytest.mark.parametrize(
    ("name", "options"), CASES, ids=lambda x: x if isinstance(x, str) else "-".join(x) or "default"
)
def test_torch_optimizer_takes_the_same_50_steps(name: str, options: dict[str, Any]) -> None:
    """Two groups, of two dtypes, and a parameter whose gradient is sometimes absent."""
    ours, theirs = _params(), _params()
    mine = getattr(optim, name)(_groups(ours), **options)
    torchs = getattr(torch.optim, name)(_groups(theirs), **options)
    for i in range(STEPS):
        _give_gradients(i, ours, theirs, absent=True)
        mine.step()
        torchs.step()
    _same(ours, theirs)


@pytest.mark.parametrize("options", ADAFACTOR, ids=("default", "all"))
def test_adafactor_class_takes_torchs_steps_and_states(options: dict[str, Any]) -> None:
    """In the middle of which each is loaded into the other."""
    ours, theirs = ([p for p in _params() if p.numel()] for _ in range(2))
    mine, torchs = optim.Adafactor(ours, **options), torch.optim.Adafactor(theirs, **options)
    for i in range(200):
        if i == STEPS // 2:
            state, its = copy.deepcopy(mine.state_dict()), copy.deepcopy(torchs.state_dict())
            mine, torchs = optim.Adafactor(ours), torch.optim.Adafactor(theirs)
            mine.load_state_dict(its)
            torchs.load_state_dict(state)
        _give_gradients(i, ours, theirs, absent=True)
        mine.step()
        torchs.step()
    _same(ours, theirs)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.float32, {}),
        (torch.float32, {"adjust_lr_fn": "match_rms_adamw", "nesterov": False, "ns_steps": 3}),
        (torch.bfloat16, {"momentum": 0.5}),  # without nesterov torch divides a buffer in bf16 by its norm, in place
    ],
    ids=("f32", "f32-options", "bf16"),
)
def test_muon_class_takes_torchs_steps_and_states(kind: Any, options: dict[str, Any]) -> None:
    """Up to what torch's iteration in bf16 rounds. In the middle each is loaded into the other."""
    made = [torch.randn(shape, generator=torch.Generator().manual_seed(3)) for shape in ((5, 7), (24, 9), (1, 3))]
    ours, theirs = ([torch.nn.Parameter(x.to(kind, copy=True)) for x in made] for _ in range(2))
    lr = 0.01 if kind is torch.float32 else 0.25  # that bf16 parameters move
    mine, torchs = optim.Muon(ours, lr, **options), torch.optim.Muon(theirs, lr, **options)
    for i in range(200 if kind is torch.float32 else 6):
        if i == 2:
            state, its = copy.deepcopy(mine.state_dict()), copy.deepcopy(torchs.state_dict())
            mine, torchs = optim.Muon(ours), torch.optim.Muon(theirs)
            mine.load_state_dict(its)
            torchs.load_state_dict(state)
        _give_gradients(i, ours, theirs)
        mine.step()
        torchs.step()
    for a, b, start in zip(ours, theirs, made):
        assert (a - b).norm() < 0.06 * (b.detach().float() - start).norm()


def test_muon_refuses_what_is_no_matrix_and_keeps_its_groups() -> None:
    with pytest.raises(bp.InvalidProblemError, match=r"Muon: params\[0\] has shape \(3,\): pass matrices"):
        optim.Muon([torch.nn.Parameter(torch.ones(3))])
    mine = optim.Muon([torch.nn.Parameter(torch.ones(3, 2))])
    with pytest.raises(bp.InvalidProblemError, match=r"Muon: params\[1\] has shape"):
        mine.add_param_group({"params": [torch.nn.Parameter(torch.ones(s)) for s in ((2, 2), (2,))]})
    assert len(mine.param_groups) == 1
    for options, says in (({"ns_steps": 100}, "ns_steps=100"), ({"adjust_lr_fn": "other"}, "is unknown")):
        with pytest.raises(bp.InvalidProblemError, match=f"Muon: .*{says}"):
            optim.Muon([torch.nn.Parameter(torch.ones(3, 2))], **options)


def test_lion_takes_the_steps_of_its_paper() -> None:
    ours, theirs = _params(), [p.detach().clone() for p in _params()]
    mine, averages = optim.Lion(ours, 0.01, (0.5, 0.75), 0.1), [torch.zeros_like(p) for p in theirs]
    for i in range(STEPS):
        _give_gradients(i, ours)
        mine.step()
        for p, m, own in zip(theirs, averages, ours):
            p.mul_(1 - 0.01 * 0.1).sub_(0.01 * torch.sign(0.5 * m + 0.5 * own.grad))
            m.copy_(0.75 * m + 0.25 * own.grad)
    _same(ours, theirs)


EIGHT_BIT = ("Adam8bit", "AdamW8bit", "Lion8bit", "SGD8bit", "RMSprop8bit", "Adagrad8bit")


def _state_keys(mine: Any) -> list[str]:
    """torch's names of the 8-bit states."""
    return ["sum" if name == "state_sum" else name for name in mine.rule.states]


def _stepped(mine: Any, params: list[Any], steps: range) -> Any:
    for i in steps:
        _give_gradients(i, params)
        mine.step()
    return mine


@pytest.mark.parametrize("name", EIGHT_BIT)
def test_8_bit_states_follow_those_of_the_whole_optimizer(name: str) -> None:
    """Of gradients that keep their signs: the parameters go the same way, to a few percent of it."""
    ours, theirs = _params(), _params()
    momentum = {"momentum": 0.9} if name == "SGD8bit" else {}
    mine = getattr(optim, name)(ours, 0.01)
    whole = getattr(optim, name.removesuffix("8bit"))(theirs, 0.01, **momentum)
    for i in range(STEPS):
        _give_gradients(i, ours, theirs)
        for p, q in zip(ours, theirs):
            p.grad, q.grad = p.grad.abs() + 0.5, q.grad.abs() + 0.5
        mine.step()
        whole.step()
    for p, q, start in zip(ours, theirs, _params()):
        assert (p - q).abs().max() <= 0.05 * (q - start).abs().max() if p.numel() else True
        assert mine.state[p][_state_keys(mine)[0]].dtype is torch.uint8


@pytest.mark.parametrize("name", EIGHT_BIT)
def test_8_bit_state_dicts_are_loaded_as_they_are(name: str) -> None:
    """Bit for bit, though torch casts states to the parameters' dtypes; by the names of bitsandbytes too."""
    ours, again = ([torch.nn.Parameter(p.detach().bfloat16()) for p in _params()] for _ in range(2))
    mine = _stepped(getattr(optim, name)(ours, 0.01), ours, range(3))
    state = copy.deepcopy(mine.state_dict())
    theirs = {key: f"state{i}" for i, key in enumerate(_state_keys(mine), 1)}
    theirs |= {f"{key}_absmax": f"absmax{i}" for i, key in enumerate(_state_keys(mine), 1)}
    named = {i: {theirs.get(key, key): x for key, x in held.items()} for i, held in state["state"].items()}
    for given in (state, {**state, "state": named}):
        with torch.no_grad():
            for p, q in zip(again, ours):
                p.copy_(q)
        other = getattr(optim, name)(again)
        other.load_state_dict(copy.deepcopy(given))
        for p, q in zip(ours, again):
            assert mine.state[p].keys() == other.state[q].keys()
            for key, x in mine.state[p].items():
                assert torch.equal(x, other.state[q][key]) and x.dtype is other.state[q][key].dtype
    _stepped(mine, ours, range(3, 6))
    _stepped(other, again, range(3, 6))
    assert all(torch.equal(p, q) for p, q in zip(ours, again))


@pytest.mark.parametrize("name", ["Adam8bit", "AdamW8bit", "Adagrad8bit"])
def test_8_bit_states_go_to_torch_and_back(name: str) -> None:
    """Each state to half of the widest part of the map, 0.45 / 64 of the greatest."""
    ours, theirs = _params(), _params()
    torchs = getattr(torch.optim, name.removesuffix("8bit"))(theirs, 0.01)
    _stepped(torchs, theirs, range(3))
    mine = getattr(optim, name)(ours)
    mine.load_state_dict(copy.deepcopy(torchs.state_dict()))
    back = getattr(torch.optim, name.removesuffix("8bit"))(theirs)
    wanted = copy.deepcopy(torchs.state_dict()["state"])
    back.load_state_dict(mine.dequantized_state_dict())
    for p, held in zip(theirs, wanted.values()):
        assert back.state[p]["step"] == held["step"]
        for key in _state_keys(mine):
            x = held[key]
            assert x.numel() == 0 or (back.state[p][key] - x).abs().max() <= 0.45001 / 64 * x.abs().max()
    _stepped(back, theirs, range(3, 5))


@pytest.mark.parametrize("start", [0.0, 0.3])
def test_adagrad8bit_steps_as_its_function(start: float) -> None:
    """Bit for bit, from accumulators that begin at a value, which is the greatest of its blocks and so exact."""
    ours = [torch.nn.Parameter(p.detach().float()) for p in _params()]
    theirs = [p.detach().clone() for p in ours]
    mine = optim.Adagrad8bit(ours, 0.02, 0.1, 0.01, start, 1e-8)
    step, codes = torch.zeros(()), [torch.full(p.shape, 255 if start else 0, dtype=torch.uint8) for p in theirs]
    sizes = [torch.full((-(-p.numel() // 256),), start) for p in theirs]
    for i in range(4):
        _give_gradients(i, ours)
        mine.step()
        options = {"lr": 0.02, "lr_decay": 0.1, "weight_decay": 0.01, "eps": 1e-8}
        lists.adagrad8bit(theirs, [p.grad for p in ours], codes, sizes, step, **options)
    for p, q, x, size in zip(ours, theirs, codes, sizes):
        assert torch.equal(p, q)
        assert torch.equal(mine.state[p]["sum"], x) and torch.equal(mine.state[p]["sum_absmax"], size)
    with pytest.raises(bp.InvalidProblemError, match="initial_accumulator_value=-1"):
        optim.Adagrad8bit(ours, initial_accumulator_value=-1.0)


def test_8_bit_states_of_other_blocks_are_refused() -> None:
    p = torch.nn.Parameter(torch.ones(600))
    mine = _stepped(optim.Lion8bit([p]), [p], range(1))
    state = copy.deepcopy(mine.state_dict())
    state["state"][0]["exp_avg_absmax"] = torch.ones(1)
    with pytest.raises(
        bp.InvalidProblemError, match="exp_avg has 600 codes and 1 entries: load states of blocks of 256"
    ):
        mine.load_state_dict(state)


def _lamb(p: Any, g: Any, state: list[Any], step: int) -> None:
    m, v = state[0].mul_(0.5).add_(0.5 * g), state[1].mul_(0.75).add_(0.25 * g * g)
    u = m / (1 - 0.5**step) / ((v / (1 - 0.75**step)).sqrt() + 1e-3) + 0.1 * p
    p -= 0.01 * _ratio(p, u) * u


def _lars(p: Any, g: Any, state: list[Any], step: int) -> None:  # noqa: ARG001
    u = g + 0.1 * p
    moved = 0.01 * _ratio(p, u, 0.5, 0.25) * u
    p -= moved + 0.75 * state[0].mul_(0.75).add_(moved)


def _ratio(p: Any, u: Any, coefficient: float = 1.0, eps: float = 0.0) -> Any:
    return coefficient * p.norm() / (u.norm() + eps) if p.norm() > 0 and u.norm() > 0 else 1.0


NORMED = (
    ("LAMB", {"lr": 0.01, "betas": (0.5, 0.75), "eps": 1e-3, "weight_decay": 0.1}, _lamb),
    (
        "LARS",
        {"lr": 0.01, "momentum": 0.75, "weight_decay": 0.1, "trust_coefficient": 0.5, "eps": 0.25, "nesterov": True},
        _lars,
    ),
)


@pytest.mark.parametrize(("name", "options", "formula"), NORMED, ids=[x[0] for x in NORMED])
def test_normed_optimizers_take_the_steps_of_their_papers(name: str, options: dict[str, Any], formula: Any) -> None:
    """In the middle of which they are loaded into others."""
    ours, theirs = _params(), [p.detach().clone() for p in _params()]
    mine, counts = getattr(optim, name)(ours, **options), [0] * len(ours)
    states = [[torch.zeros_like(p) for _ in range(2)] for p in theirs]
    for i in range(STEPS):
        if i == STEPS // 2:
            state = copy.deepcopy(mine.state_dict())
            mine = getattr(optim, name)(ours)
            mine.load_state_dict(state)
        _give_gradients(i, ours, absent=True)
        mine.step()
        for k, (p, own) in enumerate(zip(theirs, ours)):
            if own.grad is not None:
                counts[k] += 1
                formula(p, own.grad, states[k], counts[k])
    _same(ours, theirs)


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
@pytest.mark.parametrize("loaded", ["Adam", "AdamW"])
def test_loaded_weight_decay_is_decoupled_as_in_torch(name: str, loaded: str) -> None:
    """Adam takes the rule of a loaded group, AdamW keeps its own."""
    ours, theirs = _params(), _params()
    mine, torchs = getattr(optim, name)(ours), getattr(torch.optim, name)(theirs)
    for x in (mine, torchs):
        x.load_state_dict(getattr(torch.optim, loaded)(_params(), lr=0.1, weight_decay=0.5).state_dict())
    for i in range(5):
        _give_gradients(i, ours, theirs)
        mine.step()
        torchs.step()
    _same(ours, theirs)
    assert mine.param_groups[0]["decoupled_weight_decay"] == ("AdamW" in (name, loaded))


def test_adam_with_decoupled_decay_goes_to_torch() -> None:
    (ours, theirs), more = (_params() for _ in range(2)), {"lr": 0.1, "weight_decay": 0.5}
    mine, torchs = optim.Adam(ours, decoupled_weight_decay=True, **more), torch.optim.Adam(theirs)
    torchs.load_state_dict(mine.state_dict())
    _give_gradients(0, ours, theirs)
    mine.step()
    torchs.step()
    _same(ours, theirs)


@pytest.mark.parametrize(
    ("name", "options"), [CASES[0], CASES[2], CASES[3], CASES[6], CASES[7]], ids=lambda x: str(x)[:8]
)
@pytest.mark.parametrize("to_torch", [False, True])
def test_state_dicts_go_both_ways(name: str, options: dict[str, Any], to_torch: bool) -> None:
    ours, theirs = _params(), _params()
    mine, torchs = getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    first, params = (mine, ours) if to_torch else (torchs, theirs)
    for i in range(3):
        _give_gradients(i, params, absent=True)
        first.step()
    other, its = (torchs, theirs) if to_torch else (mine, ours)
    with torch.no_grad():
        for p, q in zip(its, params):
            p.copy_(q)
    other.load_state_dict(copy.deepcopy(first.state_dict()))
    for i in range(3, 8):
        _give_gradients(i, ours, theirs)
        mine.step()
        torchs.step()
    _same(ours, theirs)


def test_closure_is_called_once_with_gradients_recorded() -> None:
    (p,), calls = [torch.nn.Parameter(torch.ones(3))], []
    mine = optim.SGD([p], lr=0.5)

    def closure() -> Any:
        mine.zero_grad()
        calls.append(1)
        loss = (p * p).sum()
        loss.backward()
        return loss

    assert mine.step(closure).item() == 3
    assert calls == [1]
    assert torch.equal(p.detach(), torch.zeros(3))


def test_step_is_one_call_for_a_group_and_a_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    whole = lists.adamw
    monkeypatch.setattr(lists, "adamw", lambda params, *a, **kw: (calls.append(len(params)), whole(params, *a, **kw)))
    params = _params()
    mine = optim.AdamW(params)
    for i in range(2):
        _give_gradients(i, params)
        mine.step()
    assert calls == [2, 3] * 2


def test_scaled_gradients_that_overflow_are_skipped() -> None:
    """As torch.amp.GradScaler asks of optimizers that read its scalars."""
    params = _params()
    before = [p.detach().clone() for p in params]
    mine = optim.AdamW(params)
    _give_gradients(0, params)
    mine.grad_scale, mine.found_inf = torch.full((1,), 64.0), torch.ones(1)
    mine.step()
    assert all(torch.equal(p.detach(), old) for p, old in zip(params, before))
    assert all(held["step"] == 0 for held in mine.state.values())
    mine.found_inf = torch.zeros(1)
    mine.step()
    theirs = [torch.nn.Parameter(x) for x in before]
    for p, own in zip(theirs, params):
        p.grad = own.grad / 64
    torch.optim.AdamW(theirs).step()
    _same(params, theirs)


def test_learning_rate_of_a_scheduler_is_read_in_place() -> None:
    """In f32, in which torch computes with a rate that is a tensor."""
    ours, theirs = ([p for p in _params() if p.dtype == torch.float32] for _ in range(2))
    rates = [torch.tensor(0.5), torch.tensor(0.5)]
    mine, torchs = optim.Adam(ours, rates[0]), torch.optim.Adam(theirs, rates[1])
    schedules = [torch.optim.lr_scheduler.StepLR(x, 2, 0.5) for x in (mine, torchs)]
    for i in range(6):
        _give_gradients(i, ours, theirs)
        for x, schedule in zip((mine, torchs), schedules):
            x.step()
            schedule.step()
    assert rates[0] == 0.0625
    _same(ours, theirs)


@pytest.mark.parametrize(
    ("made", "error", "says"),
    [
        (lambda p: optim.SGD([p], lr=-1.0), bp.InvalidProblemError, "SGD: lr=-1.0: give a number of 0 or more"),
        (lambda p: optim.Adam([p], betas=(0.9, 1.0)), bp.InvalidProblemError, "beta2=1.0: .* less than 1"),
        (lambda p: optim.LAMB([p], lr=None), bp.OperandTypeError, "LAMB: lr=None is no number"),
        (lambda p: optim.LAMB([p], lr=torch.tensor(-1.0)), bp.InvalidProblemError, "LAMB: lr=-1.0"),
        (lambda p: optim.LAMB([p], lr=torch.ones(2)), bp.OperandTypeError, "lr is a tensor of shape"),
        (lambda p: optim.LAMB([p], betas=(0.9,)), bp.OperandTypeError, "is no pair"),
        (lambda p: optim.Adafactor([p], eps=1e-3), bp.OperandTypeError, "Adafactor: eps=0.001 is no pair"),
        (lambda p: optim.Adafactor([p], d=0.5), bp.InvalidProblemError, "Adafactor: d=0.5: give a number of 1 or more"),
        (lambda p: optim.Lion([p], betas=None), bp.OperandTypeError, "is no pair"),
        (lambda p: optim.LARS([p], weight_decay=1e39), bp.InvalidProblemError, "that f32 holds"),
        (lambda p: optim.Adam([p], maximize="a"), bp.OperandTypeError, "maximize='a' must be True or False"),
        (lambda p: optim.Adam([p], seed=1.5), bp.OperandTypeError, "seed=1.5 is no integer"),
        (lambda p: optim.SGD([p], nesterov=True), bp.InvalidProblemError, "nesterov with momentum=0.0"),
        (lambda p: optim.AdamW([p], differentiable=True), bp.UnsupportedError, "differentiable=True"),
        (lambda p: optim.AdamW([p], unknown=True), TypeError, "unknown"),
        (
            lambda p: optim.Adagrad([p], initial_accumulator_value=-1.0),
            bp.InvalidProblemError,
            "value=-1.0: .* 0 or more",
        ),
    ],
)
def test_optimizer_arguments_that_are_refused(made: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        made(torch.nn.Parameter(torch.ones(3)))


def test_sparse_gradient_and_several_devices_are_refused() -> None:
    a, b = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    a.grad, b.grad = torch.ones(3), torch.ones(3).to_sparse()
    mine = optim.Adam([a, b])
    with pytest.raises(bp.OperandTypeError, match=r"Adam: the gradient of params\[1\] is sparse_coo: make it dense"):
        mine.step()
    b.grad = None
    far = torch.nn.Parameter(torch.ones(3, device="meta"))
    mine = optim.Adam([a, far])
    with pytest.raises(bp.DeviceMismatchError, match=r"params\[0\] is on cpu and params\[1\] on meta"):
        mine.step()
    assert torch.equal(a.detach(), torch.ones(3))
    assert not mine.state


@pytest.mark.parametrize("fullgraph", [False, True])
def test_step_of_lists_is_a_graph_break(fullgraph: bool) -> None:
    def scaled_step(param: Any, grad: Any, mean: Any, square: Any, step: Any) -> Any:
        bp.adamw([param], [grad * 2], [mean], [square], step, lr=0.1)
        return param + 1

    torch.compiler.reset()
    given, ours = (
        [torch.arange(6.0), torch.ones(6), torch.zeros(6), torch.zeros(6), torch.zeros(())] for _ in range(2)
    )
    wanted = scaled_step(*given)
    compiled = torch.compile(scaled_step, backend="eager", fullgraph=fullgraph)
    if fullgraph:
        with pytest.raises(
            torch._dynamo.exc.Unsupported, match=r"(?s)call_on_lists.*torch\.compiler\.disable|disable.*call_on_lists"
        ):
            compiled(*ours)
        return
    assert torch.equal(compiled(*ours), wanted)
    assert all(torch.equal(x, y) for x, y in zip(ours, given))


def _transposed() -> Any:
    return torch.nn.Parameter(torch.ones(3, 2).t())


@pytest.mark.parametrize(
    ("param", "options", "says"),
    [
        (_transposed, {}, r"AdamW: params\[0\] of shape \(2, 3\) has strides \(1, 2\): pass C-ordered"),
        (
            lambda: torch.nn.Parameter(torch.ones(3, dtype=torch.complex64)),
            {},
            "AdamW: params.0. holds torch.complex64",
        ),
        (lambda: torch.nn.Parameter(torch.ones(3)), {"betas": (0.9, 1.5)}, r"AdamW: beta2=1.5: .* less than 1"),
        (lambda: torch.nn.Parameter(torch.ones(3)), {"weight_decay": None}, r"AdamW: weight_decay=None is no number"),
        (lambda: torch.nn.Parameter(torch.ones(3)), {"lr": "a"}, r"AdamW: lr='a' is no number"),
        (lambda: torch.nn.Parameter(torch.ones(3)), {"stochastic": True}, r"make a group of the bf16 parameters"),
    ],
)
def test_a_refused_group_leaves_the_groups_before_it(param: Any, options: dict[str, Any], says: str) -> None:
    first, second = torch.nn.Parameter(torch.ones(3)), param()
    mine = optim.AdamW([{"params": [first]}, {"params": [second]}])
    mine.param_groups[1].update(options)
    first.grad, second.grad = torch.ones(3), torch.ones_like(second)
    with bp.device("cpu"), pytest.raises(bp.BaracudaError, match=says):
        mine.step()
    assert torch.equal(first.detach(), torch.ones(3))
    assert not mine.state


def test_a_refused_gradient_leaves_parameters_of_other_dtypes() -> None:
    first, second = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2, 3).double())
    mine = optim.SGD([first, second])
    first.grad, second.grad = torch.ones(3), torch.ones(3, 2).double().t()
    with bp.device("cpu"), pytest.raises(bp.InvalidProblemError, match=r"SGD: the gradient of params\[1\] of shape"):
        mine.step()
    assert torch.equal(first.detach(), torch.ones(3))


def _of_another_shape(state: dict[str, Any], key: str) -> None:
    state[key] = torch.zeros(7, 7)


def _of_another_kind(state: dict[str, Any], key: str) -> None:
    state[key] = state[key].to(torch.int32)


def _transposed_in_memory(state: dict[str, Any], key: str) -> None:
    state[key] = torch.zeros(*state[key].shape, 2)[..., 0]


def _absent(state: dict[str, Any], key: str) -> None:
    del state[key]


@pytest.mark.parametrize(
    ("kind", "key", "spoil"),
    [
        (kind, key, spoil)
        for kind, key in (
            (optim.Adafactor, "col_var"),
            (optim.Muon, "momentum_buffer"),
            (optim.AdamW, "exp_avg_sq"),
            (optim.Adam8bit, "exp_avg"),
        )
        for spoil in (_of_another_shape, _of_another_kind, _transposed_in_memory, _absent)
        if kind is optim.Adafactor or spoil is not _absent  # whose state is then made as at the start
    ],
)
@pytest.mark.parametrize("separate", [False, True], ids=("one group", "two groups"))
def test_a_refused_state_leaves_the_parameters_before_it(kind: Any, key: str, separate: bool, spoil: Any) -> None:
    params = [torch.nn.Parameter(torch.ones(5, 4)) for _ in range(2)]
    mine = kind([{"params": [p]} for p in params] if separate else params)
    for p in params:
        p.grad = torch.full_like(p, 0.5)
    with bp.device("cpu"):
        mine.step()
        spoil(mine.state[params[1]], key)
        held = [p.detach().clone() for p in params]
        states = copy.deepcopy(mine.state_dict()["state"])
        with pytest.raises(bp.BaracudaError, match=rf"{kind.__name__}: params\[{0 if separate else 1}\]"):
            mine.step()
    assert all(torch.equal(p.detach(), x) for p, x in zip(params, held))
    for i, state in mine.state_dict()["state"].items():
        assert state.keys() == states[i].keys()
        assert all(torch.equal(x, states[i][name]) for name, x in state.items())


@pytest.mark.parametrize("key", ["exp_avg", "exp_avg_sq", "step"])
def test_a_refused_state_leaves_parameters_of_other_dtypes(key: str) -> None:
    """Each dtype is a launch of its own: none is made where the state of another does not fit."""
    params = [torch.nn.Parameter(torch.ones(4, dtype=dtype)) for dtype in (torch.float32, torch.bfloat16)]
    mine = optim.AdamW(params)
    for p in params:
        p.grad = torch.ones_like(p)
    with bp.device("cpu"):
        mine.step()
        mine.state[params[1]][key] = mine.state[params[1]][key].double()
        held = [p.detach().clone() for p in params]
        with pytest.raises(bp.OperandTypeError, match=r"AdamW: params\[1\]: .*torch.float64"):
            mine.step()
    assert all(torch.equal(p.detach(), x) for p, x in zip(params, held))
