"""%%cuptimem: records the tensor memory of a cell.

The magic's line becomes a statement that starts the recording, on the same line of the same cell. IPython then runs the
cell as any other: top-level await, the last value, tracebacks with their lines. The end of the cell ends the recording.
"""

import argparse
import shlex
import sys
from dataclasses import replace
from typing import Any

from cuptimem import cell_names
from cuptimem.errors import Error
from cuptimem.notebook import display, held
from cuptimem.printable import printable
from cuptimem.record.profiler import Profile
from cuptimem.report.model import Report

_MAGIC = "%%cuptimem"
_ATTRIBUTE = "_cuptimem_magic"  # of the shell


def load(shell: Any) -> None:
    """Once, or again."""
    if getattr(shell, _ATTRIBUTE, None) is None:
        setattr(shell, _ATTRIBUTE, Magic(shell))


def unload(shell: Any) -> None:
    """A recording that is open goes on to the end of its cell."""
    magic = getattr(shell, _ATTRIBUTE, None)
    if magic is not None:
        magic.remove()
        setattr(shell, _ATTRIBUTE, None)


def begin(line: str) -> None:
    """What the magic's line becomes."""
    from IPython import get_ipython

    magic = getattr(get_ipython(), _ATTRIBUTE, None)
    if magic is None:
        from IPython.core.error import UsageError

        raise UsageError("cuptimem is not loaded: %load_ext cuptimem")
    magic.begin(line)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        from IPython.core.error import UsageError

        raise UsageError(f"{_MAGIC}: {message}; {_MAGIC} --help lists the options")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_MAGIC, add_help=False, description="Records the tensor memory of this cell and shows what it was."
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this and run nothing")
    parser.add_argument("-o", "--output", metavar="NAME", help="bind the report to this variable")
    parser.add_argument("-s", "--save", metavar="FILE", help="keep the trace in this file, replacing an older one")
    parser.add_argument("-q", "--no-display", action="store_true", help="show nothing of ours")
    parser.add_argument(
        "--code", action="append", default=[], metavar="PACKAGE", help="an installed package that counts as your code"
    )
    parser.add_argument("--operators", action="store_true", help="record full names of operators, too")
    parser.add_argument("--kernels", action="store_true", help="record when CUDA's kernels and copies ran, too")
    return parser


class Magic:
    """The magic in one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._recording: _Recording | None = None
        shell.input_transformers_cleanup.append(_transformed)
        shell.events.register("post_run_cell", self._end)
        run_cell.__doc__ = _parser().format_help()
        shell.register_magic_function(run_cell, "cell", "cuptimem")

    def remove(self) -> None:
        if _transformed in self._shell.input_transformers_cleanup:
            self._shell.input_transformers_cleanup.remove(_transformed)
        self._shell.events.unregister("post_run_cell", self._end)
        self._shell.magics_manager.magics["cell"].pop("cuptimem", None)
        self._end(None)

    def begin(self, line: str) -> None:
        from IPython.core.error import UsageError

        parser = _parser()
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"{_MAGIC}: {error}") from None
        options = parser.parse_args(words)
        if options.help:
            raise UsageError(parser.format_help())
        if options.output is not None and not options.output.isidentifier():
            raise UsageError(f"{_MAGIC}: {options.output!r} is no variable's name")
        self._end(None)  # of a cell that was left without its end
        try:
            self._recording = _Recording(self._shell, options)
        except (Error, ValueError) as error:
            raise UsageError(f"{_MAGIC}: {error}") from None

    def _end(self, result: object) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.end()


class _Recording:
    """One run of one cell."""

    def __init__(self, shell: Any, options: argparse.Namespace) -> None:
        self._shell, self._options = shell, options
        self._cell = cell_names.namer()(sys._getframe(3).f_code.co_filename)
        self._profile = Profile(
            options.save, overwrite=True, code=options.code, kernels=options.kernels, operators=options.operators
        )
        self._profile.start()

    def end(self) -> None:
        """Never raises: the cell has ended as it did."""
        try:
            self._profile.stop()
            report = self._report()
        except (Error, RuntimeError, OSError) as error:
            self._say(str(error))
            return
        if self._options.output is not None:
            self._shell.user_ns[self._options.output] = report
        if not self._options.no_display:
            self._show(report)

    def _report(self) -> Report:
        """With the blocks that outlive the cell, and named by the cell rather than by the kernel's launcher."""
        first = self._profile.report
        report = first._again(tables=("kept",))
        environment = {name: value for name, value in report.environment.items() if name != "pid"}
        environment["script"] = self._cell
        return replace(report, path=first.path, recorded=first.recorded, environment=environment)

    def _show(self, report: Report) -> None:
        from IPython.display import display as show

        data = {"text/plain": display.plain(report)}
        if "text/html" in self._shell.display_formatter.active_types:
            data["text/html"] = display.markup_of(report, held.find(self._shell, report))
        show(data, raw=True)  # type: ignore[no-untyped-call]  # IPython's has no types

    def _say(self, text: str) -> None:
        from IPython.display import display as show

        show({"text/plain": f"cuptimem: {printable(text)}"}, raw=True)  # type: ignore[no-untyped-call]  # IPython's has no types


def _transformed(lines: list[str]) -> list[str]:
    """Only the first line changes, so that every other keeps its number."""
    if not lines or not lines[0].startswith(_MAGIC):
        return lines
    rest = lines[0][len(_MAGIC) :]
    if rest[:1] not in ("", " ", "\t", "\n"):  # %%cuptimem_other, or %%cuptimem?
        return lines
    return [f"__import__('cuptimem.notebook.magic', fromlist=['begin']).begin({rest.strip()!r})\n", *lines[1:]]


def run_cell(line: str, cell: str) -> None:
    """For programs that call the magic themselves; in a cell, _transformed is faster than IPython's lookup."""
    from IPython import get_ipython

    get_ipython().run_cell(f"{_MAGIC} {line}\n{cell}").raise_error()
