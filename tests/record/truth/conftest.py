"""Everything here runs real programs in child processes, under the oracle."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE.parents[1] / "programs"
sys.path[:0] = [path for path in (str(HERE), str(PROGRAMS)) if path not in sys.path]

import oracle  # noqa: E402

from tests.forkserver import Forks  # noqa: E402


@pytest.fixture(scope="session")
def oracle_library() -> Path:
    return oracle.library()


@pytest.fixture(scope="session")
def forks(oracle_library: Path) -> Iterator[Forks]:
    servers = Forks(sys.executable, _environment(oracle_library))
    yield servers
    servers.close()


def _environment(library: Path, **more: str) -> dict[str, str]:
    return oracle.environment(library, PYTHONPATH=str(HERE.parents[2]), **more)


@pytest.fixture
def child(needs_torch: None, oracle_library: Path, forks: Forks, tmp_path: Path) -> Callable[..., Any]:
    """Runs a script of this folder under the oracle and returns the JSON on its last line of output."""

    def run(script: str, *arguments: object, timeout: float = 300, **environment: str) -> Any:
        variables = _environment(oracle_library, **environment)
        program = PROGRAMS / f"{arguments[0]}.py" if arguments else HERE / script
        server = forks.of(program.read_text() if program.exists() else "")
        done = server.run(HERE / script, *map(str, arguments), environment=variables, cwd=tmp_path, timeout=timeout)
        if done.code != 0:
            said = f"{done.out[-500:]}\n{done.err[-1500:]}"
            pytest.fail(f"{script} {arguments}: exit {done.code}\n{said}", pytrace=False)
        return json.loads(done.out.splitlines()[-1])

    return run
