"""Shared by all tests: an interpreter that has cuptimem installed, and programs run in it."""

import atexit
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import browser, pythons

# A landing is not judged by the luck of a seed. Others: pytest --hypothesis-profile=default --hypothesis-seed=N.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

ROOT = Path(__file__).resolve().parent.parent


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not a forked child
        shutil.rmtree(folder, ignore_errors=True)


# The rings of all programs that this process starts lie in a folder of its own, and go with it. In /dev/shm itself two
# runs of tests would sweep each other's, and every start would read what killed programs have left there. So do those
# that a sweep keeps: of all that run side by side the newest 16 would stay.
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and views would be as wide
if "CUPTIMEM_RING_DIR" not in os.environ:
    _shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    os.environ["CUPTIMEM_RING_DIR"] = tempfile.mkdtemp(prefix=f"cuptimem-tests-{os.getpid()}-", dir=_shared)
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="cuptimem-tests-state-")
    for _folder in ("CUPTIMEM_RING_DIR", "XDG_STATE_HOME"):
        atexit.register(_remove, os.environ[_folder], os.getpid())

# Whoever starts the tests in the background (nohup, a shell's &) has these ignored, and every child would inherit that.
for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _default)


@pytest.fixture(scope="session")
def long(pytestconfig: pytest.Config) -> bool:
    """Whether tests marked `scaled` are to take their long numbers."""
    return bool(pytestconfig.getoption("--long"))


@pytest.fixture(scope="session")
def many_lines(long: bool) -> int:
    """How many different lines a recording has that has very many. Tests with it are marked `scaled`."""
    return 100_000 if long else 10_000


@pytest.fixture(scope="module")
def browser_process() -> Iterator[Any]:
    """A headless Chromium; see tests/browser.py. While it is there, this thread counts as inside asyncio's loop: so not
    longer than a module."""
    if browser.find() is None and not browser.REQUIRED:
        pytest.skip(f"no Chromium on this machine: {browser.INSTALL}")
    if not browser.REQUIRED:
        pytest.importorskip(
            "playwright", reason="playwright is not installed here; `make demo` makes an environment with it"
        )
    with browser.launched() as process:
        yield process


@pytest.fixture
def browser_page(browser_process: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page of its own, 1280 by 800, that must log no error and use no network."""
    context = browser_process.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(browser.PATIENCE)
    page = context.new_page()
    watch = browser.Watch(page, request.node.nodeid)
    yield page
    context.close()
    assert watch.faults == []


def clean_environment() -> dict[str, str]:
    """This process's environment without what would change a child's behaviour, but for the place of its rings."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CUPTIMEM", "PYTEST", "COV_")) and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    }
    environment["CUPTIMEM_RING_DIR"] = os.environ["CUPTIMEM_RING_DIR"]
    environment.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", NO_COLOR="1")
    environment.pop("COLUMNS", None)
    return environment


@dataclass(frozen=True)
class Result:
    """How a program ended."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What killed programs leave is kept here, not in the home of who runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter as a user has it: a virtual environment with cuptimem and its startup files, and everything else
    that this interpreter sees."""
    home = tmp_path_factory.mktemp("venv")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(home)
    site = next(home.glob("lib/python3.*/site-packages"))
    seen = [path for path in sys.path if path and path.endswith("-packages") and os.path.isdir(path)]
    # The first letter puts it before cuptimem.pth, as an editable install's own file is.
    count = ["import coverage; coverage.process_startup()"] * ("COVERAGE_PROCESS_START" in os.environ)
    (site / "__paths.pth").write_text("\n".join([str(ROOT), *seen, *count]) + "\n")
    pythons.add_startup(site)
    return str(home / "bin" / "python")


@pytest.fixture
def run(python: str, tmp_path: Path) -> Callable[..., Result]:
    """Runs a command line of that interpreter in an empty directory."""

    def call(
        *arguments: str,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        timeout: float = 280,
        cwd: Path | None = None,
    ) -> Result:
        done = subprocess.run(
            [python, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            env={**clean_environment(), **(env or {})},
            cwd=cwd or tmp_path,
            input=stdin if stdin is not None else "",
            timeout=timeout,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture(scope="module")
def only_new_objects() -> Iterator[None]:
    """What was made before this file's tests is hidden from the collector and from recordings in this process, which
    would spend most of their time on 300,000 objects of PyTorch's and pytest's: for tests that are about neither."""
    import torch  # noqa: F401  also where the tests import it later

    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "get_freeze_count", int)  # 0
        yield
    gc.unfreeze()


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """A command line after `python -m cuptimem`, in this process: what a verb says. Each verb is also run."""
    from cuptimem.cli import main

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*words: str, cwd: Path | None = None) -> Result:
        capfd.readouterr()
        if cwd is not None:
            monkeypatch.chdir(cwd)
        try:
            code = main(words)
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        return Result(code, *capfd.readouterr())

    return call
