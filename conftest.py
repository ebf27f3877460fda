"""What the tests of all products share: options, and marks that follow from fixtures."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester", "tests.forkserver.fixtures"]

ROOT = Path(__file__).resolve().parent

# A test that has one of these fixtures, also by way of others, is marked so. Files say it by pytestmark.
MARKS = {"needs_torch": "torch", "needs_sanitizer": "sanitizer", "browser_process": "browser"}
# The tests of an option, which run without it only if they are `scaled`.
CHOICES = {"long": ("long", "scaled"), "extended": ("extended",)}
# What is compiled with a sanitizer; in cudasim/tests/core and record/driver/test_callbacks.py those parameters
# say so themselves.
SANITIZED = (
    "tests/record/driver/test_activity.py",
    *(f"cudasim/tests/test_{name}.py" for name in ("cupti", "cupti_runtime", "driver", "libraries", "runtime")),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "only the tests that are marked long or scaled, the latter with their long numbers (make long)"
    parser.addoption("--long", action="store_true", help=words)
    parser.addoption("--extended", action="store_true", help="only the tests that are marked extended (make extended)")
    parser.addoption("--without", action="append", default=[], metavar="MARK", help="no test that is marked so")


def pytest_configure(config: pytest.Config) -> None:
    if "torch" in config.getoption("--without"):
        # While files are collected: marked ones would import it, and the others' collections visit its 200,000 objects.
        sys.modules["torch"] = None  # type: ignore[assignment]


def pytest_collection_finish(session: pytest.Session) -> None:
    if "torch" in session.config.getoption("--without"):
        del sys.modules["torch"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        found = {mark for fixture, mark in MARKS.items() if fixture in getattr(item, "fixturenames", ())}
        if item.path.relative_to(ROOT).as_posix().startswith(SANITIZED):
            found.add("sanitizer")
        for mark in found:
            item.add_marker(mark)
    without = set(config.getoption("--without"))
    wanted = [name for name in CHOICES if config.getoption(f"--{name}")]
    only = {mark for name in wanted for mark in CHOICES[name]}

    def is_chosen(item: pytest.Item) -> bool:
        found = {mark.name for mark in item.iter_markers()}
        return not found & without and bool(found & only if only else not found & {"long", "extended"})

    config.hook.pytest_deselected(items=[item for item in items if not is_chosen(item)])
    items[:] = filter(is_chosen, items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Importing it here would take memory and time: most programs of tests import it in processes of their own.
    if item.get_closest_marker("torch") and importlib.util.find_spec("torch") is None:
        pytest.skip("needs PyTorch, which is not installed here")


@pytest.fixture(scope="session")
def needs_torch() -> None:
    """For fixtures whose programs use PyTorch: a test that has it is marked `torch`."""


@pytest.fixture(scope="session")
def needs_sanitizer() -> None:
    """For fixtures that build a program with a sanitizer: a test that has it is marked `sanitizer`."""
