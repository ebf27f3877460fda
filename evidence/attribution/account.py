"""python account.py DEVICE PROGRAM [ARGUMENT ...]

An account of a program's peak on a device ("cpu", "cuda") that never sees cuptimem: a TorchDispatchMode sees each
storage's birth, a weak reference its end; PyTorch's anomaly mode keeps the forward stack of each autograd node. A
storage is

- a parameter, buffer, gradient or optimizer state if an optimizer has it when it steps, or a module at exit;
- a half copy of a parameter, which autocast keeps;
- what a comment `#: WORD` on the line says that made it (`#: input`, `#: kept`);
- an activation if autograd saved it, else temporary.

Its line is the innermost of the program; of backward, unless the program's own code runs there, the node's. Prints one
JSON object: the peak's bytes, by category, by line, and by both; and as `allocator` the peak by PyTorch's profiler, on
CUDA by its allocator's statistics: they count what operators allocate inside of themselves, too.
"""

import gc
import json
import re
import runpy
import sys
import weakref
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

MARK = re.compile(r"#: (\w+)")
TRACEBACK = re.compile(r'File "(.*)", line (\d+)')


class Block:
    __slots__ = ("bytes", "line", "saved", "word")

    def __init__(self, size: int, line: int) -> None:
        self.bytes, self.line, self.saved, self.word = size, line, False, ""


class Account(TorchDispatchMode):
    def __init__(self, device: str, program: Path) -> None:
        super().__init__()
        self.device, self.program = device, str(program)
        self.marks = {
            number: found.group(1)
            for number, text in enumerate(program.read_text().splitlines(), 1)
            if (found := MARK.search(text))
        }
        self.live: dict[int, Block] = {}
        self.total = self.peak = 0
        self.at_peak: list[Block] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        cached = func is torch.ops.aten._to_copy.default and isinstance(args[0], torch.nn.Parameter)
        for value in tree_leaves(result):
            if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided:
                self.see(value)
                if cached and value.dtype in (torch.float16, torch.bfloat16):
                    self.name(value, "autocast cache")
        return result

    def see(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != self.device:
            return
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        block = self.live.get(key)
        if block is None:
            block = self.live[key] = Block(0, self.line())
            weakref.finalize(storage, self.end, key).atexit = False
        self.total += size - block.bytes
        block.bytes = size
        if self.total > self.peak:
            self.peak, self.at_peak = self.total, [*self.live.values()]

    def end(self, key: int) -> None:
        block = self.live.pop(key, None)
        self.total -= block.bytes if block else 0

    def line(self) -> int:
        frame: Any = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename == self.program:
                return int(frame.f_lineno)
            if frame.f_code.co_name == "_engine_run_backward" and (found := self.node_line()):
                return found
            frame = frame.f_back
        return self.node_line()  # a thread of autograd's own has no Python frames

    def node_line(self) -> int:
        node = torch._C._current_autograd_node()
        lines = "".join(node.metadata.get("traceback_", [])) if node else ""
        own = [int(line) for file, line in TRACEBACK.findall(lines) if file == self.program]
        return own[-1] if own else 0

    def name(self, tensor: Any, word: str) -> None:
        if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
            block = self.live.get(tensor.untyped_storage()._cdata)
            if block is not None and not block.word:
                block.word = word

    def walk(self) -> None:
        """Names what modules have."""
        with _disable_current_modes():
            modules = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]
            for module in modules:
                for parameter in module._parameters.values():
                    self.name(parameter, "parameter")
                    self.name(getattr(parameter, "grad", None), "gradient")
                for buffer in module._buffers.values():
                    self.name(buffer, "buffer")

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Names what an optimizer has, before and after its step."""
        with _disable_current_modes():
            for parameter in [p for group in optimizer.param_groups for p in group["params"]]:
                self.name(parameter, "parameter")
                self.name(parameter.grad, "gradient")
            for value in tree_leaves([dict(state) for state in optimizer.state.values()]):
                self.name(value, "optimizer state")

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        block = self.live.get(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else None
        if block is not None:
            block.saved = True
        return tensor

    def category(self, block: Block) -> str:
        return block.word or self.marks.get(block.line, "") or ("activation" if block.saved else "temporary")

    def result(self) -> dict[str, Any]:
        by: dict[str, Counter[str]] = {"categories": Counter(), "lines": Counter(), "both": Counter()}
        for block in self.at_peak:
            category = self.category(block)
            by["categories"][category] += block.bytes
            by["lines"][str(block.line)] += block.bytes
            by["both"][f"{block.line} {category}"] += block.bytes
        return {"peak": self.peak, **{key: dict(sums.most_common(12)) for key, sums in by.items()}}


def account(device: str, program: Path) -> dict[str, Any]:
    seen = Account(device, program)
    register_optimizer_step_pre_hook(lambda optimizer, *_: seen.step(optimizer))
    register_optimizer_step_post_hook(lambda optimizer, *_: seen.step(optimizer))
    # A node of a backward through backward would keep the one that made it, and its tensors: there no line is known.
    twice = "create_graph=True" in program.read_text()
    torch.autograd.set_detect_anomaly(not twice, False)

    class Ignored(torch.autograd.set_detect_anomaly):
        """Libraries would switch it off."""

        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__(not twice, False)

    torch.autograd.set_detect_anomaly = Ignored
    names: Any = {}
    with seen, torch.autograd.graph.saved_tensors_hooks(seen.pack, lambda tensor: tensor):
        try:
            names = runpy.run_path(str(program), run_name="__main__")
        finally:
            seen.walk()
    del names
    result = seen.result()
    return {**result, "lines": {}, "both": {}} if twice else result


def profiled_peak(events: Iterable[Any]) -> int:
    """Of the profiler's records of what the CPU's allocator gives and takes."""
    total = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    return peak


def main() -> None:
    device, *sys.argv = sys.argv[1:]
    program = Path(sys.argv[0]).resolve()
    output, sys.stdout = sys.stdout, sys.stderr
    if device == "cuda":
        result = account(device, program)
        result["allocator"] = torch.cuda.max_memory_allocated()
    else:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as prof:
            result = account(device, program)
        result["allocator"] = profiled_peak(prof.profiler.kineto_results.events())
    print(json.dumps(result, indent=1), file=output)


if __name__ == "__main__":
    main()
