"""Every way in which autograd makes nodes, each twice; prints, per way, what the recorded events say of its nodes.

Afterwards nothing of a program's graph is held, so every node that was recorded coming must have been recorded going.
What a first round leaves may be kept on purpose (compilers keep examples); what a second one leaves was missed.
"""

import collections
import contextlib
import copy
import gc
import json
import sys
import threading
import warnings
from collections.abc import Callable

import torch
from child import MARK, NODE_FREE, NODE_NEW, THREAD, core, events
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from cuptimem.record import torch_events

MARK_ROUND = 77
ways: dict[str, Callable[[], None]] = {}


def way(function: Callable[[], None]) -> Callable[[], None]:
    ways[function.__name__] = function
    return function


def leaf(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, requires_grad=True)


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2, x + 1

    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + h


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g * 2


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x.mul_(2))
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Partly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        first = x * 2
        ctx.mark_non_differentiable(first)
        ctx.set_materialize_grads(False)
        return first, x * 1

    @staticmethod
    def backward(ctx, g, h):
        return h


class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise ArithmeticError


class Worse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        raise ArithmeticError


class Cycle(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.itself = ctx
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g


class Mapped(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        return

    @staticmethod
    def backward(ctx, g):
        return g * 2


def simple(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).relu().tanh().sum()


layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4))
made_once: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}


def once_made(name: str, make: Callable[[], Callable[[torch.Tensor], torch.Tensor]]) -> Callable[..., torch.Tensor]:
    if name not in made_once:
        made_once[name] = make()
    return made_once[name]


# --- operators ---------------------------------------------------------------------------------------


@way
def chain():
    (leaf(3) * 2).exp().sum().backward()


@way
def long_chain():
    x = leaf(1)
    for _ in range(3000):
        x = x + 1


@way
def in_place():
    (leaf(4) * 1).add_(1).exp_().sum().backward()


@way
def writes_into_views():
    a = leaf(4)
    b = a * 1
    b[1:3].mul_(2)
    b[0] = 5
    b.view(2, 2)[0] = a[:2]
    b.sum().backward()


@way
def view_of_a_written_base():
    base = leaf(4) * 1
    view = base[1:]
    base.mul_(2)
    view.sum().backward()


@way
def complex_views():
    c = torch.view_as_complex(leaf(3, 2) * 1)
    c.mul_(2)
    torch.view_as_real(c).sum().backward()
    torch.fft.fft(leaf(8)).abs().sum().backward()


@way
def split_and_unbind():
    first, _ = torch.split(leaf(3) * 1, [1, 2])
    first.sum().backward()
    for part in (leaf(3, 2) * 1).unbind(0):
        part.sum().backward(retain_graph=True)


@way
def scatter_into():
    a = leaf(5) * 1
    a[torch.tensor([0, 2])] = torch.ones(2, requires_grad=True)
    a.index_add_(0, torch.tensor([1]), leaf(1))
    a.sum().backward()


@way
def lists_of_tensors():
    many = [leaf(3) * 1 for _ in range(3)]
    torch._foreach_mul_(many, 2.0)
    sum(one.sum() for one in many).backward()
    torch._foreach_add([leaf(2)], 1.0)


@way
def sparse_and_nested():
    torch.sparse.mm(torch.eye(3).to_sparse().requires_grad_(), leaf(3, 2)).sum().backward()
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], requires_grad=True)
    (nested * 2).to_padded_tensor(0).sum().backward()


@way
def detached():
    (leaf(3) * 2).detach_()
    (leaf(3).view(3).detach().requires_grad_() * 2).sum().backward()


@way
def networks():
    torch.nn.LSTM(3, 4)(leaf(2, 1, 3))[0].sum().backward()
    torch.nn.MultiheadAttention(8, 2)(leaf(3, 1, 8), leaf(3, 1, 8), leaf(3, 1, 8))[0].sum().backward()
    image = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.MaxPool2d(2))
    image(leaf(1, 1, 8, 8)).sum().backward()
    torch.nn.EmbeddingBag(5, 3, sparse=True)(torch.tensor([[0, 1]])).sum().backward()
    copy.deepcopy(layers)(torch.ones(2, 4)).sum().backward()
    torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 3))(leaf(1, 3)).sum().backward()
    torch.fake_quantize_per_tensor_affine(leaf(3), 0.1, 0, 0, 255).sum().backward()


@way
def ctc_loss():
    scores = leaf(5, 1, 4).log_softmax(2)
    torch.nn.functional.ctc_loss(scores, torch.tensor([[1, 2]]), torch.tensor([5]), torch.tensor([2])).backward()


@way
def mixed_precision():
    with torch.autocast("cpu", torch.bfloat16):
        y = layers(leaf(2, 4))
    y.float().sum().backward()


@way
def an_optimizer():
    optimizer = torch.optim.Adam(layers.parameters())
    layers(torch.ones(2, 4)).sum().backward()
    torch.nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


# --- backward ----------------------------------------------------------------------------------------


@way
def many_roots():
    a = leaf(3)
    torch.autograd.backward([(a * 2).sum(), (a * 3).sum()])
    torch.autograd.grad([a * 2, a * 3], [a], grad_outputs=[torch.ones(3)] * 2)
    torch.autograd.grad((a * 2).sum(), [a, leaf(3)], allow_unused=True)


@way
def double_backward():
    q = leaf(5)
    (g,) = torch.autograd.grad((q**3).sum(), q, create_graph=True)
    (g**2).sum().backward()


@way
def backward_twice():
    y = (leaf(3) * 2).exp().sum()
    y.backward(retain_graph=True)
    y.backward()


@way
def errors():
    with contextlib.suppress(ArithmeticError):
        Bad.apply(leaf(3)).sum().backward()
    with contextlib.suppress(ArithmeticError):
        Worse.apply(leaf(3))
    with contextlib.suppress(RuntimeError):
        leaf(3) @ leaf(4)


@way
def hooks():
    y = leaf(3) * 2
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    y.grad_fn.register_hook(lambda a, b: None)
    y.sum().backward()
    linear = torch.nn.Linear(3, 3)
    linear.register_full_backward_hook(lambda *a: None)
    linear.register_full_backward_pre_hook(lambda *a: None)
    linear(leaf(2, 3)).sum().backward()
    with torch.autograd.graph.save_on_cpu():
        z = (leaf(3) ** 2).sum()
    z.backward()


@way
def checkpoints():
    checkpoint(layers, leaf(2, 4), use_reentrant=False).sum().backward()
    checkpoint(layers, leaf(2, 4), use_reentrant=True).sum().backward()


# --- functions ---------------------------------------------------------------------------------------


@way
def custom_functions():
    first, second = Two.apply(leaf(3))
    (first + second).sum().backward()
    Two.apply(torch.ones(3))
    with torch.no_grad():
        Two.apply(leaf(3))
    Partly.apply(leaf(2))[1].sum().backward()
    Dirty.apply(leaf(3) * 1).sum().backward()


@way
def once_differentiable_functions():
    x = leaf(3)
    y = Once.apply(x)
    (g,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    assert "DelayedError" in type(g.grad_fn).__name__ or g.requires_grad


@way
def a_cycle():
    y = Cycle.apply(leaf(3))
    y.itself = y


@way
def functional():
    torch.autograd.functional.jacobian(lambda x: x**2, leaf(3))
    torch.autograd.functional.hessian(lambda x: (x**3).sum(), leaf(3))
    torch.autograd.functional.jacobian(lambda x: x**2, leaf(3), vectorize=True)


@way
def transforms():
    torch.func.grad(lambda x: (x**2).sum())(torch.ones(3))
    torch.func.vmap(torch.func.grad(lambda x: (x**2).sum()))(torch.ones(4, 3))
    torch.func.jacrev(lambda x: x**2)(torch.ones(3))
    torch.func.hessian(lambda x: (x**3).sum())(torch.ones(3))
    torch.func.vmap(torch.func.grad(lambda x: Mapped.apply(x).sum()))(torch.ones(4, 3))


@way
def forward_mode():
    with torch.autograd.forward_ad.dual_level():
        (torch.autograd.forward_ad.make_dual(leaf(3), torch.ones(3)) * 2).sum()


# --- threads -----------------------------------------------------------------------------------------


@way
def made_in_another_thread():
    box = {}
    thread = threading.Thread(target=lambda: box.update(y=(leaf(3) * 2).exp().sum()))
    thread.start()
    thread.join()
    box["y"].backward()


@way
def destroyed_in_another_thread():
    box = [leaf(1)]
    for _ in range(1000):
        box[0] = box[0] + 1
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()


@way
def four_threads_at_once():
    def work():
        for _ in range(20):
            (leaf(3) * 2).exp().sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- compilers ---------------------------------------------------------------------------------------


@way
def torchscript():
    for _ in range(3):
        once_made("script", lambda: torch.jit.script(simple))(leaf(3)).backward()
        core.sources_rescan()  # its nodes' type is met when the first one runs; the collector does this
        once_made("trace", lambda: torch.jit.trace(simple, torch.ones(3)))(leaf(3)).backward()
        core.sources_rescan()


def compiled():
    for _ in range(2):
        once_made("compile", lambda: torch.compile(simple, backend="aot_eager"))(leaf(3)).backward()


def main() -> None:
    warnings.simplefilter("ignore")
    if "compiled" in sys.argv[1:]:
        way(compiled)
    torch_events.install()
    gc.freeze()  # else each collection visits all that PyTorch has made
    core.capture_record(True)
    rounds: list[tuple[str, int]] = []
    for name, function in ways.items():
        for repetition in range(2):
            gc.collect()
            core.mark(MARK_ROUND, len(rounds))
            rounds.append((name, repetition))
            function()
    gc.collect()
    core.mark(MARK_ROUND, len(rounds))
    core.capture_record(False)

    thread_of: dict[int, int] = {}
    alive: dict[tuple[int, int], int] = {}
    made: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    current = 0
    for e in events():
        where = rounds[current][0] if current < len(rounds) else "the end"
        if e.kind == THREAD:
            thread_of[e.thread] = e.size or thread_of.get(e.thread, 0)
        elif e.kind == MARK and e.size == MARK_ROUND:
            current = e.address
        elif e.kind == NODE_NEW:
            if alive.setdefault((thread_of[e.thread], e.address), current) != current:
                wrong.append(f"{where}: a living node's number again")
            made[where] += 1
        elif e.kind == NODE_FREE and alive.pop((e.size, e.address), None) is None:
            wrong.append(f"{where}: a node went that had not come")
    left = collections.Counter(rounds[number] for number in alive.values())
    answer = {
        "made": made,
        "first": {name: count for (name, repetition), count in left.items() if repetition == 0},
        "second": {name: count for (name, repetition), count in left.items() if repetition == 1},
        "wrong": wrong,
        "unseen": core.autograd_unseen(),
        "ways": list(ways),
    }
    core.capture_stop()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
