"""Allocations whose line is known: each tensor is kept together with the calls it came from, innermost first.

A call is "marker function": the line of this file that bears `# L:marker`, and the function's qualified name.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import sys
import threading
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

INLINED = sys.version_info >= (3, 12)  # comprehensions have no frame of their own

EXPECTED: list[tuple[str, Any, tuple[str, ...]]] = []


def expect(name: str, tensor: torch.Tensor, *calls: str) -> None:
    EXPECTED.append((name, tensor, calls))


# --- plain Python -------------------------------------------------------------------------------------------------


def plain() -> None:
    expect("plain", torch.empty(11), "plain plain", "main-plain main")  # L:plain
    x = (
        torch.empty(13)  # L:multiline
    )
    expect("several lines", x, "multiline plain", "main-plain main")
    both = torch.empty(3), torch.zeros(5) + torch.ones(5)  # L:two
    expect("same line a", both[0], "two plain", "main-plain main")
    expect("same line b", both[1], "two plain", "main-plain main")


def values(n: int) -> Any:
    for _ in range(n):
        yield torch.empty(17)  # L:yield
    yield from deeper()  # L:yield-from


def deeper() -> Any:
    kept = torch.empty(19)  # L:deeper
    yield kept


def generators() -> None:
    items = list(values(2))  # L:list-values
    expect("generator", items[0], "yield values", "list-values generators", "main-generators main")
    expect("generator again", items[1], "yield values", "list-values generators", "main-generators main")
    delegated = "deeper deeper", "yield-from values", "list-values generators", "main-generators main"
    expect("yield from", items[2], *delegated)
    source = values(5)
    first = next(source)  # L:next-one
    second = next(source)  # L:next-two
    expect("resumed at one", first, "yield values", "next-one generators", "main-generators main")
    expect("resumed at two", second, "yield values", "next-two generators", "main-generators main")


def traced(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)  # L:wrapper

    return wrapper


@traced
@torch.no_grad()
def decorated() -> torch.Tensor:
    return torch.empty(23)  # L:decorated


class Descriptor:
    kept = torch.empty(29)  # L:class-body

    @property
    def value(self) -> torch.Tensor:
        return torch.empty(31)  # L:property

    def __add__(self, other: int) -> torch.Tensor:
        return torch.empty(other)  # L:dunder

    @staticmethod
    def fixed() -> torch.Tensor:
        return torch.empty(37)  # L:static


def functions() -> None:
    wrapped = decorated()  # L:call
    expect("decorator", wrapped, "decorated decorated", "wrapper traced.<locals>.wrapper", "call functions")
    it = Descriptor()
    expect("class body", it.kept, "class-body Descriptor", "")
    expect("property", it.value, "property Descriptor.value", "prop functions")  # L:prop
    expect("operator method", it + 41, "dunder Descriptor.__add__", "plus functions")  # L:plus
    expect("static method", it.fixed(), "static Descriptor.fixed", "fixed functions")  # L:fixed
    shaped = (lambda n: torch.empty(n))(43)  # L:lambda
    expect("lambda", shaped, "lambda functions.<locals>.<lambda>", "lambda functions", "main-functions main")

    def recursive(n: int) -> torch.Tensor:
        return torch.empty(47) if n == 0 else recursive(n - 1)  # L:recursion

    deep = recursive(3)  # L:recursion-start
    expect("recursion", deep, *["recursion functions.<locals>.recursive"] * 4, "recursion-start functions")
    with managed() as inside:  # L:with
        pass
    expect("context manager", inside, "managed managed", "with functions", "main-functions main")
    try:
        raise ValueError
    except ValueError:
        handled = torch.empty(53)  # L:except
    finally:
        final = torch.empty(59)  # L:finally
    expect("except", handled, "except functions", "main-functions main")
    expect("finally", final, "finally functions", "main-functions main")
    partial = functools.partial(torch.empty, 61)
    expect("partial", partial(), "partial functions", "main-functions main")  # L:partial
    ordered = sorted([2, 1], key=lambda n: KEPT.append(torch.empty(67)) or n)  # L:sorted
    expect("key function", KEPT[0], "sorted functions.<locals>.<lambda>", "sorted functions", "main-functions main")
    assert ordered == [1, 2]


KEPT: list[torch.Tensor] = []


@contextlib.contextmanager
def managed() -> Any:
    yield torch.empty(71)  # L:managed


def comprehensions() -> None:
    def where(line: str, kind: str) -> list[str]:
        own = [] if INLINED and kind != "genexpr" else [f"{line} comprehensions.<locals>.<{kind}>"]
        return [*own, f"{line} comprehensions", "main-comprehensions main"]

    a = [torch.empty(73) for _ in range(2)]  # L:listcomp
    b = {n: torch.empty(79) for n in range(2)}  # L:dictcomp
    c = tuple(torch.empty(83) for _ in range(2))  # L:genexpr
    expect("list comprehension", a[1], *where("listcomp", "listcomp"))
    expect("dict comprehension", b[1], *where("dictcomp", "dictcomp"))
    expect("generator expression", c[1], *where("genexpr", "genexpr"))


def executed() -> None:
    scope: dict[str, Any] = {"torch": torch}
    exec(compile("\n\ndef made():\n    return torch.empty(89)\n", "<made>", "exec"), scope)
    x = scope["made"]()  # L:exec-call
    expect("exec'd function", x, "<made>:4 made", "exec-call executed", "main-executed main")
    exec("\ny = torch.empty(97)", scope)  # L:exec
    expect("exec'd text", scope["y"], "<string>:2 <module>", "exec executed", "main-executed main")
    z = eval("torch.empty(101)", scope)  # L:eval
    expect("eval", z, "<string>:1 <module>", "eval executed", "main-executed main")
    for number in range(200):  # code objects come and go: their addresses are used again
        exec(f"def f():\n{chr(10) * (number % 17)}    return torch.empty(103)", scope)
        y = scope["f"]()  # L:churn
        if number % 20 == 19:
            expect(
                f"short-lived code {number}", y, f"<string>:{2 + number % 17} f", "churn executed", "main-executed main"
            )


# --- threads and tasks --------------------------------------------------------------------------------------------


def worker(results: list[torch.Tensor], n: int) -> None:
    results.append(torch.empty(n))  # L:worker


def threads() -> None:
    found: list[torch.Tensor] = []
    running = [threading.Thread(target=worker, args=(found, 107 + i)) for i in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for item in found:
        expect(f"thread {item.numel()}", item, "worker worker", "")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for item in pool.map(pooled, range(113, 117)):
            expect(f"pool {item.numel()}", item, "pooled pooled", "")


def pooled(n: int) -> torch.Tensor:
    return torch.empty(n)  # L:pooled


async def task_one(other: asyncio.Event, own: asyncio.Event) -> list[torch.Tensor]:
    found = [torch.empty(127)]  # L:one-a
    own.set()
    await other.wait()
    found.append(torch.empty(131))  # L:one-b
    await asyncio.sleep(0)
    found.append(await helper(137))  # L:one-c
    return found


async def task_two(other: asyncio.Event, own: asyncio.Event) -> list[torch.Tensor]:
    await other.wait()
    found = [torch.empty(139)]  # L:two-a
    own.set()
    await asyncio.sleep(0)
    found.append(await helper(149))  # L:two-b
    async for item in ticker():  # L:async-for
        found.append(item)  # noqa: PERF401 (the loop is what is tested)
    return found


async def helper(n: int) -> torch.Tensor:
    await asyncio.sleep(0)
    return torch.empty(n)  # L:helper


async def ticker() -> Any:
    await asyncio.sleep(0)
    yield torch.empty(151)  # L:ticker


async def tasks() -> None:
    a, b = asyncio.Event(), asyncio.Event()
    one, two = await asyncio.gather(task_one(a, b), task_two(b, a))
    expect("task one", one[0], "one-a task_one", "run coroutines")
    expect("task one, resumed", one[1], "one-b task_one", "run coroutines")
    expect("task one, awaited", one[2], "helper helper", "one-c task_one", "run coroutines")
    expect("task two", two[0], "two-a task_two", "run coroutines")
    expect("task two, awaited", two[1], "helper helper", "two-b task_two", "run coroutines")
    expect("asynchronous generator", two[2], "ticker ticker", "async-for task_two", "run coroutines")


def coroutines() -> None:
    asyncio.run(tasks())  # L:run


# --- training -----------------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(40, 50)  # L:first-layer
        self.second = nn.Linear(50, 60)  # L:second-layer
        self.register_buffer("scale", torch.ones(60))  # L:buffer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)  # L:forward-first
        KEEP["hidden"] = hidden
        active = hidden.relu()  # L:forward-relu
        KEEP["active"] = active
        out = self.second(active)  # L:forward-second
        KEEP["out"] = out
        return out * self.scale  # L:forward-scale


KEEP: dict[str, torch.Tensor] = {}


class Numbers(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((40,), float(index))


def training() -> None:
    net = Net()  # L:net
    made = "net training", "main-training main"
    expect("parameter", net.first.weight, "first-layer Net.__init__", *made)
    expect("bias", net.second.bias, "second-layer Net.__init__", *made)
    expect("buffer", net.scale, "buffer Net.__init__", *made)
    optimizer = torch.optim.AdamW(net.parameters())
    for x in DataLoader(Numbers(), batch_size=4):  # L:loader
        y = net(x)  # L:call-net
        optimizer.zero_grad()
        y.square().mean().backward()  # L:training-backward
        optimizer.step()  # L:step
    called = "call-net training", "main-training main"
    expect("batch", x, "loader training", "main-training main")
    expect("first layer", KEEP["hidden"], "forward-first Net.forward", *called)
    expect("relu", KEEP["active"], "forward-relu Net.forward", *called)
    expect("second layer", KEEP["out"], "forward-second Net.forward", *called)
    expect("output", y, "forward-scale Net.forward", *called)
    for key in ("exp_avg", "exp_avg_sq"):
        expect(f"optimizer {key}", optimizer.state[net.first.weight][key], "step training", "main-training main")
    assert net.first.weight.grad is not None and net.second.weight.grad is not None
    expect("gradient of first", net.first.weight.grad, "forward-first Net.forward", *called)
    expect("gradient of second", net.second.weight.grad, "forward-second Net.forward", *called)
    expect("gradient of bias", net.second.bias.grad, "forward-second Net.forward", *called)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x  # L:function-forward

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad  # L:function-backward


def backward() -> None:
    end = "main-backward main"
    p = torch.ones(200, requires_grad=True)
    total = p.sum()  # L:sum
    total.backward()
    expect("gradient of a sum", p.grad, "sum backward", end)

    tied = nn.Parameter(torch.randn(30, 30))
    x = torch.randn(5, 30)
    once = x @ tied  # L:tied-one
    twice = once @ tied  # L:tied-two
    twice.sum().backward()
    # The second use comes first in backward; what the first adds goes into the same tensor.
    expect("tied weights", tied.grad, "tied-two backward", end)

    kept = torch.randn(70, requires_grad=True)
    (kept * 2).sum().backward()
    before = kept.grad
    (kept * kept).sum().backward()  # accumulates into what is there
    assert kept.grad is before

    q = torch.randn(90, requires_grad=True)
    squared = Square.apply(q)  # L:apply
    expect("custom function", squared, "function-forward Square.forward", "apply backward", end)
    squared.sum().backward()  # L:function-call
    expect("custom backward", q.grad, "function-backward Square.backward", "function-call backward", end)

    r = torch.randn(110, requires_grad=True)
    cube = r**3  # L:cube
    (g,) = torch.autograd.grad(cube.sum(), r, create_graph=True)  # L:create-graph
    expect("gradient with graph", g, "cube backward", end)
    (g * g).sum().backward()  # L:double
    expect("double backward", r.grad, "cube backward", end)

    def hook(grad: torch.Tensor) -> torch.Tensor:
        return grad * 2  # L:hook

    h = torch.randn(130, requires_grad=True)
    scaled = h * 3  # L:scaled
    scaled.register_hook(hook)
    middle = scaled.exp()
    middle.sum().backward()  # L:hooked
    expect("hooked", h.grad, "scaled backward", end)

    layer = nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 24))
    z = torch.randn(6, 24, requires_grad=True)
    out = checkpoint(layer, z, use_reentrant=False)  # L:checkpoint
    out.sum().backward()  # L:checkpoint-backward
    assert layer[0].weight.grad is not None
    # Its node is the first forward's: the recomputation only brings back what that had not saved.
    expect("checkpointed gradient", layer[0].weight.grad, "checkpoint backward", end)

    lazily: list[torch.Tensor] = []

    def elsewhere() -> None:
        lazily.append((torch.ones(150, requires_grad=True) * 2).exp())  # L:made-there

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    leaf = lazily[0].grad_fn.next_functions[0][0].next_functions[0][0].variable
    lazily[0].sum().backward()
    expect("forward on another thread", leaf.grad, "made-there backward.<locals>.elsewhere", "")


def main() -> None:
    plain()  # L:main-plain
    generators()  # L:main-generators
    functions()  # L:main-functions
    comprehensions()  # L:main-comprehensions
    executed()  # L:main-executed
    threads()
    coroutines()
    training()  # L:main-training
    backward()  # L:main-backward
