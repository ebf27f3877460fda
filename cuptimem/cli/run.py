"""cuptimem run script.py args | -m module args | -c code

Replaces itself by the same Python with the script and asks it, by environment variables that cuptimem.pth reads, to
record. So the script runs as bare Python runs it: there is no launcher on its stack, in its sys.modules or around its
exit.
"""

import os
import site
import sys

from cuptimem import interpreter, naming, sizes
from cuptimem.errors import Error, recording_core

TYPE_CHECKING = False  # the program's folder may have a module of any name: only what Python has loaded is imported

if TYPE_CHECKING:
    from collections.abc import Sequence

HELP = """\
usage: cuptimem run [options] script.py [args ...]
       cuptimem run [options] -m module [args ...]
       cuptimem run [options] -c code [args ...]

Runs a Python program as `python` would and records its tensor memory.

  -o, --output FILE   the trace; {pid} and {rank} are filled in
                      (default: cuptimem-<script>.<pid>.cmem, with the rank under torchrun)
  -f, --force         replace FILE if it exists
      --follow        record its children too, each in its own file
  -q, --quiet         no closing line, and no account of an out-of-memory error that ended the program
      --max-size N    fold the steps past N bytes of trace (suffixes K, M, G)
      --open          make the timeline page when the program ends, and open it where there is a browser
      --kernels       record when kernels and copies ran, too
      --operators     record full names of operators (aten::addmm), too
      --no-driver     only PyTorch's memory, not what CUDA itself hands out
      --no-walks      no names of modules and tensors: nothing looks at living objects while the program runs
      --no-holders    do not search, at the end, for who holds what grows
  -h, --help          this text
"""


class Usage(Exception):
    """The command line is wrong; the message says how."""


class _Request:
    def __init__(self) -> None:
        self.output = ""
        self.force = False
        self.follow = False
        self.quiet = False
        self.max_size = 0
        self.open = False
        self.kernels = False
        self.operators = False
        self.driver = True
        self.walks = True
        self.holders = True
        self.program: list[str] = []
        self.help = False


def main(arguments: "Sequence[str]") -> int:
    try:
        request = _parse(list(arguments))
        if request.help:
            print(HELP, end="")
            return 0
        if request.kernels and not request.driver:
            raise Usage("kernels are recorded at the driver level: leave out --kernels or --no-driver")
        check_program(request.program)
        output = checked_output(request.output, request.force)
    except Usage as error:
        print(f"cuptimem run: {error}; see: cuptimem run --help", file=sys.stderr)
        return 2
    recording_core()
    check_autostart()
    environment = {**given_environment(), "CUPTIMEM": "1", "CUPTIMEM_RUN": str(os.getpid())}
    settings = {
        "CUPTIMEM_OUTPUT": output,
        "CUPTIMEM_OVERWRITE": "1" if request.force else "",
        "CUPTIMEM_FOLLOW": "1" if request.follow else "",
        "CUPTIMEM_QUIET": "1" if request.quiet else "",
        "CUPTIMEM_MAX_SIZE": str(request.max_size) if request.max_size else "",
        "CUPTIMEM_OPEN": "1" if request.open else "",
        "CUPTIMEM_KERNELS": "1" if request.kernels else "",
        "CUPTIMEM_OPERATORS": "1" if request.operators else "",
        "CUPTIMEM_NO_DRIVER": "" if request.driver else "1",
        "CUPTIMEM_NO_WALKS": "" if request.walks else "1",
        "CUPTIMEM_NO_HOLDERS": "" if request.holders else "1",
    }
    for name in (*settings, "CUPTIMEM_LEADER", "CUPTIMEM_IMAGE"):
        environment.pop(name, None)
    environment.update({name: value for name, value in settings.items() if value})
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it was closed before Python began
            stream.flush()
    # A script that is called like an option.
    end = ["--"] if request.program[0].startswith("-") and request.program[0] not in ("-", "-c", "-m") else []
    os.execve(sys.executable, [sys.executable, *interpreter_flags(), *end, *request.program], environment)


def _parse(arguments: list[str]) -> _Request:
    request = _Request()
    while arguments:
        argument = arguments.pop(0)
        name, equals, value = argument.partition("=")
        if argument in ("-h", "--help"):
            request.help = True
            return request
        if argument in ("-f", "--force"):
            request.force = True
        elif argument == "--follow":
            request.follow = True
        elif argument in ("-q", "--quiet"):
            request.quiet = True
        elif argument == "--open":
            request.open = True
        elif argument == "--kernels":
            request.kernels = True
        elif argument == "--operators":
            request.operators = True
        elif argument == "--no-driver":
            request.driver = False
        elif argument == "--no-walks":
            request.walks = False
        elif argument == "--no-holders":
            request.holders = False
        elif argument in ("-o", "--output", "--max-size") or name in ("--output", "--max-size"):
            if not equals:
                if not arguments:
                    raise Usage(f"{argument} needs a value")
                value = arguments.pop(0)
            if name == "--max-size":
                request.max_size = _bytes(value)
            elif not value:
                raise Usage("the trace needs a name")
            else:
                request.output = value
        elif argument.startswith("-o") and len(argument) > 2 and not argument.startswith("--"):
            request.output = argument[2:]
        elif argument in ("-m", "-c"):
            if not arguments:
                raise Usage(f"{argument} needs a {'module' if argument == '-m' else 'program'}")
            request.program = [argument, *arguments]
            return request
        elif argument == "--":
            if not arguments:
                break
            request.program = arguments
            return request
        elif argument.startswith("-") and argument != "-":
            raise Usage(f"unknown option {argument}")
        else:
            request.program = [argument, *arguments]
            return request
    raise Usage("nothing to run")


def _bytes(text: str) -> int:
    try:
        value = sizes.parse(text)
    except ValueError:
        value = 0
    if value == 0:
        raise Usage(f"--max-size takes a number of bytes such as 500M, not {text!r}")
    return value


def given_environment() -> dict[str, str]:
    """As this process got it: in the C locale Python adds LC_CTYPE to its own (PEP 538), and the program's Python is to
    decide that for itself."""
    environment = dict(os.environ)
    try:
        with open("/proc/self/environ", "rb") as file:
            given = file.read().split(b"\0")
    except OSError:
        return environment
    if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
        environment.pop("LC_CTYPE", None)
    return environment


def check_program(program: list[str]) -> None:
    script = program[0]
    if script not in ("-m", "-c", "-") and not os.path.exists(script):
        raise Usage(f"there is no script {script!r}")


def checked_output(output: str, force: bool) -> str:
    """The template for the trace. Whatever would fail later fails here, before the script has run for hours."""
    rank = naming.rank_of(os.environ)
    if not output:
        return ""
    if rank is not None and "{rank}" not in output and "{pid}" not in output:
        raise Usage("several ranks would write one file; put {rank} or {pid} into -o")
    path = naming.expand(output, os.getpid(), rank)
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise Error(f"{path} is a directory; name a file in it")
    if os.path.lexists(path) and not force:
        raise Error(f"{path} exists; choose another name, or replace it with --force")
    if not os.path.isdir(folder):
        raise Error(f"{naming.shown(folder)} is not a directory; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Error(f"{naming.shown(folder)} cannot be written to; choose another place with -o")
    return output


def check_autostart() -> None:
    """The .pth that starts the recording must be where this Python looks for such files."""
    folders = [] if sys.flags.no_site else site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    if not any(os.path.isfile(os.path.join(folder, "cuptimem.pth")) for folder in folders):
        why = "it was started with -S" if sys.flags.no_site else "cuptimem is not installed in it"
        raise Error(
            f"{sys.executable} would not start the recording: {why}; "
            + ("leave -S away" if sys.flags.no_site else f"install it: {sys.executable} -m pip install cuptimem")
        )


def interpreter_flags() -> list[str]:
    """The options this Python was started with, for the script: `python -X dev -i -m cuptimem run ...`.

    An installed `cuptimem` command may carry -I, -E, -s or -P in its first line. They protect the command and are no
    wish of the user's.
    """
    options, program = interpreter.split(sys.orig_argv[1:])
    if program[:1] != ["-m"]:
        options = [interpreter.without(option, "IEsP") for option in options]
    return [part for option in options for part in option]
