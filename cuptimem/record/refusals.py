"""Exceptions of refused requests for memory, and the page that is printed when one leaves the program or the profile.

Part of every recording: imports nothing that Python has not loaded by itself.
"""

import sys

from cuptimem.errors import own

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from cuptimem.record.recorder import Window
    from cuptimem.report.model import Report

WIDTH = 80  # of the page, where the terminal's is unknown
_ADVISED_EVENTS = 1_000_000  # a trace of more is not read a second time here
_LONGEST = 200  # characters of a class's name in the trace


_mro = type.__dict__["__mro__"].__get__  # whatever a metaclass shows
_qualified_name = type.__dict__["__qualname__"].__get__
_cause = BaseException.__dict__["__cause__"].__get__
_context = BaseException.__dict__["__context__"].__get__
_arguments = BaseException.__dict__["args"].__get__
_suppressed = BaseException.__dict__["__suppress_context__"].__get__


def is_of(error: BaseException) -> bool:
    """Whether it, or its cause in the traceback, comes from a refused allocation of PyTorch's. Runs no code of the
    program's classes."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        if _refuses(one):
            return True
        seen.add(id(one))
        pending.append(_cause(one))
        if not _suppressed(one):
            pending.append(_context(one))
        if any(kind is BaseExceptionGroup for kind in _mro(type(one))):
            pending += BaseExceptionGroup.__dict__["exceptions"].__get__(one)
    return False


def _refuses(error: BaseException) -> bool:
    """MemoryError is Python's own: PyTorch's allocators were not asked, and there is nothing to show."""
    torch = sys.modules.get("torch")
    places = (torch, getattr(torch, "cuda", None))  # before 2.5 it is in torch.cuda alone
    refused = next((one for one in (getattr(place, "OutOfMemoryError", None) for place in places) if one), None)
    if refused is not None and any(kind is refused for kind in _mro(type(error))):
        return True
    if type(error) is not RuntimeError:
        return False
    text = _arguments(error)
    return len(text) == 1 and type(text[0]) is str and "DefaultCPUAllocator: " in text[0]


def ended_program() -> BaseException | None:
    """At exit: the exception that has ended the program. Python keeps what its excepthook was called for; so do
    test runners and notebooks with what they caught, but their own frames lie around it."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if not isinstance(error, BaseException):
        return None
    frame = error.__traceback__.tb_frame if error.__traceback__ is not None else None  # None: it does not compile
    ended = not hasattr(sys, "ps1") and (frame is None or frame.f_back is None)  # a prompt goes on
    return error if ended else None


def at_exit(core: "ModuleType", function: "Callable[[], None]") -> "Callable[[], None]":
    """A callable for atexit. It leaves the exit status of a program that Ctrl-C has ended."""

    def run() -> None:
        error = ended_program()
        try:
            function()
        finally:
            if type(error) is KeyboardInterrupt:
                _interrupt()

    made: Callable[[], None] = core.process_at_exit(run)
    return made


def _interrupt() -> None:
    """Python dies by the signal only if an interrupt has left the last source text that it ran, and an import of ours
    runs one for each dataclass."""
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return


def note(error: BaseException) -> "dict[str, str]":
    """For the trace: the class of the exception that ended what was recorded. Its text may be private."""
    if any(kind in (SystemExit, GeneratorExit) for kind in _mro(type(error))):  # the program's own way to end
        return {}
    return {"exception": _qualified_name(type(error))[:_LONGEST]}


def show(window: "Window") -> None:
    """The page of a window that is closed; once its capture is over."""

    def report() -> "Report":
        from cuptimem.report.load import analyze

        path, source, number = window.source
        return analyze(path, source=source, window=number, temporary=window.path is None, default_code=window.code)

    show_report(report)


def show_report(make: "Callable[[], Report]") -> None:
    """The page of what was refused, on standard error. Never raises: the program's exception is on its way."""
    from cuptimem.record import recorder

    missing = "account of"  # memory may be short here, too: what is there is printed first
    try:
        from cuptimem.output.text import oom_views, text

        report = make()
        oom = report.oom_left
        if oom is not None:
            recorder.write("\n" + text.render(oom_views.page(report, oom), WIDTH) + "\n")
            missing = "advice for"
            if recorder.last_counts.get("events", 0) <= _ADVISED_EVENTS:
                recorder.write(text.render(oom_views.advised(report, oom), WIDTH) + "\n")
    except own(Exception) as error:
        recorder.say(f"no {missing} the refused request: {' '.join(str(error).split()) or type(error).__name__}")
