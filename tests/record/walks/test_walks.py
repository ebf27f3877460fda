"""What a walk over living objects says: names of modules, labels of blocks, and what it must leave alone."""

import copy
import gc
import random
import sys
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem import _core
from cuptimem.objects import living, walks

torch = pytest.importorskip("torch", reason="the torch-free run leaves these out")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("only_new_objects")]

MODULE, PARAMETER, BUFFER, GRADIENT, STATE, OTHER = range(1, 7)  # cm_label_kind


class Walk:
    """The labels of one walk, by kind: address -> text."""

    def __init__(self) -> None:
        self.labels: dict[int, dict[int, str]] = {kind: {} for kind in range(1, 7)}
        self.owners: dict[int, int] = {}

    def of(self, kind: int) -> set[str]:
        """Names of a kind, without shapes."""
        return {text.partition("\t")[0] for text in self.labels[kind].values()}


def read(path: Path) -> list[Walk]:
    found: list[Walk] = []
    for row in _core.trace_dump(str(path)):
        if row[0] == "mark" and row[4] == _core.MARK_WALK:
            found.append(Walk())
        elif row[0] == "label":
            _, _, _, address, owner, text, kind, _, _ = row
            assert address not in found[-1].labels[kind], "a block is labelled once"
            found[-1].labels[kind][address] = text
            found[-1].owners[address] = owner
    return found


@pytest.fixture(autouse=True)
def _nothing_before() -> None:
    """Models of other tests, if a cycle holds them."""
    gc.collect()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "a.cmem"


def block(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def train(model: Any, optimizer: Any, steps: int = 1) -> None:
    size = next(p.shape[-1] for p in model.parameters() if p.dim() == 2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, size)).sum().backward()
        optimizer.step()


def mlp(width: int = 8) -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width), torch.nn.ReLU(), torch.nn.Linear(width, 2)
    )


# --- names ------------------------------------------------------------------------------------------


def test_one_model_has_the_names_of_named_modules(trace: Path) -> None:
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True), 2)
    loss = torch.nn.MSELoss()
    with cuptimem.profile(trace):
        pass
    first = read(trace)[0]
    named = {id(module): name or "TransformerEncoder" for name, module in model.named_modules()}
    assert first.labels[MODULE] == {**named, id(loss): "MSELoss"}
    for name, parameter in model.named_parameters():
        shape = " ".join(map(str, parameter.shape))
        assert first.labels[PARAMETER][block(parameter)] == f"{name}\tfloat32 {shape}"
        owner = model.get_submodule(name.rpartition(".")[0])
        assert first.owners[block(parameter)] == id(owner)


def test_of_several_models_each_name_begins_with_its_root(trace: Path) -> None:
    class Generator(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(2, 3))

    class Critic(Generator):
        pass

    models = [Generator(), Critic(), Generator()]
    with cuptimem.profile(trace):
        pass
    found = read(trace)[-1].labels
    assert [found[MODULE][id(model)] for model in models] == ["Generator", "Critic", "Generator#2"]
    texts = [found[PARAMETER][block(model.layers[0].weight)] for model in models]
    assert texts == [f"{name}.layers.0.weight\tfloat32 3 2" for name in ("Generator", "Critic", "Generator#2")]


def test_a_shared_module_and_shared_parameters_have_their_first_name(trace: Path) -> None:
    model = torch.nn.Module()
    model.one = torch.nn.Linear(3, 3)
    model.two = model.one
    model.tied = torch.nn.Linear(3, 3)
    model.tied.weight = model.one.weight
    flat = torch.zeros(8)
    model.a, model.b = torch.nn.Parameter(flat[:4]), torch.nn.Parameter(flat[4:])
    with cuptimem.profile(trace):
        pass
    found = read(trace)[-1]
    assert found.labels[MODULE][id(model.one)] == "one" and len(found.labels[MODULE]) == 3
    assert found.of(PARAMETER) == {"a", "one.weight", "one.bias", "tied.bias"}
    assert found.labels[PARAMETER][block(flat)] == "a\tfloat32 4"


def test_a_module_keeps_its_name_and_a_replaced_one_gives_its_place(trace: Path) -> None:
    model = mlp()
    with cuptimem.profile(trace):
        old = model[3]
        model[3] = torch.nn.Linear(8, 2)
        second = mlp()
    found = read(trace)[-1].labels[MODULE]
    assert found[id(model)] == "Sequential" and found[id(model[0])] == "0"
    assert found[id(old)] == "3" == found[id(model[3])]
    assert found[id(second)] == "Sequential#2" and found[id(second[0])] == "Sequential#2.0"


def test_a_model_made_inside_has_names_after_its_first_step(trace: Path) -> None:
    with cuptimem.profile(trace):
        model = mlp()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        del model
        gc.collect()
    at_start, at_step, *_ = read(trace)
    assert at_start.of(MODULE) == set()
    assert (
        at_step.of(PARAMETER)
        == {"0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"}
        == at_step.of(GRADIENT)
    )
    assert at_step.of(BUFFER) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def test_a_copy_that_only_an_attribute_holds_has_names_after_the_first_step(trace: Path) -> None:
    """Before Python 3.12 no call shows that copy.deepcopy has made it."""

    class Trainer:
        def __init__(self) -> None:
            self.model = mlp()
            self.average = copy.deepcopy(self.model).requires_grad_(False)

    with cuptimem.profile(trace, holders=False):
        trainer = Trainer()
        weights = block(trainer.model[0].weight), block(trainer.average[0].weight)
        train(trainer.model, torch.optim.SGD(trainer.model.parameters(), lr=0.1))
        del trainer
        gc.collect()
    first = read(trace)[1].labels[_core.LABEL_PARAMETER]
    names = [first[address].partition("\t")[0] for address in weights]
    # From Python 3.12 on the copy is seen being made: then two models are known when the first one gets its name.
    assert names == ["Sequential.0.weight" if sys.version_info >= (3, 12) else "0.weight", "Sequential#2.0.weight"]


def test_models_made_in_every_step_use_the_same_texts(trace: Path) -> None:
    keep: Any = None
    with cuptimem.profile(trace):
        for _ in range(40):
            model = mlp()
            train(model, torch.optim.Adam(model.parameters()))
            keep = model  # the one before lives on until here
        del keep, model
    found = read(trace)
    assert 6 <= len(found) <= 15, "walks get rarer"
    names = set().union(*(walk.of(MODULE) for walk in found))
    assert {name.partition(".")[0] for name in names} <= {"Sequential", "Sequential#2", "0", "1", "2", "3"}


def test_walks_end_when_nothing_is_made(trace: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with cuptimem.profile(trace):
        train(model, optimizer, 40)
    assert len(read(trace)) == 4  # at start, after two steps, at the end


def test_backward_passes_count_where_no_optimizer_steps(trace: Path) -> None:
    model = torch.nn.Linear(3, 3)
    with cuptimem.profile(trace):
        for _ in range(20):
            model(torch.ones(1, 3)).sum().backward()
            model.zero_grad()
        after = len(gc.get_objects()) > 0  # the main thread comes by
    assert after and len(read(trace)) == 5  # at start, after the first call and two passes, at the end


@pytest.mark.parametrize("calls", [1, 20])
def test_a_model_that_only_infers_and_is_gone_at_the_end(
    trace: Path, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuptimem.objects.slices._FREE_SECONDS", 1e9)

    def infer() -> None:
        model = torch.nn.Sequential(*(mlp() for _ in range(100))).eval()  # more than one slice of a walk takes
        with torch.inference_mode():
            for _ in range(calls):
                for layer in model:
                    layer(torch.ones(2, 4))

    with cuptimem.profile(trace):
        infer()
    names = set().union(*(walk.of(PARAMETER) for walk in read(trace)))
    assert {"0.0.weight", "99.3.weight"} <= names


def test_a_compiled_module_is_called_as_the_original(trace: Path) -> None:
    model = mlp()
    compiled = torch.compile(model)  # nothing is compiled before the first call
    with cuptimem.profile(trace):
        pass
    found = read(trace)[-1].labels[MODULE]
    assert found[id(compiled)] == found[id(model)] == "Sequential" and found[id(model[3])] == "3"


def test_modules_that_wrap_keep_their_prefix(trace: Path) -> None:
    model = torch.nn.DataParallel(mlp())
    with cuptimem.profile(trace):
        pass
    assert read(trace)[-1].labels[MODULE][id(model.module[3])] == "module.3"


def test_modules_in_a_circle(trace: Path) -> None:
    one, two = torch.nn.Module(), torch.nn.Linear(2, 2)
    one.other, two.other = two, one
    with cuptimem.profile(trace):
        pass
    found = read(trace)[-1]
    assert len(found.labels[MODULE]) == 2 and block(two.weight) in found.labels[PARAMETER]
    one.other = None


# --- tensors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda p: torch.optim.Adam(p), {"step", "exp_avg", "exp_avg_sq"}),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), {"momentum_buffer"}),
        (lambda p: torch.optim.Adagrad(p), {"step", "sum"}),
    ],
)
def test_optimizer_states_are_named_by_their_parameter(make: Any, expected: set[str], trace: Path) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = make(model.parameters())
    with cuptimem.profile(trace):
        train(model, optimizer, 2)
    found = read(trace)[-1]
    assert found.of(STATE) == {f"{key} of {name}" for key in expected for name in ("weight", "bias")}
    for key, tensor in optimizer.state[model.weight].items():
        shape = " ".join(["float32", *map(str, tensor.shape)])
        assert found.labels[STATE][block(tensor)] == f"{key} of weight\t{shape}"
        assert found.owners[block(tensor)] == id(model)


def test_nested_states_of_an_optimizer_that_is_not_pytorchs(trace: Path) -> None:
    class Factored:
        def __init__(self, parameters: list[Any]) -> None:
            self.param_groups = [{"params": parameters, "lr": torch.tensor(0.1)}]
            self.state: dict[Any, Any] = {}

        def zero_grad(self) -> None: ...

        def step(self) -> None:
            for p in self.param_groups[0]["params"]:
                self.state[p] = {"row": torch.ones(3), "factors": [torch.ones(5), {"inner": (torch.ones(7),)}]}
            self.state["shared"] = torch.ones(9)

    model, free = torch.nn.Linear(2, 2, bias=False), torch.ones(11, requires_grad=True)
    free.grad = torch.ones(11)
    optimizer = Factored([model.weight, free])
    optimizer.step()
    with cuptimem.profile(trace):
        pass
    found = read(trace)[-1]
    paths = {"row", "factors[0]", "factors[1].inner[0]"}
    assert found.of(STATE) == {f"{path} of {name}" for path in paths for name in ("weight", "param_group 0[1]")} | {
        "shared of Factored",
        "lr of param_group 0",
    }
    assert found.labels[PARAMETER][block(free)] == "param_group 0[1]\tfloat32 11"
    assert found.owners[block(free)] == 0
    assert found.labels[GRADIENT][block(free.grad)] == "param_group 0[1]\tfloat32 11"


def test_an_optimizer_of_many_groups_without_a_module(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "_BATCH", 2)
    monkeypatch.setattr(walks, "_QUICK", 2)
    sizes = [[3, 4, 5, 6, 7, 8, 9], [], *([size] for size in range(10, 20))]
    groups = [{"params": [torch.ones(n, requires_grad=True) for n in of], "lr": torch.tensor(0.1)} for of in sizes]
    optimizer = torch.optim.SGD([{"params": [groups[0]["params"][0]]}], momentum=0.5)
    optimizer.param_groups[:] = groups  # PyTorch's constructor takes no empty group
    for p in [p for group in groups for p in group["params"]]:
        optimizer.state[p] = {"momentum_buffer": torch.ones_like(p)}
    with cuptimem.profile(trace):
        pass
    found = read(trace)[-1]
    names = {f"param_group {i}[{j}]" for i, of in enumerate(sizes) for j in range(len(of))}
    assert found.of(PARAMETER) == names
    assert found.of(STATE) == {f"momentum_buffer of {name}" for name in names} | {
        f"lr of param_group {i}" for i in range(len(sizes))
    }


def test_other_tensors_have_their_shape_and_no_name(trace: Path) -> None:
    mine, part = torch.zeros(3, 5, dtype=torch.int64), torch.zeros(100)[10:20]
    leaf = torch.zeros(6, requires_grad=True)
    leaf.sum().backward()
    with cuptimem.profile(trace):
        scalar = torch.tensor(1.5)
    found = read(trace)[-1].labels
    assert found[OTHER][block(mine)] == "\tint64 3 5" and found[OTHER][block(scalar)] == "\tfloat32"
    assert block(part) in found[OTHER] and part.data_ptr() not in found[OTHER]
    assert found[GRADIENT][block(leaf.grad)] == "\tfloat32 6"


@pytest.mark.parametrize("slots", [(), ("inner",)])
def test_sparse_gradients_and_wrapped_tensors(trace: Path, slots: tuple[str, ...]) -> None:
    class Wrapper(torch.Tensor):
        """As quantized weights and sharded tensors (DTensor has slots) are."""

        __slots__ = slots

        @staticmethod
        def __new__(cls: Any, inner: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("the program's code ran")

    model = torch.nn.Embedding(10, 4, sparse=True)
    model(torch.tensor([1, 2])).sum().backward()
    inner = torch.ones(12)
    model.register_buffer("wrapped", None)
    model._buffers["wrapped"] = Wrapper(inner)
    with cuptimem.profile(trace):
        pass
    found = read(trace)[-1]
    assert model.weight.grad.is_sparse and found.of(GRADIENT) == {"weight"} and len(found.labels[GRADIENT]) == 2
    assert found.labels[BUFFER][block(inner)] == "wrapped\tfloat32 12"
    assert cuptimem.open(trace).environment.get("problems") is None


# --- what is left alone -----------------------------------------------------------------------------


def test_nothing_of_the_program_runs(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran: list[str] = []

    class Loud(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = torch.nn.Linear(2, 2)

        @property
        def __class__(self) -> Any:
            ran.append("__class__")
            return Loud

        def __getattr__(self, name: str) -> Any:
            ran.append(name)
            raise RuntimeError(name)

        def __eq__(self, other: object) -> bool:
            ran.append("__eq__")
            return False

        def __hash__(self) -> int:
            ran.append("__hash__")
            return 1

    class Named(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            ran.append("__torch_function__")
            return super().__torch_function__(*args, **kwargs)

    model = Loud()
    inside = model.__dict__["_modules"]["inside"]
    inside.register_parameter("named", torch.nn.Parameter(torch.ones(5).as_subclass(Named)))
    inside.register_buffer("meta", torch.empty(4, device="meta"))
    fake = torch._subclasses.FakeTensorMode()
    with fake:
        kept = torch.ones(3)
    ran.clear()
    with cuptimem.profile(trace):
        inside.weight.sum()
    assert ran == [] and kept is not None
    found = read(trace)[-1]
    assert found.labels[MODULE][id(model)] == "Loud" and found.labels[MODULE][id(inside)] == "inside"
    assert found.of(PARAMETER) == {"inside.weight", "inside.bias", "inside.named"} and found.of(BUFFER) == set()
    assert capfd.readouterr().err == ""


def test_nothing_is_kept_alive_and_nothing_changes(trace: Path) -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    with cuptimem.profile(trace):
        torch.manual_seed(1)
        random.seed(1)
        before = torch.get_rng_state(), random.getstate(), list(warnings.filters), gc.isenabled(), gc.get_threshold()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            train(model, optimizer)
            walks.record(living.find(torch, living.all_objects()))
        after = torch.get_rng_state(), random.getstate(), list(warnings.filters), gc.isenabled(), gc.get_threshold()
        assert torch.equal(before[0], after[0]) and before[1:] == after[1:] and torch.is_grad_enabled()
        gone = weakref.ref(model), weakref.ref(model[0].weight), weakref.ref(model[0].weight.grad)
        del model, optimizer
        gc.collect()
        assert [ref() for ref in gone] == [None] * 3
    assert len(read(trace)) == 4 and walks._names == {} and walks._texts == set()


def test_a_walk_that_fails_is_said_and_the_program_goes_on(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(torch: Any) -> Any:
        raise ValueError("not today")

    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    with cuptimem.profile(trace):
        monkeypatch.setattr("cuptimem.objects.walks._Walk.run", lambda walk, full: fail(walk))
        train(model, optimizer, 3)
    said = "names of modules and tensors are not known: ValueError: not today"
    assert capfd.readouterr().err == f"cuptimem: {said}\n" and gc.isenabled()
    assert cuptimem.open(trace).environment["problems"] == said


def test_an_interrupt_in_a_walk_reaches_the_program(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    with cuptimem.profile(trace):
        monkeypatch.setattr("cuptimem.objects.walks._Walk.run", lambda walk, full: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            train(model, optimizer)
        monkeypatch.undo()
        train(model, optimizer)
    assert len(read(trace)) == 3  # at start, after the second step, at the end


def test_walks_are_turned_off(trace: Path) -> None:
    model = mlp()
    with cuptimem.profile(trace, walks=False):
        train(model, torch.optim.Adam(model.parameters()))
    assert read(trace) == []


def test_run_turns_them_off(forked: Any, tmp_path: Path) -> None:
    program = "import torch; m = torch.nn.Linear(2, 2); torch.optim.SGD(m.parameters(), lr=0.1).step(); del torch"
    for options, has in (((), True), (("--no-walks",), False)):
        done = forked("-m", "cuptimem", "run", "-q", "-f", *options, "-o", "a.cmem", "-c", program)
        assert done.code == 0, done.err
        assert bool(read(tmp_path / "a.cmem")) is has
