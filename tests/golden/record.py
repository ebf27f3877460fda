"""Records the golden traces again, or makes the answers that they are compared with.

    python -m tests.golden.record FOLDER [NAME ...]    the traces, or these of them, into FOLDER
    python -m tests.golden.record --expected [--replace]  tests/golden/expected, of the traces that are there

The first needs PyTorch, its CUDA build (see tests/on_device/simulated) and gcc. Neither is part of `make test`: the
traces stay as they were recorded, so that later code is held to what the earlier one made of them. FOLDER is
tests/golden/traces only for a trace that is new. No text in a trace names the machine on which it was made.
"""

import argparse
import atexit
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from benchmarks.synthetic import write_synthetic
from tests import pythons
from tests.conftest import ROOT, clean_environment
from tests.golden import answers
from tests.golden.programs import RECORDINGS, Recording
from tests.on_device.simulated import device

PROJECT = Path("/tmp/golden-project")  # where programs run; scrubbing takes it out
MOST_BYTES = 120_000


@cache
def interpreter(cuda: bool) -> str:
    """One that has this cuptimem, its startup files, and what this interpreter sees (or the one with PyTorch's CUDA
    build)."""
    base = str(device.interpreter()) if cuda else sys.executable
    home = Path(tempfile.mkdtemp(prefix="golden-venv-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    subprocess.run([base, "-m", "venv", "--without-pip", home], check=True)
    ask = "import sys; print(*(p for p in sys.path if p.endswith('-packages')), sep='\\n')"
    seen = subprocess.run([base, "-c", ask], check=True, capture_output=True, text=True).stdout
    site = next(home.glob("lib/python3.*/site-packages"))
    (site / "__paths.pth").write_text(f"{ROOT}\n{seen}")  # the first letter: before cuptimem.pth
    pythons.add_startup(site)
    return str(home / "bin" / "python")


def record(name: str, recording: Recording, folder: Path) -> list[Path]:
    """Runs the program and puts its trace into the folder, and that of its child."""
    shutil.rmtree(PROJECT, ignore_errors=True)
    program = "test_model.py" if recording.by == "pytest" else "train.py"
    for path, text in {program: recording.program, **recording.files}.items():
        (PROJECT / path).parent.mkdir(parents=True, exist_ok=True)
        (PROJECT / path).write_text(text)
    environment = {**clean_environment(), "USER": "user", **recording.environment}
    if recording.cuda:
        environment |= device.environment(**recording.device)  # type: ignore[arg-type]
    words = {
        "run": ["-m", "cuptimem", "run", "-q", "-o", "run.{pid}.cmem", *recording.options, program],
        "profile": [program, "run.0.cmem"],
        "pytest": ["-m", "pytest", "-q", "-p", "cuptimem.pytest_plugin", program],
    }[recording.by]
    if recording.by == "pytest":
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [interpreter(recording.cuda), "-W", "ignore", *words]
    process = subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = process.communicate(timeout=300)
    if process.returncode != recording.code:
        sys.exit(f"{name} ended with {process.returncode}:\n{said.decode(errors='replace')}")
    made = sorted(PROJECT.rglob("*.cmem"), key=lambda path: str(process.pid) not in path.name)
    names = [name, recording.child] if recording.child else [name]
    if len(made) != len(names):
        sys.exit(f"{name} wrote {[path.name for path in made]}:\n{said.decode(errors='replace')}")
    if process.returncode < 0:  # the next process to start brings home what it had not written
        sweep = "import sys; from cuptimem import _core; _core.capture_sweep(sys.argv[1])"
        subprocess.run([interpreter(False), "-c", sweep, str(made[0])], cwd=PROJECT, env=environment, check=True)
    return [scrubbed(trace, folder / f"{to}.cmem", recording) for trace, to in zip(made, names, strict=True)]


def scrubbed(trace: Path, target: Path, recording: Recording) -> Path:
    hidden = [word for text in (str(ROOT), sys.prefix, os.uname().release) for word in ("--hide", text)]
    command = [interpreter(False), "-m", "cuptimem", "scrub", "-f", str(trace), str(target), *hidden, *recording.scrub]
    subprocess.run(command, env=clean_environment(), cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    return target


def by_hand() -> dict[str, Callable[[Path], object]]:
    """Traces made of events, by name: what no small program does, and what needs no program at all."""
    from tests.tools.exports.conftest import KINDS
    from tests.tools.fuzz import seeds  # also puts the folder of craft on the path
    from tests.tools.views import recordings

    import craft  # type: ignore[import-not-found]  # isort: skip

    craft.Trace.library = craft.encoder()

    def kind(name: str, **how: object) -> Callable[[Path], object]:
        def write(path: Path) -> None:
            trace = craft.Trace()
            KINDS[name](trace)
            trace.write(path, **how)

        return write

    def view(name: str) -> Callable[[Path], object]:
        def write(path: Path) -> None:
            with tempfile.TemporaryDirectory() as folder:
                shutil.copy(recordings.BY_HAND[name](Path(folder) / "made"), path)

        return write

    def side(trace: craft.Trace) -> Callable[[Path], object]:
        """A trace that has not ended, and what follows in the side file beside it."""

        def write(path: Path) -> None:
            trace.write(path, meta={"ring.id": "77"}, per_batch=40, end=None)
            begin, rest = seeds.with_side(path.read_bytes(), 77, whole=2)
            path.write_bytes(begin)
            path.with_name(f"{path.name}.tail").write_bytes(rest)

        return write

    def synthetic(on: str, events: int, windows: int = 0) -> Callable[[Path], object]:
        return lambda path: write_synthetic(str(path), events, on=on, windows=windows)

    return {
        "hand-steps": lambda path: seeds.steps(24, leak=False, nodes=False).write(path),
        "hand-nodes": lambda path: seeds.steps(30, leak=True, nodes=True).write(path),
        "hand-explicit": lambda path: seeds.steps(8, leak=True, nodes=False, clock=craft.STEP).write(path),
        "hand-windows": lambda path: seeds.windows().write(path),
        "hand-devices": lambda path: seeds.devices().write(path),
        "hand-loops": lambda path: seeds.loops().write(path),
        "hand-driver": lambda path: seeds.driver().write(path),
        "hand-disk-full": lambda path: seeds.windows().write(path, end="disk full", lost=3),
        "hand-cut": view("cut"),
        "hand-folded": view("compacted"),
        "hand-leak": view("training"),
        "hand-side": side(seeds.steps(24, leak=True, nodes=False)),
        "hand-folded-side": side(recordings.compacted()),
        "hand-lost": kind("lost", lost=17),
        "hand-labelled": kind("labelled"),
        "hand-nothing": kind("nothing"),
        "hand-before-start": kind("before_start"),
        "synthetic-cpu": synthetic("cpu", 1500),
        "synthetic-cuda": synthetic("cuda", 2500, 3),
        "synthetic-scattered": synthetic("scattered", 5500),
    }


def names_of_this_machine() -> list[bytes]:
    prefixes = {sys.prefix, str(device.interpreter().parents[1]), "golden-venv-"}
    found = prefixes | {str(ROOT), str(PROJECT), os.uname().nodename, os.uname().release, str(Path.home())}
    return [name.encode() for name in found if len(name) > 2]


def check(path: Path) -> None:
    """The trace is small and names nothing of this machine."""
    data = path.read_bytes()
    seen = [name for name in names_of_this_machine() if re.search(rb"(?<!\w)%s(?!\w)" % re.escape(name), data)]
    if seen or len(data) > MOST_BYTES:
        sys.exit(f"{path.name}: {len(data)} bytes, with {seen}")
    print(f"{path.name}: {len(data)} bytes", flush=True)


@contextlib.contextmanager
def own_rings() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUPTIMEM_RING_DIR"] = folder
        yield


def record_all(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    crafted = by_hand()
    children = {one.child for one in RECORDINGS.values()} - {""}
    if unknown := set(names) - set(RECORDINGS) - set(crafted):
        sys.exit(f"no recordings {sorted(unknown)}; there are {[*RECORDINGS, *crafted, *sorted(children)]}")
    with own_rings():
        for name in names or [*RECORDINGS, *crafted]:
            if name in RECORDINGS:
                for path in record(name, RECORDINGS[name], folder):
                    check(path)
            else:
                crafted[name](folder / f"{name}.cmem")
                check(folder / f"{name}.cmem")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the traces go")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the traces (all)")
    parser.add_argument("--expected", action="store_true", help="the answers instead")
    parser.add_argument("--replace", action="store_true", help="answers that are there already, too")
    options = parser.parse_args()
    if options.expected == (options.folder is not None):
        parser.error("give either a folder for traces or --expected")
    if options.expected:
        answers.write_expected(replace=options.replace)
    else:
        record_all(options.folder.absolute(), options.names)


if __name__ == "__main__":
    main()
