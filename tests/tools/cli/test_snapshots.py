"""A memory snapshot of PyTorch's in the place of a trace: each view answers, or says that a snapshot lacks it."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Result
from tests.unit.snapshot.made import training

Run = Callable[..., Result]
ANSWERED = (
    *("summary", "peak", "peak --at end", "table", "table --by category", "account", "tree", "steps", "leaks"),
    *("fragmentation", "advice", "diff other.pickle", "ranks", "export --to json -o - --force", "flamegraph -o -"),
)
LACKING = ("ledger", "kernels", "holders", "table --by module")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("snapshot.pickle", "other.pickle"):
        (tmp_path / name).write_bytes(pickle.dumps(training(12), 4))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", ANSWERED)
def test_each_view_answers(call: Run, folder: Path, words: str) -> None:
    done = call(*words.split(), "snapshot.pickle")
    assert done.code == 0 and done.out, done.err


@pytest.mark.parametrize("words", LACKING)
def test_what_a_snapshot_lacks_is_said_in_a_line(call: Run, folder: Path, words: str) -> None:
    done = call(*words.split(), "snapshot.pickle")
    assert (done.code, done.out) == (1, "")
    assert "snapshot of PyTorch's" in done.err and done.err.count("\n") == 1
