"""Fixtures for programs that use PyTorch, in all folders."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import Result, clean_environment
from tests.forkserver import OPTIONS, Forks, recorded

RUN = ("-m", "cuptimem", "run")


@pytest.fixture(scope="session")
def forks(needs_torch: None, python: str, state_home: None) -> Iterator[Forks]:
    servers = Forks(python, clean_environment())
    yield servers
    servers.close()


@pytest.fixture
def forked(forks: Forks, tmp_path: Path) -> Callable[..., Result]:
    """As `run`, for a script, -c or `-m cuptimem run`, but for the import of PyTorch: a program that needs it begins
    with it. Programs are named program.py and lie elsewhere, by their own account."""

    def call(
        *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 280, cwd: Path | None = None
    ) -> Result:
        words, environment = list(arguments), clean_environment()
        if arguments[:3] == RUN:
            words, asked = _without_run(words[3:])
            environment |= asked
        if words[0] == "-c":
            script = tmp_path / "program.py"
            script.write_text(words.pop(1))
        else:
            script = (cwd or tmp_path) / words[0]
        server = forks.of(script.read_text())
        environment |= env or {}
        return server.run(script, *words[1:], environment=environment, cwd=cwd or tmp_path, timeout=timeout)

    return call


def _without_run(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """What is behind `cuptimem run`'s options, and the variables that these stand for."""
    options, output = [], ""
    while words[0] in (*OPTIONS, "-o"):
        option, *words = words
        if option == "-o":
            output, *words = words
        else:
            options.append(option)
    return words, recorded(output, *options)
