"""File, line and function of allocations whose place is known, and a forward line for every byte of backward."""

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def found(oracle_library, tmp_path_factory):
    import json
    import subprocess
    import sys
    from pathlib import Path

    import oracle

    here = Path(__file__).resolve().parent
    trace = tmp_path_factory.mktemp("lines") / "run.cmem"
    command = [sys.executable, "-W", "ignore", str(here / "lines_child.py"), str(trace)]
    done = subprocess.run(command, env=oracle.environment(oracle_library), capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        pytest.fail(f"exit {done.returncode}: {done.stderr[-1500:]}", pytrace=False)
    return json.loads(done.stdout.splitlines()[-1])


def test_every_line_is_right(found):
    assert found["lost"] == 0
    assert found["wrong"] == []
    assert found["expected"] >= 70


def test_backward_resolves_to_forward_lines(found):
    total, resolved = found["backward"]
    assert total > 90_000
    assert resolved == total, found["unresolved"]
    assert found["without_user_line"] == []


def test_a_second_reader_sees_the_same_stacks(found):
    assert found["stacks"] > 60
    assert found["readers_differ"] == []
