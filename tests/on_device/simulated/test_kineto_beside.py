"""torch.profiler (the real one) beside cuptimem: it gets its kernels whoever came first; cuptimem says what it lost."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Result

pytestmark = pytest.mark.cuda_torch

SAID = "cuptimem: memory that libraries take from CUDA by themselves is not recorded: "
PROGRAM = str(Path(__file__).with_name("kineto_beside.py"))


def said(done: Result) -> list[str]:
    return [line.removeprefix(SAID) for line in done.err.splitlines() if not line.startswith("USDT:")]


def test_ours_first(forked_on_device: Callable[..., Result]) -> None:
    done = forked_on_device(PROGRAM, "first", "second", "around", "theirs")
    assert done.code == 0, done.err[-3000:]
    found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    assert found["first"]["modes"] == ["callbacks", "slots"], "its first use subscribes"
    assert found["second"]["modes"] == ["slots", "slots"] and found["mode around"] == "slots", "for life"
    assert found["first"]["kernels"] == found["second"]["kernels"] == [2, 2]
    assert found["theirs"] == 2 and found["around"] == 4
    # A segment before and one after; the context, which was there before, is seen by the first callback.
    assert found["first"]["events"] == {"memory": 2, "contexts": 1}
    assert found["second"]["events"] == {"memory": 2, "contexts": 0}
    asked, *later = said(done)
    assert asked == "torch.profiler asked for CUPTI and keeps it"
    assert len(later) == 2 and all(line.startswith("another profiler holds CUPTI: error 39") for line in later)


def test_one_that_detaches_from_cupti(forked_on_device: Callable[..., Result]) -> None:
    done = forked_on_device(PROGRAM, "theirs", "first", env={"TEARDOWN_CUPTI": "1"})
    assert done.code == 0, done.err[-3000:]
    found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    assert found["theirs"] == 2 and found["first"]["kernels"] == [2, 2]
    assert found["first"]["modes"][-1] == "slots"
