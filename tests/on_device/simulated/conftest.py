"""An interpreter with a CUDA build of PyTorch, and programs run in it on a simulated device."""

import contextlib
import json as json_module
import os
import re
import select
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests import pythons
from tests.conftest import ROOT, Result, clean_environment
from tests.forkserver import Forks, ForkServer
from tests.on_device.simulated import device

PROGRAMS = Path(__file__).with_name("programs")
DRIVER = Path(__file__).with_name("simulate_in_forks.py")
TRIES = Path(__file__).with_name("tries_in_one.py")
IMPORTED = tuple(f"cuptimem.{name}" for name in ("cli.simulate", "cli.fits", "simulation.api", "simulation.as_json"))
MISSING = "no CUDA build of PyTorch: `make test` installs one into .venv-cuda"


@pytest.fixture(scope="session")
def sim_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """That interpreter as a user has it, with cuptimem and its .pth. Skips where it was left out (make test CUDA=no),
    and where nobody made it; under `make test`, which makes it, that is an error."""
    wanted = os.environ.get("CUPTIMEM_CUDA", "")
    if wanted == "no":
        pytest.skip("left out: CUDA=no")
    base = device.interpreter()
    if not base.exists():
        pytest.fail(MISSING) if wanted == "yes" else pytest.skip(MISSING)
    home = tmp_path_factory.mktemp("cuda") / "venv"
    subprocess.run([base, "-m", "venv", "--without-pip", home], check=True, capture_output=True, timeout=120)
    ask = "import sys; print(*(p for p in sys.path if p.endswith('-packages')), sep='\\n')"
    seen = subprocess.run([base, "-c", ask], check=True, capture_output=True, text=True, timeout=120).stdout
    site = next(home.glob("lib/python3.*/site-packages"))
    (site / "__paths.pth").write_text(f"{ROOT}\n{seen}")  # the first letter: before cuptimem.pth
    pythons.add_startup(site)
    return str(home / "bin" / "python")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables that keep what torch.compile and Triton write in a place of this session's own."""
    folder = tmp_path_factory.mktemp("compiled")
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}


@pytest.fixture
def on_device(sim_python: str, compiled: dict[str, str], tmp_path: Path) -> Callable[..., Result]:
    """Runs a command line of that interpreter on a simulated device; keywords as for device.environment."""

    def call(*arguments: str, env: Mapping[str, str] | None = None, timeout: float = 240, **keywords: Any) -> Result:
        environment = {**clean_environment(), **compiled, **device.environment(**keywords), **(env or {})}
        return _run([sim_python, "-W", "ignore", *arguments], tmp_path, environment, timeout)

    return call


@pytest.fixture(scope="session")
def forks(sim_python: str, compiled: dict[str, str]) -> Iterator[Forks]:
    servers = Forks(sim_python, {**clean_environment(), **compiled, **device.environment()})
    yield servers
    servers.close()


@pytest.fixture
def forked_on_device(forks: Forks, compiled: dict[str, str], tmp_path: Path) -> Callable[..., Result]:
    """As on_device, for a module of these tests, a script or code, in a fork of a process that has imported PyTorch.
    CUDA is not in use there: the device comes into being when the program first asks for it."""

    def call(*arguments: str, env: Mapping[str, str] | None = None, timeout: float = 240, **keywords: Any) -> Result:
        script, *rest = arguments
        if script == "-m":
            script = str(ROOT / f"{rest.pop(0).replace('.', '/')}.py")
        elif script == "-c":
            script = "program.py"
            (tmp_path / script).write_text(rest.pop(0))
        environment = {**clean_environment(), **compiled, **device.environment(**keywords), **(env or {})}
        program = PROGRAMS / f"{rest[0]}.py" if rest else tmp_path / script
        server = forks.of((program if program.exists() else tmp_path / script).read_text())
        return server.run(tmp_path / script, *rest, environment=environment, cwd=tmp_path, timeout=timeout)

    return call


class Done(Result):
    """What a command left."""

    @property
    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json_module.loads(self.out)
        return found


@pytest.fixture(scope="session")
def commands(sim_python: str) -> Iterator[ForkServer]:
    """Runs simulate_in_forks.py: a command begins with the modules that `cuptimem simulate` imports."""
    server = ForkServer(sim_python, clean_environment(), IMPORTED, DRIVER.name, torch=False)
    yield server
    server.close()


@pytest.fixture
def simulate(
    sim_python: str,
    commands: ForkServer,
    forks: Forks,
    compiled: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Callable[..., Done]:
    """Runs `cuptimem simulate` on a program; other verbs by verb=, its own arguments by behind=, another interpreter by
    python=. The command and the program are forks, of a process that has imported PyTorch the latter, unless the test
    is marked afresh."""

    def call(
        program: str,
        *options: str,
        verb: str = "simulate",
        json: bool = True,
        timeout: float = 200,
        behind: tuple[str, ...] = (),
        python: str = "",
        **variables: str,
    ) -> Done:
        words = [verb, *(["--json"] if json else []), *options]
        if verb in ("simulate", "fits"):
            (tmp_path / "program.py").write_text(program)
            words += ["program.py", *behind]
        environment = clean_environment() | compiled | variables
        if python or request.node.get_closest_marker("afresh") is not None:
            done = _run(
                [python or sim_python, "-W", "ignore", "-m", "cuptimem", *words], tmp_path, environment, timeout
            )
        else:
            with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as worker:
                listener.bind("")  # the system chooses a name behind a null byte, which no argument can have
                listener.listen()
                listener.settimeout(timeout)
                place = listener.getsockname()[1:].decode()
                ended = worker.submit(
                    commands.run, DRIVER, place, *words, environment=environment, cwd=tmp_path, timeout=timeout
                )
                connection, _ = listener.accept()
                with connection:
                    _run_programs(connection.makefile("rw"), forks.of(program), tmp_path)
                done = ended.result()
        return Done(done.code, done.out, done.err)

    return call


InOne = Callable[..., Any]


@contextlib.contextmanager
def tries_in_one(python: str | Path, device: str = "h100", **variables: str) -> Iterator[InOne]:
    """Runs tries_in_one.py; what is called has its code's answer to what it is given."""
    process = subprocess.Popen(
        [python, "-P", "-W", "ignore", TRIES, device],
        env=clean_environment() | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdin is not None and process.stdout is not None

    def call(code: str, given: object, folder: Path, timeout: float = 900) -> Any:
        process.stdin.write(json_module.dumps({"code": code, "given": given, "folder": str(folder)}).encode() + b"\n")
        if not select.select([process.stdout], [], [], timeout)[0]:
            process.kill()
        answer = json_module.loads(process.stdout.readline() or '{"error": "it ended, or took too long"}')
        assert "found" in answer, answer["error"]
        return answer["found"]

    with process:
        yield call


@pytest.fixture(scope="session")
def in_one(sim_python: str) -> Iterator[InOne]:
    with tries_in_one(sim_python) as call:
        yield call


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float) -> Result:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def _run_programs(lines: TextIO, server: ForkServer, folder: Path) -> None:
    """Those that a simulate_in_forks.py asks for, until it ends."""
    for line in lines:
        asked = json_module.loads(line)
        command, environment = asked["command"], asked["environment"]
        settings = Path(environment["CUPTIMEM_SIM_CHILD"], "child.settings")
        # By which the program knows that it is not a child of its own.
        parent = f"parent={(server.under(environment) or server).pid}\n"
        settings.write_text(re.sub(r"^parent=.*\n", parent, settings.read_text(), flags=re.MULTILINE))
        arguments = command[command.index("program.py") + 1 :]
        done = server.run(folder / "program.py", *arguments, environment=environment, cwd=folder)
        answer = {"code": done.code, "out": done.out, "err": done.err}
        lines.write(json_module.dumps(answer) + "\n")
        lines.flush()
