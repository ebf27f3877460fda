"""cuptimem run script.py args | -m module args | -c code

Replaces itself by the same Python with the script and asks it, by environment variables that cuptimem.pth reads, to
record. So the script runs as bare Python runs it: there is no launcher on its stack, in its sys.modules or around its
exit.
"""

import os
import site
import subprocess
import sys
from collections.abc import Sequence

from cuptimem import naming
from cuptimem.errors import Error, recording_core

HELP = """\
usage: cuptimem run [options] script.py [args ...]
       cuptimem run [options] -m module [args ...]
       cuptimem run [options] -c code [args ...]

Runs a Python program as `python` would and records its tensor memory.

  -o, --output FILE   the trace; {pid} and {rank} are filled in
                      (default: cuptimem-<script>.<pid>.cmem, with the rank under torchrun)
  -f, --force         replace FILE if it exists
      --follow        record its children too, each in its own file
  -q, --quiet         no closing line
      --max-size N    fold the steps past N bytes of trace (suffixes K, M, G)
      --kernels       record when kernels and copies ran, too
      --no-driver     only PyTorch's memory, not what CUDA itself hands out
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
        self.kernels = False
        self.driver = True
        self.program: list[str] = []
        self.help = False


def main(arguments: Sequence[str]) -> int:
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
    environment = {**os.environ, "CUPTIMEM": "1"}
    settings = {
        "CUPTIMEM_OUTPUT": output,
        "CUPTIMEM_OVERWRITE": "1" if request.force else "",
        "CUPTIMEM_FOLLOW": "1" if request.follow else "",
        "CUPTIMEM_QUIET": "1" if request.quiet else "",
        "CUPTIMEM_MAX_SIZE": str(request.max_size) if request.max_size else "",
        "CUPTIMEM_KERNELS": "1" if request.kernels else "",
        "CUPTIMEM_NO_DRIVER": "" if request.driver else "1",
    }
    for name in (*settings, "CUPTIMEM_LEADER"):
        environment.pop(name, None)
    environment.update({name: value for name, value in settings.items() if value})
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *interpreter_flags(), *request.program], environment)


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
        elif argument == "--kernels":
            request.kernels = True
        elif argument == "--no-driver":
            request.driver = False
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
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    digits, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    if not digits.isdigit() or int(digits) == 0:
        raise Usage(f"--max-size takes a number of bytes such as 500M, not {text!r}")
    return int(digits) * unit


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
    """The flags this Python was started with, for the script: `python -X dev -m cuptimem run ...`.

    An installed `cuptimem` command may carry -I, -E, -s or -P in its first line. They protect the command and are no
    wish of the user's.
    """
    flags = list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]
    before = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    if "-m" not in before and not any(flag.startswith("-m") for flag in before):
        flags = [flag for flag in flags if flag not in ("-I", "-E", "-s", "-P")]
    if any(
        flag.startswith("-") and not flag.startswith("--") and "u" in flag[1:] and flag[1] not in "mcXW"
        for flag in before
    ):
        flags.append("-u")
    return flags
