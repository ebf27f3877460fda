"""The process in which the oracle runs programs: preloaded, without cuptimem, with torch imported once.

Requests come as lines of JSON on standard input, {"program": path, "steps": n, "samples": path, "functions": bool,
"paths": [folders of packages that the program needs]}; each runs in a fork and is answered by one line, {"code": exit
status, "error": last lines of what it said}. The fork runs the program as __main__ and samples what is alive whenever
an optimizer has stepped, a backward has returned or an outermost module call has returned: while the program's objects
live, and wherever it is. A program that has none of these is run again with "functions": whenever a function of its own
returns to its main code. A sample is SAMPLE numbers, int64.

Garbage that only waits for a collection is no leak, so samples are taken after one, unless the program has disabled
the collector. Nodes are counted by a walk over the graphs that hang on living tensors: what it finds is held by
Python objects, what the C library counts is there whoever holds it.
"""

from __future__ import annotations

import array
import ast
import gc
import importlib
import json
import os
import resource
import runpy
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

KINDS = ("optimizer", "backward", "module", "function")
SAMPLE = 5  # index into KINDS, live tensor bytes, live tensor blocks, other bytes that malloc has given out, live nodes
CAPACITY = 1 << 16  # samples
LIMIT_S = 120  # of processor time: the machine may be busy
MANY_NODES = 2000


def _saved_names(kind: type) -> list[str]:
    """What nodes of a type save, where this torch says whether a saved tensor may be looked at."""
    return [name for name in dir(kind) if name.startswith("_raw_saved_")]


def _kept_by_saved(node: Any, names: list[str]) -> list[Any]:
    """Nodes that a node holds through its saved tensors alone (an in-place product saves a copy of its factor)."""
    held = []
    for name in names:
        try:
            raw = getattr(node, name)
            if raw.unpack_hook is None:  # else reading it runs the program's code
                held.append(getattr(node, name.removeprefix("_raw")).grad_fn)
        except (AttributeError, RuntimeError):  # a list, or none; freed, or changed since
            continue
    return held


def _live_nodes(torch: Any, names: dict[type, list[str]]) -> int:
    """Distinct nodes, without AccumulateGrad, of all graphs that a living tensor or Function context leads to."""
    waiting: list[Any] = []
    for thing in gc.get_objects():
        if isinstance(thing, torch.Tensor):
            # Leaves have none, and asking a view of one for it may make one.
            if thing.requires_grad and not thing.is_leaf:
                waiting.append(thing.grad_fn)
        elif isinstance(thing, torch._C._FunctionBase):
            waiting.append(thing)
    seen: dict[int, Any] = {}
    count = 0
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen[id(node)] = node
        kind = type(node)
        if kind not in names:
            names[kind] = _saved_names(kind)
        count += not node.name().endswith("AccumulateGrad")
        waiting += [following for following, _ in node.next_functions]
        waiting += _kept_by_saved(node, names[kind])
    return count


class Sampler:
    """Samples into memory that exists before the program starts, so that sampling itself adds nothing."""

    def __init__(self, oracle: Any, torch: Any) -> None:
        self.oracle, self.torch = oracle, torch
        self.values = array.array("q", bytes(8 * SAMPLE * CAPACITY))
        self.count = self.nodes = 0
        self.names: dict[type, list[str]] = {}
        self.others = False  # whether anything but module calls was sampled
        self.lock = threading.RLock()
        self.local = threading.local()

    def take(self, kind: int) -> None:
        with self.lock:
            if gc.isenabled():
                gc.collect()
            totals = self.oracle.totals()
            heap = self.oracle.heap()
            if totals["overflow"] or self.count == CAPACITY:
                raise RuntimeError("the oracle has no room for so many blocks or samples")
            at = self.count * SAMPLE
            other = heap - totals["live_bytes"]
            # The walk is slow: where a step makes many module calls, and where there are many nodes.
            often = kind < 2 or not self.others
            if self.count % (8 if not often else 4 if self.nodes > MANY_NODES else 1) == 0:
                self.nodes = _live_nodes(self.torch, self.names)
            self.others = self.others or kind < 2
            row = (kind, totals["live_bytes"], totals["live_blocks"], other, self.nodes)
            for offset, value in enumerate(row):
                self.values[at + offset] = value
            self.count += 1

    def install(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        torch, local = self.torch, self.local
        module_call, backward = torch.nn.Module.__call__, torch.Tensor.backward

        def outermost(kind: int, function: Any) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                depth = getattr(local, "depth", 0)
                local.depth = depth + 1
                try:
                    result = function(*arguments, **named)
                finally:
                    local.depth = depth
                if depth == 0:
                    self.take(kind)
                return result

            return call

        torch.nn.Module.__call__ = outermost(2, module_call)
        torch.Tensor.backward = outermost(1, backward)
        register_optimizer_step_post_hook(lambda *_: self.take(0))

    def install_functions(self, program: str) -> None:
        """Main code is the module's, and that of a function that it calls (main)."""

        def profile(frame: FrameType, event: str, argument: object) -> None:
            if event != "return" or frame.f_code.co_filename != program:
                return
            caller = frame.f_back
            for _ in range(2):
                if caller is None or caller.f_code.co_filename != program:
                    return
                if caller.f_code.co_name == "<module>":
                    sys.setprofile(None)
                    self.take(3)
                    sys.setprofile(profile)
                    return
                caller = caller.f_back

        sys.setprofile(profile)


def _import(program: Path) -> None:
    """What the program imports is frozen too: a large package would make each collection slow."""
    for statement in ast.parse(program.read_bytes()).body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                importlib.import_module(alias.name)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            module = importlib.import_module(statement.module)
            for alias in statement.names:
                getattr(module, alias.name)  # a package may import its parts when they are asked for
    gc.collect()
    gc.freeze()


def _run(sampler: Sampler, request: dict[str, Any]) -> int:
    """In the fork. Returns its exit status."""
    try:
        program = Path(request["program"])
        if request["paths"]:
            sys.path += request["paths"]
            _import(program)
        sampler.install()
        if request["functions"]:
            sampler.install_functions(str(program))
        sys.argv = [str(program), str(request["steps"])]
        sys.path[0] = str(program.parent)
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as end:
        if end.code:
            print(f"exit: {end.code}", file=sys.stderr)
            return 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.setprofile(None)
    with open(request["samples"], "wb") as file:
        file.write(sampler.values[: sampler.count * SAMPLE].tobytes())
    return 0


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "record" / "truth"))
    import oracle as witness  # type: ignore[import-not-found]
    import torch
    import torch.optim.swa_utils
    import torch.utils.checkpoint
    import torch.utils.data

    oracle = witness.Oracle()
    # One of everything: what torch loads on first use (a compiler, for optimizers) is then frozen before the fork.
    layer = torch.nn.Linear(2, 2)
    for kind in (torch.optim.SGD, torch.optim.Adam):
        optimizer = kind(layer.parameters())
        (data,) = next(iter(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(2, 2)))))
        torch.utils.checkpoint.checkpoint(layer, data, use_reentrant=False).sum().backward()
        optimizer.step()
    torch.distributions.Normal(torch.zeros(1), torch.ones(1)).sample()  # type: ignore[no-untyped-call]
    sampler = Sampler(oracle, torch)
    for line in sys.stdin:
        request = json.loads(line)
        said = Path(request["samples"] + ".out")
        gc.collect()
        gc.freeze()  # a collection in the program then looks at the program's objects only
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
            signal.alarm(10 * LIMIT_S)  # for one that only waits
            with said.open("wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            code = 1
            try:
                code = _run(sampler, request)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"code": code, "error": said.read_text(errors="replace")[-2000:] if code else ""}), flush=True)


if __name__ == "__main__":
    main()
