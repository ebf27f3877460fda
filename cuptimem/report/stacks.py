"""Python stacks as reports show them. A stack is a tuple of Frame, innermost first."""

import os
import re
from dataclasses import dataclass, field
from functools import lru_cache

from cuptimem.report.brief import Brief, at, name

Stack = tuple["Frame", ...]

# Installed packages, and Python's own modules too: as csrc/base/library.c has them.
PACKAGE_FOLDER = r"[/\\](?:site-packages|dist-packages)"
LIBRARY_FOLDER = r"[/\\](?:site-packages|dist-packages|lib(?:64)?[/\\]python3\.\d+t?)"

_LIBRARY = re.compile(LIBRARY_FOLDER + r"[/\\]")
_INSTALLED = re.compile(PACKAGE_FOLDER + r"[/\\]")
_DATA = re.compile(PACKAGE_FOLDER + r"[/\\]torch[/\\]utils[/\\]data[/\\]")
_TORCH = re.compile(PACKAGE_FOLDER + r"[/\\]torch[/\\]")

# Code that libraries compile from text, as csrc/base/library.c lists it, and names that Python's tempfile makes: tmp
# and eight characters below a folder for temporary files, or a module's name and eight characters.
_COMPILED = re.compile(
    r"^<(?:frozen |eval_with_key>|attrs generated |decorator-gen-|makefun-gen-|@beartype\(|magic-timeit>"
    r"|lambdifygenerated-|timeit-src>|__array_function__)"
)
_TEMP_FOLDER = re.compile("te?mp", re.IGNORECASE)
_TEMP_NAME = re.compile(r"tmp[a-z0-9_]{8}")
_MODULE_AND_RANDOM = re.compile(r"(.*\..*_)[a-z0-9_]{8}\.py", re.DOTALL)
_PARTS = re.compile(r"[^/\\]*")
# What torch.compile wrote, wherever its cache lies: ab/cab<the rest of a hash>.py.
_GENERATED = re.compile(r"[/\\]([a-z2-7]{2})[/\\](c\1[a-z2-7]{40,})\.py$")


@dataclass(frozen=True, slots=True, repr=False)
class Frame(Brief):
    """One call on a stack. Lines count from 1, columns from 0 in bytes of UTF-8; -1 is unknown."""

    file: str
    function: str  # qualified name
    line: int
    end_line: int = -1
    column: int = -1
    end_column: int = -1
    module: str | None = None  # class of the nn.Module whose call this frame is
    module_address: int = 0  # which one: equal addresses on one stack are one module
    text: str = field(default="", compare=False)  # the whole line, as the recording has it; "" unknown
    own: bool = False  # of an installed package that was chosen as the user's own code (--code)

    def _summary(self) -> str:
        module = "" if self.module is None else f", a call of {name(self.module)}"
        return f"{name(self.function)} at {at(self)}{module}"

    @property
    def is_library(self) -> bool:
        """Whether the code belongs to an installed package, to Python or to torch.compile rather than to the user."""
        if self.own:
            return False
        return self.truncated or is_no_users(self.file)

    @property
    def is_plumbing(self) -> bool:
        """Whether the code is PyTorch's, Python's or generated: what everybody's calls go through."""
        if not self.is_library:
            return False
        return _is_plumbing(self.file)

    @property
    def truncated(self) -> bool:
        """Whether it stands for the outer frames of a stack that was too deep."""
        return not self.file and self.function == "..."

    @property
    def source(self) -> str:
        """The line of code as it was when it ran, stripped; "" where the recording does not have it."""
        return self.text.strip()

    @property
    def expression(self) -> str:
        """The part of the line that was running, where Python says so; else the line."""
        if self.column < 0 or self.end_column < 0:
            return self.source
        text = self.text.encode(errors="surrogatepass")
        if not text.strip():
            return ""
        if self.end_line not in (-1, self.line):
            return text[self.column :].decode(errors="replace").strip() + " ..."
        return text[self.column : self.end_column].decode(errors="replace").strip()

    def same_line(self, other: "Frame") -> bool:
        """Whether both are of one line of one file."""
        return self.line == other.line and self.file == other.file

    @property
    def place(self) -> str:
        """file:line, the file as short as it stays clear."""
        return f"{short_file(self.file)}:{self.line}"

    @property
    def shown(self) -> str:
        """file:line, the file as views show it."""
        return f"{shown_file(self.file)}:{self.line}"


def function(frame: Frame | None) -> str:
    return frame.function.replace(".<locals>", "") if frame is not None else ""


def bare_name(frame: Frame) -> str:
    """Of its function, without what it is defined in."""
    return frame.function.rpartition(".")[2]


@lru_cache(1024)  # there are many more lines than files
def is_no_users(file: str) -> bool:
    return _LIBRARY.search(file) is not None or is_generated(file) or temporary_part(file) > 0


@lru_cache(1024)
def temporary_part(file: str) -> int:
    """Of a path with a part that Python's tempfile named: its length up to that part's end; else 0."""
    below_temp = False
    for found in _PARTS.finditer(file):
        part, last = found[0], found.end() == len(file)
        if below_temp and _TEMP_NAME.fullmatch(part.removesuffix(".py") if last else part):
            return found.end()
        if last:
            return found.end() if _MODULE_AND_RANDOM.fullmatch(part) else 0
        below_temp = below_temp or _TEMP_FOLDER.fullmatch(part) is not None
    return 0


@lru_cache(1024)
def _is_plumbing(file: str) -> bool:
    return _INSTALLED.search(file) is None or _TORCH.search(file) is not None


@lru_cache(1024)
def _is_data(file: str) -> bool:
    return _DATA.search(file) is not None


def is_generated(file: str) -> bool:
    """Whether the file is none that was installed or written by hand, wherever it lies."""
    return is_compiled(file) or _GENERATED.search(file) is not None


def is_compiled(file: str) -> bool:
    """Whether a library compiled the code from text."""
    return _COMPILED.match(file) is not None


@lru_cache(1024)
def short_file(file: str) -> str:
    """As short as it stays clear: installed files from their package on, others by their name and folder."""
    if file.startswith("<"):
        return file
    generated = _GENERATED.search(file)
    if generated is not None:
        return f"torch.compile/{generated[2][:9]}….py"
    if (end := temporary_part(file)) and _LIBRARY.search(file) is None:
        return _without_random(file, end)
    installed = _LIBRARY.split(file)
    if len(installed) > 1:
        return installed[-1].removeprefix("site-packages/").removeprefix("dist-packages/")
    return os.sep.join(file.rsplit(os.sep, 2)[-2:]) if file.count(os.sep) > 1 else file


def _without_random(file: str, end: int) -> str:
    """What Python's tempfile named is another one in each run."""
    part, rest = re.split(r"[/\\]", file[:end])[-1], file[end:]
    found = _MODULE_AND_RANDOM.fullmatch(part)
    if found is not None:
        return f"{found[1]}….py"
    return "tmp….py" if part.endswith(".py") else f"tmp…{rest}"


def near_file(file: str) -> str | None:
    """The way from the current folder to a file below it, or below one of the two folders around it; None for others,
    and for those of packages."""
    if _LIBRARY.search(file) is not None or is_generated(file):
        return None
    try:
        folder = os.getcwd()
    except OSError:  # it is removed
        return None
    end = temporary_part(file)
    if end and not f"{folder}/".startswith(f"{file[:end]}/"):  # else the current folder lies in it
        return None
    for up in ("", "../", "../../"):
        if folder == "/":
            return None
        if file.startswith(f"{folder}/"):
            return f"{up}{file[len(folder) + 1 :]}"
        folder = os.path.dirname(folder)
    return None


def shown_file(file: str) -> str:
    """As an editor that was started here finds it. Of a package, its path in there; of a file that is far away, its end
    behind "…/", so that it does not pass for one that lies here."""
    near, short = near_file(file), short_file(file)
    if near is not None or is_no_users(file) or short == file:
        return near or short
    return file if len(short) + 1 == len(file) else f"…/{short}"


def user_frame(stack: Stack) -> Frame | None:
    """The innermost frame of the user's own code; the innermost of all where there is none."""
    for frame in stack:
        if not frame.is_library:
            return frame
    return stack[0] if stack else None


def loop_lines(stack: Stack) -> tuple[Frame, ...]:
    """Lines of the user's that only drive a library's loop, as trainer.train() does.

    Outside of every module's call they call a package's function, and that calls a module, be it by way of other code
    of the user's.
    """
    found: list[Frame] = []
    line: Frame | None = None
    calls_package = False
    for frame in reversed(stack):
        if frame.module is not None:
            return (*found, line) if line is not None and calls_package else tuple(found)
        if not frame.is_library:
            found += [line] if line is not None and calls_package else []
            line, calls_package = frame, False
        elif _is_data(frame.file):
            return ()  # a data set may run anything
        elif not frame.is_plumbing:
            calls_package = True
    return ()  # no module is called


def library_line(stack: Stack) -> Frame | None:
    """The library's line below the user's: the innermost outside PyTorch and Python, else the innermost.

    None where the user's own line is the innermost.
    """
    below = stack[: next((i for i, frame in enumerate(stack) if not frame.is_library), len(stack))]
    return next((frame for frame in below if not frame.is_plumbing), below[0] if below else None)
