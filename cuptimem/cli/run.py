"""cuptimem run script.py args | -m module args | -c code

Replaces itself by the same Python with the script and asks it, by environment variables that `autostart` reads, to
record. So the script runs as bare Python runs it: there is no launcher on its stack, in its sys.modules or around its
exit.
"""

import os
import sys

from cuptimem import environ, interpreter, naming, sizes
from cuptimem.errors import Error, recording_core
from cuptimem.record import autostart, startup

TYPE_CHECKING = False  # the program's folder may have a module of any name: only what Python has loaded is imported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuptimem.cli.parsing import Parser


class Usage(Exception):
    """The command line is wrong, for the reason in the message."""


def parser() -> "Parser":
    # argparse is loaded here and not with this module: cuptimem.__main__ has taken the program's folder off sys.path.
    import argparse

    from cuptimem.cli import parsing

    result = parsing.Parser(
        "run",
        usage="cuptimem run [options] script.py [args ...]\n"
        "       cuptimem run [options] -m module [args ...]\n"
        "       cuptimem run [options] -c code [args ...]",
        description="Runs a Python program as `python` would and records its tensor memory. Ends with five lines on "
        "standard error. The last four are left out where they would take more than two seconds of CPU time, or 20 in "
        "all.",
    )
    result.add_argument(
        "-o",
        "--output",
        type=parsing.name,
        metavar="FILE",
        help="the trace; {pid} and {rank} are filled in (default: cuptimem-<script>.<pid>.cmem, with the rank under "
        "torchrun)",
    )
    result.add_argument("-f", "--force", action="store_true", help="replace FILE if it exists")
    result.add_argument("--follow", action="store_true", help="record its children too, each in its own file")
    result.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="nothing at the end: no five lines, and no account of an out-of-memory error that ended the program",
    )
    result.add_argument(
        "--max-size",
        type=_bytes,
        default=0,
        metavar="N",
        help="compact the steps past N bytes of trace (suffixes K, M, G)",
    )
    result.add_argument(
        "--open",
        action="store_true",
        help="make the timeline page when the program ends, and open it where there is a browser",
    )
    result.add_argument("--kernels", action="store_true", help="record when kernels and copies ran, too")
    result.add_argument("--operators", action="store_true", help="record full names of operators (aten::addmm), too")
    result.add_argument(
        "--no-driver",
        action="store_false",
        dest="driver",
        help="only PyTorch's memory, not what CUDA itself hands out",
    )
    result.add_argument(
        "--no-walks",
        action="store_false",
        dest="walks",
        help="no names of modules and tensors: nothing reads living objects while the program runs",
    )
    result.add_argument(
        "--no-holders",
        action="store_false",
        dest="holders",
        help="do not search for who holds what grows and, at the end, all that is alive",
    )
    result.add_argument(
        "--no-argv",
        action="store_false",
        dest="argv",
        help="the trace has no argument of the command line but the script",
    )
    result.add_argument(
        "--live",
        action="store_true",
        help="the view of cuptimem live while it runs; what it writes to the terminal is shown when you leave the view",
    )
    result.add_argument(
        "--metrics-port",
        type=_port,
        metavar="N",
        help="what is alive now, for Prometheus, at http://127.0.0.1:N/metrics; under torchrun N + LOCAL_RANK",
    )
    result.add_argument(
        "--metrics-host", default="", metavar="H", help="the address to listen on instead (0.0.0.0: every one)"
    )
    result.add_argument("program", nargs=argparse.REMAINDER, help="script.py, -m module or -c code, and its arguments")
    return result


def main(arguments: "Sequence[str]") -> int:
    ours = parser()
    request = ours.parse_before_program(arguments)
    try:
        if request.kernels and not request.driver:
            raise Usage("kernels are recorded at the driver level: leave out --kernels or --no-driver")
        check_program(request.program)
        output = checked_output(request.output, request.force)
        if request.metrics_port is not None:
            import importlib.util

            if importlib.util.find_spec("prometheus_client") is None:
                raise Error("metrics for Prometheus need its client: pip install cuptimem[metrics]")
    except Usage as error:
        ours.error(str(error))
    recording_core()
    startup.check()
    settings = {
        "CUPTIMEM": "1",
        "CUPTIMEM_RUN": "1",
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
        "CUPTIMEM_NO_ARGV": "" if request.argv else "1",
        "CUPTIMEM_METRICS_PORT": "" if request.metrics_port is None else str(request.metrics_port),
        "CUPTIMEM_METRICS_HOST": request.metrics_host,
    }
    base = {name: value for name, value in startup.given_environment().items() if name not in autostart.VARIABLES}
    wanted = {name: value for name, value in settings.items() if value}
    options, variables = environ.given(interpreter.flags(), wanted, base)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it was closed before Python began
            stream.flush()
    # The script's name begins like an option.
    end = ["--"] if request.program[0].startswith("-") and request.program[0] not in ("-", "-c", "-m") else []
    command = [sys.executable, *options, *end, *request.program]
    if request.live:
        from cuptimem.cli import run_live

        return run_live.run(command, variables)
    os.execve(sys.executable, command, variables)


def _bytes(text: str) -> int:
    import argparse

    try:
        value = sizes.parse(text)
    except ValueError:
        value = 0
    if value == 0:
        raise argparse.ArgumentTypeError(f"takes a number of bytes such as 500M, not {text!r}")
    return value


def _port(text: str) -> int:
    import argparse

    if not (text.isascii() and text.isdecimal() and len(text) < 6 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"takes the number of a port, not {text!r}")
    return int(text)


def check_program(program: list[str]) -> None:
    if not program:
        raise Usage("nothing to run")
    script = program[0]
    if script not in ("-m", "-c", "-") and not os.path.exists(script):
        from cuptimem.cli import hints

        hint = hints.about_script(script)
        raise Usage(f"there is no script {script!r}" + (f"; {hint}" if hint else ""))
    if script.endswith(".cmem"):
        raise Usage(f"{script} is a trace, read it: cuptimem summary {naming.typed(script)}")


def checked_output(output: str | None, force: bool) -> str:
    """The template for the trace. Whatever would fail later fails here, before the script has run for hours."""
    rank = naming.rank_of(environ.obeyed())
    if not output:
        return ""
    if rank is not None and "{rank}" not in output and "{pid}" not in output:
        raise Usage("several ranks would write one file; put {rank} or {pid} into -o")
    path = naming.expand(output, os.getpid(), rank)
    naming.check_target(os.path.abspath(path), force, "--force")
    return output
