"""The command line: a file per verb, found in the table below and loaded when asked for."""

import os
import sys

import cuptimem
from cuptimem.cli import streams

TYPE_CHECKING = False  # `run` must import nothing that the program's folder could shadow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

VERBS = {
    "run": "run a Python script and record its tensor memory",
    "live": "what a running program's memory is made of now, in a terminal",
    "window": "record a running process for some steps or seconds: its summary",
    "start": "begin to record a running process",
    "stop": "end what `start` began: its summary",
    "summary": "how high the memory went, what of, and whether it grows",
    "peak": "what was alive at the peak, line by line",
    "advice": "what to change, at which line, and the peak it would give",
    "timeline": "a page: live bytes over time by line, steps, the peak, leaks, single allocations",
    "leaks": "what grows from step to step, and the line that makes it",
    "holders": "which variable, attribute or container held the memory of a line",
    "ledger": "who has the device's memory: tensors, cache, each library and line, the rest",
    "host": "who has the host's memory: each worker and helper, /dev/shm, mapped files; what grows",
    "fragmentation": "what PyTorch reserved and cannot give out, and the lines that keep it",
    "kernels": "kernels, and blocks that waited for them (of a recording with --kernels)",
    "steps": "every training step: start, peak, end, allocated, freed",
    "table": "the peak's blocks summed by line, module, category, operator and more",
    "account": "the peak in exact bytes: parameters, gradients, activations, ..., by module",
    "tree": "the same blocks by their whole stacks, as a tree",
    "flamegraph": "a page: bytes by stack or module, at the peak, leaked, allocated in all and more",
    "diff": "two recordings: what came, went, grew at the peak, at the end and in each step",
    "ranks": "many ranks: which one needs more, at which lines, and why",
    "export": "for Perfetto, memory_viz, speedscope, TensorBoard, flamegraph.pl; as CSV and JSON",
    "convert": "keep a memory snapshot of PyTorch's (a pickle) as a trace",
    "scrub": "a copy for sharing: no command line, host, user or home folders in it",
    "simulate": "run it on a simulated GPU: does it fit, and what is the peak",
    "fits": "on which GPUs it fits, simulated, and with which settings of the allocator",
    "max-batch": "the largest batch that fits on a simulated GPU, proven by runs",
    "doctor": "what works in this environment, and how to fix what does not",
    "skill": "print a SKILL.md for agents: questions, answers, what never to do",
    "completion": "print a script that completes command lines in bash, zsh or fish",
}

# Words of other tools for our verbs.
_OTHER_WORDS = {
    **dict.fromkeys(("record", "profile", "trace", "python"), "run"),
    **dict.fromkeys(("report", "show", "stats", "open", "read"), "summary"),
    **dict.fromkeys(("view", "plot", "draw", "chart"), "timeline"),
    **dict.fromkeys(("transform",), "export"),
}

_DONE, _FAILED, _USAGE, _PIPE = 0, 1, 2, 141


def usage() -> str:
    """The text of --help."""
    lines = [
        "usage: cuptimem VERB ...",
        "",
        "The memory profiler for PyTorch: what the peak is made of, per step and per line.",
        "",
        *(f"  {verb:<13} {what}" for verb, what in VERBS.items()),
        "",
        "  cuptimem run train.py        writes cuptimem-train.<pid>.cmem",
        "  cuptimem summary             reads the newest trace here; summary FILE: that one",
        "  cuptimem timeline            draws it",
        "  cuptimem VERB --help         says more about one verb",
        "  cuptimem --version",
    ]
    return "\n".join(lines)


def main(arguments: "Sequence[str]") -> int:
    """Runs one verb. Exit codes: 0 done, 1 it could not be done (one line reports why), 2 wrong usage."""
    streams.prepare()
    try:
        try:
            return _dispatch(list(arguments))
        finally:  # argparse leaves by SystemExit
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone (head, less): drop the rest, so that Python does not write it at exit.
        streams.drop(sys.stdout)
        return _PIPE
    except KeyboardInterrupt:
        streams.complain("interrupted")
        return 130
    except OSError as error:
        # A full disk. Verbs turn errors of files that they name into Error, so a nameless one is of standard output.
        streams.drop(sys.stdout)
        gone = isinstance(error, FileNotFoundError)  # no stream raises that
        name = error.filename or ("the current folder" if gone else "standard output")
        streams.complain(f"{name}: {error.strerror or error}")
        return _FAILED


def _dispatch(arguments: list[str]) -> int:
    from cuptimem.errors import Error

    if not arguments:
        print(usage(), file=sys.stderr)
        return _USAGE
    verb = arguments[0]
    if verb in ("-h", "--help", "help") and arguments[1:2] and arguments[1] in VERBS:
        arguments = [arguments[1], "--help"]
        verb = arguments[0]
    if verb in ("-h", "--help", "help"):
        print(usage())
        return _DONE
    if verb in ("-V", "--version", "version"):
        print(f"cuptimem {cuptimem.__version__}")
        return _DONE
    if verb not in VERBS:
        return _unknown(verb)
    try:
        return _run(verb, arguments[1:])
    except Error as error:
        streams.complain(str(error))
        return _FAILED


def module_of(verb: str) -> "ModuleType":
    return __import__(f"cuptimem.cli.{verb.replace('-', '_')}", fromlist=["main"])


def _run(verb: str, arguments: list[str]) -> int:
    """A verb that reads ends soon, and its modules and reports have no cycles that count: to search millions of objects
    for some takes a third of the time of a large page."""
    if verb in ("run", "live", "simulate", "advice", "fits", "max-batch"):  # programs of the user's, or without an end
        return int(module_of(verb).main(arguments))
    import gc

    collected = gc.isenabled()
    gc.disable()
    try:
        return int(module_of(verb).main(arguments))
    finally:
        if collected:
            gc.enable()


def _unknown(verb: str) -> int:
    import difflib

    from cuptimem import naming
    from cuptimem.cli import hints

    if hints.is_trace(verb):
        hint = f"did you mean: cuptimem summary {naming.typed(verb)}"
    elif verb.endswith(".py") or os.path.isfile(os.path.join(verb, "__main__.py")):
        hint = f"did you mean: cuptimem run {naming.typed(verb)}"
    elif os.path.exists(verb):
        hint = "it is no trace and no script; see: cuptimem --help"
    elif verb.startswith("-"):
        hint = "options stand behind a verb; see: cuptimem --help"
    else:
        near = [_OTHER_WORDS[verb]] if verb in _OTHER_WORDS else difflib.get_close_matches(verb, VERBS, n=1)
        hint = f"did you mean: cuptimem {near[0]}" if near else f"verbs: {', '.join(VERBS)}"
    streams.complain(f"no verb {verb!r}; {hint}")
    return _USAGE
