"""What makes two stacks different: modules that are collapsed, hidden files, barriers."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from frames_support import COLLAPSED, STACK_NONE, Frame, Log


class Module:
    """torch.nn.Module's way of calling, in small."""

    def __call__(self, *args: Any) -> Any:
        return self._wrapped_call_impl(*args)

    def _wrapped_call_impl(self, *args: Any) -> Any:
        return self._call_impl(*args)

    def _call_impl(self, *args: Any) -> Any:
        return self.forward(*args)

    def forward(self, *args: Any) -> Any:
        raise NotImplementedError


class Leaf(Module):
    def __init__(self, do: Callable[[], Any]) -> None:
        self.do = do

    def forward(self, x: Any) -> Any:
        return x + [self.do()]


class Chain(Module):
    def __init__(self, *layers: Module) -> None:
        self.layers = layers

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def modules(log: Log, stack: int) -> list[tuple[int, str]]:
    return [(f.module, f.class_name) for f in log.resolve(stack) if f.class_name]


def test_instances_of_one_class_have_different_stacks(core: ModuleType) -> None:
    core.frames_module_call(Module._wrapped_call_impl.__code__)
    net = Chain(*(Leaf(core.capture) for _ in range(4)))
    rounds = [net([]) for _ in range(3)]
    assert rounds[0] == rounds[1] == rounds[2]
    assert len(set(rounds[0])) == 4
    log = Log(core.log_bytes())
    for stack, layer in zip(rounds[0], net.layers, strict=True):
        assert modules(log, stack) == [(id(layer), "Leaf"), (id(net), "Chain")]


def test_predicted_and_fresh_walks_agree_on_modules(core: ModuleType) -> None:
    core.frames_module_call(Module._wrapped_call_impl.__code__)
    leaves = [Leaf(core.snapshot) for _ in range(3)]
    net = Chain(Chain(*leaves), leaves[1], Chain(Chain(leaves[0])), *leaves)
    snaps = [s for _ in range(3) for s in net([])]
    log = Log(core.log_bytes())
    assert len(snaps) == 24 and len({s[0] for s in snaps}) == 7, "leaves[1] is called twice from one place"
    for predicted, afresh, public in snaps:
        assert predicted == afresh
        assert [(f.file, f.name, f.line, f.lasti) for f in log.resolve(predicted)] == public
    expected = [[leaf, net.layers[0]] for leaf in leaves] + [[leaves[1]]]
    expected += [[leaves[0], net.layers[2].layers[0], net.layers[2]]] + [[leaf] for leaf in leaves]  # type: ignore
    for (predicted, _, _), path in zip(snaps, expected * 3, strict=True):
        assert modules(log, predicted) == [(id(m), type(m).__name__) for m in [*path, net]]


def test_the_self_slot_is_read_again_on_the_same_frame(core: ModuleType) -> None:
    """Same frame addresses, same instructions, another self: only the slot tells."""
    core.frames_module_call(Module._wrapped_call_impl.__code__)
    a, b = Leaf(core.capture), Leaf(core.capture)
    stacks = [layer([])[0] for layer in (a, b, a, b, b, a)]
    assert stacks[0] == stacks[2] == stacks[5] != stacks[1] == stacks[3] == stacks[4]
    log = Log(core.log_bytes())
    assert [modules(log, s)[0][0] for s in stacks[:2]] == [id(a), id(b)]


def test_without_module_code_instances_share_a_stack(core: ModuleType) -> None:
    a, b = Leaf(core.capture), Leaf(core.capture)
    stacks = {layer([])[0] for layer in (a, b)}
    assert len(stacks) == 1
    assert modules(Log(core.log_bytes()), stacks.pop()) == []


def test_module_code_is_checked(core: ModuleType) -> None:
    def captured(self: Any) -> Any:
        return lambda: self

    def nothing() -> None:
        pass

    for function in (captured, nothing):
        with pytest.raises(core.Error):
            core.frames_module_call(function.__code__)
    for wrong in (1, "x", nothing):
        with pytest.raises(TypeError):
            core.frames_module_call(wrong)
        with pytest.raises(TypeError):
            core.frames_barrier(wrong)
    references = sys.getrefcount(captured.__code__)
    with pytest.raises(core.Error):
        core.frames_module_call(captured.__code__)
    now = sys.getrefcount(captured.__code__)
    assert now == references


def test_folding_to_class_names(small: ModuleType) -> None:
    """300 stacks in modules are too many here: from then on a stack names the class only."""
    small.frames_module_call(Module._wrapped_call_impl.__code__)
    Other = type("Other", (Leaf,), {})
    keep = [Leaf(small.capture) for _ in range(150)]
    early = [leaf([])[0] for leaf in keep]
    late = [leaf([])[0] for leaf in keep]
    other = Other(small.capture)([])[0]
    more = [Leaf(small.capture)([])[0] for _ in range(500)]
    stacks = small.counts()["stacks"]
    log = Log(small.log_bytes())
    assert modules(log, early[0]) == [(id(keep[0]), "Leaf")] and early[0] != early[1]
    assert len(set(more)) == 1 and len(set(late)) < 150
    assert modules(log, more[0]) == [(0, "Leaf")] and modules(log, other) == [(0, "Other")]
    assert [f.flags for f in log.resolve(more[0]) if f.class_name] == [COLLAPSED]
    assert stacks < 800
    small.begin()
    again = {leaf([])[0] for leaf in keep[:10]}
    assert len(again) == 10, "a new capture starts unfolded"
    small.frames_module_call(None)


def named(frames: tuple[Frame, ...]) -> list[str]:
    return [f.name.rsplit(".", 1)[-1] for f in frames]


def make(source: str, file: str, name: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile(source, file, "exec"), space)
    return space[name]


@pytest.mark.parametrize("deeper", [0, 3])
def test_hidden_files(core: ModuleType, deeper: int) -> None:
    core.frames_hide("/hidden/place")
    inside = make("def inside(f): return f()", "/hidden/place/a/b.py", "inside")
    exact = make("def exact(f): return f()", "/hidden/place", "exact")
    sibling = make("def sibling(f): return f()", "/hidden/place2/b.py", "sibling")

    def visible(f: Callable[[], int], n: int = deeper) -> int:
        return visible(f, n - 1) if n else f()

    stack = sibling(lambda: inside(lambda: exact(lambda: visible(core.capture))))
    names = named(Log(core.log_bytes()).resolve(stack))
    assert names[: deeper + 5] == ["visible"] * (deeper + 1) + ["<lambda>"] * 3 + ["sibling"]
    assert names[deeper + 5] == "test_hidden_files"


def test_hiding_what_was_already_seen(core: ModuleType) -> None:
    seen = make("def seen(f): return f()", "/seen/before.py", "seen")
    stacks = []
    for _ in range(2):
        stacks.append(seen(core.capture))
        core.frames_hide("/seen")
    log = Log(core.log_bytes())
    assert [named(log.resolve(s))[0] for s in stacks] == ["seen", "test_hiding_what_was_already_seen"]


def test_wrong_paths_to_hide(core: ModuleType) -> None:
    with pytest.raises(ValueError):
        core.frames_hide("")
    with pytest.raises(TypeError):
        core.frames_hide(b"/x")


def test_barrier(core: ModuleType) -> None:
    def barrier(f: Callable[[], int]) -> int:
        return f()

    def inside(f: Callable[[], int]) -> int:
        return f()

    core.frames_barrier(barrier.__code__)
    core.frames_barrier(barrier.__code__)
    stacks = [barrier(lambda: inside(core.capture)), inside(lambda: barrier(core.capture)), inside(core.capture)]
    log = Log(core.log_bytes())
    assert named(log.resolve(stacks[0])) == ["inside", "<lambda>"]
    assert stacks[1] == STACK_NONE
    assert named(log.resolve(stacks[2]))[:2] == ["inside", "test_barrier"]
    assert all(c.name != barrier.__qualname__ for c in log.codes)


def test_barrier_inside_a_truncated_stack(core: ModuleType) -> None:
    def barrier(n: int) -> int:
        return descend(n)

    def descend(n: int) -> int:
        if n == 0:
            return core.capture()  # type: ignore[no-any-return]
        return barrier(n - 1) if n == 10 else descend(n - 1)

    core.frames_barrier(barrier.__code__)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    try:
        stack = descend(1000)
    finally:
        sys.setrecursionlimit(limit)
    frames = Log(core.log_bytes()).resolve(stack)
    assert named(frames) == ["descend"] * 10 and all(f.flags == 0 for f in frames)


@pytest.mark.torch
def test_torch_modules(core: ModuleType) -> None:
    torch = pytest.importorskip("torch")
    core.frames_module_call(torch.nn.Module._wrapped_call_impl.__code__)
    snaps: list[Any] = []

    class Probe(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
        def forward(self, x: Any) -> Any:
            snaps.append(core.snapshot())
            return x

    nn = torch.nn
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), Probe()), Probe(), nn.ModuleList([Probe()])[0])
    names = {id(m): n or "<root>" for n, m in net.named_modules()}
    for _ in range(2):
        net(torch.zeros(2, 4))
    log = Log(core.log_bytes())
    paths = [[names[m] for m, _ in modules(log, predicted)] for predicted, _, _ in snaps]
    assert paths == [["1.1", "1", "<root>"], ["2", "<root>"], ["3", "<root>"]] * 2
    assert modules(log, snaps[0][0])[1:] == [(id(net[1]), "Sequential"), (id(net), "Sequential")]
    for predicted, afresh, public in snaps:
        assert predicted == afresh
        assert [(f.file, f.name, f.line, f.lasti) for f in log.resolve(predicted)] == public
