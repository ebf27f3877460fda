"""Operators that PyTorch routes through Python (torch/_native/registry.py): that is a frame on the stack, and the only
one in a device's backward. Every byte of their backward stands at a forward line all the same, and of their forward at
the user's, in the phase forward."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuptimem import Frame, _core
from tests.conftest import Result
from tests.record.truth import replay

pytestmark = pytest.mark.cuda_torch

PROGRAM = Path(__file__).with_name("routed_program.py")
MAIN = next(i for i, line in enumerate(PROGRAM.read_text().splitlines(), 1) if "loss = torch.stack" in line)


def own_line(stack: Any) -> int | None:
    """The innermost line of the program's."""
    return next((line for file, line, *_ in map(place, stack) if file == str(PROGRAM)), None)


def place(frame: Any) -> tuple[str, int]:
    file, line = (frame[0], frame[1]) if isinstance(frame[1], int) else (frame[0], frame[2])
    return file or "", line


def is_routed(stack: Any) -> bool:
    return any("eager_router" in str(frame) for frame in stack)


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.extended), "cuda"])
def test_routed_operators(on_device: Callable[..., Result], tmp_path: Path, device: str) -> None:
    done = on_device(str(PROGRAM), device)
    assert done.code == 0, done.err[-3000:]
    found = json.loads(done.out.splitlines()[-1])
    if not found:
        pytest.skip("this PyTorch routes nothing: it is older than 2.14")
    assert found["unknown"] == [], "routed_program.py needs examples of these"
    routed: dict[str, set[str]] = {}
    for name, (first, last) in found["runs"].items():
        allowed = {*range(first, last + 1), MAIN}
        result = replay.replay(replay.rows(tmp_path / name))
        wrong = [
            (block.size, block.stack[:4], block.forward[:2])
            for block in result.born
            if block.in_node and own_line(block.charged) not in allowed
        ]
        assert wrong == [], name
        report = _core.analyze(str(tmp_path / name))
        assert report["backward"]["bytes"] == report["backward"]["resolved"], (name, report["backward"])
        assert report["backward"]["bytes"] > 0 or "chunked" in name
        for row in next(one for one in report["devices"] if one["device"].startswith(device))["contributors"]:
            line = own_line(report["stacks"][row[2]])
            frames = [Frame(file or "", function, number) for file, function, number, *_ in report["stacks"][row[2]]]
            if row[4] == "backward" or is_routed(report["stacks"][row[3]]):
                assert row[4] in ("forward", "backward") and line in allowed, (name, row, report["stacks"][row[3]][:3])
                assert next(frame for frame in frames if not frame.is_library).line == line
        phases = {"backward" if block.in_node else "forward" for block in result.born if is_routed(block.stack)}
        routed[name] = phases
    assert {"bmm.bmm.cmem", "sum.dim_IntList.sum_along.cmem"} <= set(routed)
    assert routed["bmm.bmm.cmem"] == {"forward", "backward"}  # so the router was seen
    assert "backward" in routed["scatter_add_.gather.cmem"] or "backward" in routed["sum.dim_IntList.broadcast.cmem"]
