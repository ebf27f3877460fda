"""One try: the program in a fork of the server, with its changes, for a few steps.

Imports torch, so it is imported by the server alone (try_server.py).
"""

import builtins
import json
import os
import runpy
import signal
import sys
import time
import traceback
import types
from typing import Any, NoReturn

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from cuptimem.simulation import changes, try_files
from cuptimem.simulation.changes import change, sources, stepping
from cuptimem.simulation.elements import passed_over
from cuptimem.simulation.places import is_library, is_programs


class Run:
    """What a try has to answer. It ends this process as soon as it can: nothing of the program runs behind that, so
    that no files are saved that hold zeros."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._steps: dict[int, int] = {}  # by optimizer
        self._peaks = (0, 0)  # what the program had before it reset its peaks
        self._installed: list[change.Change] = []
        self._recording: Any = None
        self._readers: Any = None
        self._began = time.process_time()
        self._pid = os.getpid()

    def run(self) -> NoReturn:
        """Runs the program and ends this process."""
        change.on_refusal(self.refuse)
        error = None
        try:
            parts = changes.parse(self._request["change"]) if self._request["change"] else []
            parts = [(name, self._request["values"].get(name, value)) for name, value in parts]
            try_files.keep_own(self._request["result"] + ".saved")
            self._prepare()
            self._installed = changes.install(parts, self._request["device"], self._request["operators"])
            register_optimizer_step_post_hook(self._stepped)
            self._execute()
        except SystemExit as end:
            if end.code not in (None, 0):
                error = f"it ended with exit code {end.code}" if isinstance(end.code, int) else str(end.code)
        except BaseException as raised:  # whatever it is, it is the answer
            error = _described(raised)
            traceback.print_exception(raised.with_traceback(_of_program(raised.__traceback__)))
        self._end(error)

    def refuse(self, reason: str) -> NoReturn:
        """Ends it with the reason: the change would do something else with this program."""
        self._end(None, refused=reason)

    def _prepare(self) -> None:
        trace = self._request["trace"]
        if self._request["readers"]:
            from cuptimem.simulation.readers import Readers

            self._readers = Readers()
            self._readers.start()
        if self._request["device"] == "cuda":
            self._keep_peaks()
            if not trace:
                return
        import cuptimem

        # Names of modules and of the optimizer's states are for predictions. Holders are asked for nowhere.
        options = {"walks": bool(trace), "holders": False, "driver": False, "argv": False}
        self._recording = cuptimem.profile(trace or self._request["result"] + ".cmem", **options)
        self._recording.start()

    def _execute(self) -> None:
        words = self._request["words"]
        if words[0] == "-m":
            sys.argv[:] = ["-m", *words[2:]]
            sys.path.insert(0, os.getcwd())
            sys.modules["__main__"] = types.ModuleType("__main__")
            runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
            return
        if words[0] == "-c":
            sys.argv[:] = ["-c", *words[2:]]
            sys.path.insert(0, "")
            _execute(words[1], "<string>", {})
            return
        sys.argv[:] = words
        if os.path.isdir(words[0]) or words[0].endswith((".zip", ".pyz")):
            runpy.run_path(words[0], run_name="__main__")
            return
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        with open(words[0], "rb") as file:
            _execute(file.read(), words[0], {"__file__": words[0]})

    def _stepped(self, optimizer: Any, *_: object) -> None:
        if stepping.is_one() or os.getpid() != self._pid:
            return
        self._steps[id(optimizer)] = self._steps.get(id(optimizer), 0) + 1
        if self._request["steps"] and self._steps[id(optimizer)] >= self._request["steps"]:
            self._end(None)

    def _keep_peaks(self) -> None:
        """The program's own resets of its peaks take nothing from the answer."""
        for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
            original = getattr(torch._C, name, None)
            if original is not None:
                setattr(torch._C, name, self._kept(original))

    def _kept(self, original: Any) -> Any:
        def reset(*arguments: Any, **keywords: Any) -> Any:
            self._peaks = self._cuda_peaks()
            return original(*arguments, **keywords)

        return reset

    def _cuda_peaks(self) -> tuple[int, int]:
        """Of the fullest device, in tensors and reserved."""
        cuda: Any = torch.cuda
        if not cuda.is_initialized():
            return self._peaks
        all_peaks = [self._peaks]
        for index in range(cuda.device_count()):
            stats = cuda.memory_stats(index)
            all_peaks.append((stats.get("allocated_bytes.all.peak", 0), stats.get("reserved_bytes.all.peak", 0)))
        return max(all_peaks)[0], max(reserved for _, reserved in all_peaks)

    def _end(self, error: str | None, refused: str = "") -> NoReturn:
        if os.getpid() != self._pid:  # a process that the program has forked, and that has its functions
            os._exit(1)
        peak, reserved, modules, ooms, beside = 0, 0, [], 0, 0
        try:
            for one in self._installed:
                one.finish()
            if self._request["device"] == "cuda":
                peak, reserved = self._cuda_peaks()
                ooms, beside = _refused_and_beside()
            if self._readers:
                self._readers.finish(self._request["readers"])
            if self._recording:
                self._recording.stop()
            if self._request["device"] == "cpu":
                peak, reserved = self._cpu_peak()
            modules = _library_modules()
        except Exception as raised:
            error = error or f"its peak is not known: {_described(raised)}"
        result = {
            "peak": peak,
            "reserved": reserved,
            "applied": [(one.name, one.applied, one.why_not) for one in self._installed],
            "again": {one.name: one.again for one in self._installed if one.again and error is None},
            "says": [(one.write, one.place) for one in self._installed if one.applied and (one.write or one.place)],
            "steps": max(self._steps.values(), default=0),
            "error": error,
            "refused": refused,
            "cpu": time.process_time() - self._began,
            "modules": modules,
            "ooms": ooms,
            "beside": beside,
        }
        sys.stdout.flush()
        sys.stderr.flush()
        with open(self._request["result"] + ".new", "w", encoding="utf-8") as file:
            json.dump(result, file)
        os.replace(self._request["result"] + ".new", self._request["result"])
        os._exit(0)

    def _cpu_peak(self) -> tuple[int, int]:
        peaks = [one.peak.bytes for one in self._recording.report.devices if one.name == "cpu"]
        return max(peaks, default=0), 0


def _refused_and_beside() -> tuple[int, int]:
    """Requests that the allocator refused the program, and what the fullest device has in use that is not PyTorch's."""
    cuda: Any = torch.cuda
    ooms, beside = 0, [0]
    for index in range(cuda.device_count() if cuda.is_initialized() else 0):
        stats = cuda.memory_stats(index)
        free, total = cuda.mem_get_info(index)
        ooms += stats.get("num_ooms", 0)
        beside.append(total - free - stats.get("reserved_bytes.all.current", 0))
    return max(0, ooms - passed_over()), max(beside)


def _execute(source: str | bytes, file: str, variables: dict[str, str]) -> None:
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, **variables)
    exec(sources.compiled(source, file), main.__dict__)


def _described(error: BaseException) -> str:
    """One line: the exception, and the innermost line of the program's own."""
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    files = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(_of_program(error.__traceback__))]
    own = [f" at {os.path.basename(file)}:{line}" for file, line in files if is_programs(file)]
    return (lines[0][:300] if lines else type(error).__name__) + (own[-1] if own else "")


def _of_program(found: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames that run the program."""
    ours = (__file__, sources.__file__, runpy.__file__, "<frozen runpy>")
    while found is not None and found.tb_frame.f_code.co_filename in ours:
        found = found.tb_next
    return found


def _library_modules() -> list[str]:
    """What the program has imported of libraries: the server imports it before the next try."""
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(getattr(module, "__spec__", None), "origin", None)
        if name != "__main__" and isinstance(file, str) and os.path.isabs(file) and is_library(file):
            found.append(name)
    return found


def become(request: dict[str, Any]) -> NoReturn:
    """In the fork: its streams and its process group are its own."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    written = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, opened in enumerate((os.open(os.devnull, os.O_RDONLY), written, written)):
        os.dup2(opened, number)
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    Run(request).run()
