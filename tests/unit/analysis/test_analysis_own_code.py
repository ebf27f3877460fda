"""Installed packages that were chosen as the user's own code decide lines in the analysis as they do in reports."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from craft import Frame, Trace
from hand_made import Analyze, only_device
from leak_program import KEEP, Program, train

import cuptimem
from cuptimem import _core
from cuptimem.report import own_code
from cuptimem.report.load import from_dict
from tests.event_kinds import THREAD

PACKAGE = "/venv/lib/python3.11/site-packages/trainers/"
LOOP: Frame = (PACKAGE + "loop.py", "Loop.run", 7)
BLOCK: Frame = (PACKAGE + "nn/block.py", "Block.forward", 12)
TORCH_LINE: Frame = ("/venv/lib/python3.11/site-packages/torch/nn/functional.py", "linear", 5)
MAIN: Frame = ("train.py", "main", 3)
IN_NODE = 1


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(own_code.VARIABLE, raising=False)
    yield


def simple() -> Trace:
    t = Trace()
    t.alloc(0x1000, 8, t.stack(TORCH_LINE, BLOCK, LOOP, MAIN))
    return t


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("", MAIN),
        ("trainers", BLOCK),
        ("other", MAIN),
        ("trainers.loop", LOOP),
        ("trainers.nn,x", BLOCK),
        ("torch", TORCH_LINE),
    ],
)
def test_the_users_line_of_a_report(tmp_path: Path, code: str, line: Frame) -> None:
    path = simple().write(tmp_path / "a.cmem", meta={"nodes": "counted"})
    report = cuptimem.open(path, code=code)
    (contributor,) = report.peak.contributors
    assert contributor.frame is not None and (contributor.frame.file, contributor.frame.line) == (line[0], line[2])
    assert report.code == own_code.names(code)


def test_who_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who asks, over the environment, over the trace."""
    path = simple().write(tmp_path / "a.cmem", meta={"code": "trainers.loop"})

    def line(code: str | None = None) -> int:
        frame = cuptimem.open(path, code=code).peak.contributors[0].frame
        assert frame is not None
        return frame.line

    assert line() == LOOP[2]
    monkeypatch.setenv(own_code.VARIABLE, "trainers.nn:unknown")
    assert line() == BLOCK[2]
    assert line("torch") == TORCH_LINE[2] and line("") == MAIN[2]
    monkeypatch.setenv(own_code.VARIABLE, " , ")
    assert line() == MAIN[2]  # it says that there is none
    monkeypatch.setenv(own_code.VARIABLE, "")
    assert line() == LOOP[2]
    monkeypatch.setenv(own_code.VARIABLE, "not/a/package")
    with pytest.raises(cuptimem.Error, match="CUPTIMEM_CODE: 'not/a/package' is not the name"):
        line()


def test_what_the_trace_names_may_be_anything(tmp_path: Path) -> None:
    """It is compared, never read as a pattern."""
    for number, code in enumerate(["(", ".*", ",,", "trainers.[nl].*", "\\", "é,,("]):
        path = simple().write(tmp_path / f"{number}.cmem", meta={"code": code})
        (contributor,) = cuptimem.open(path).peak.contributors
        assert contributor.frame is not None and contributor.frame.line == MAIN[2]


def test_backward_bytes_belong_to_a_chosen_line(analyze: Analyze) -> None:
    """What runs newer than the engine is the user's if it was chosen: as a recomputation in the user's own model."""
    t = Trace()
    t.add(THREAD, 1, 11)
    engine: Frame = ("/venv/lib/python3.11/site-packages/torch/autograd/__init__.py", "backward", 200)
    own = t.stack(BLOCK, engine, LOOP, MAIN)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.alloc(0x1000, 8, own, flags=IN_NODE)
    t.done()
    for code, stack in (("", t.line(1)), ("trainers", own), ("trainers.loop", t.line(1))):
        (row,) = only_device(analyze(t, code=code))["contributors"]
        assert row[2] == stack, code


def test_lines_of_leaks_are_lines_of_the_chosen_code(analyze: Callable[..., dict[str, Any]]) -> None:
    """Two lines of a package grow through many stacks each, below one line of the user's."""

    def body(p: Program, i: int) -> None:
        for line, size in ((KEEP, 1000), (KEEP + 1, 3000)):
            deep: list[Frame] = [(PACKAGE + "keep.py", "keep", line)] * (1 + i % 9)
            p.new(size, stack=p.t.stack(*deep, MAIN))

    program = train(45, body)
    program.collect_at_the_end([])
    t = program.t
    whole = analyze(t, code="")["leaks"]
    assert [(row["bytes_per_step"], len(row["parts"])) for row in whole] == [(4000.0, 18)]
    split = analyze(t, code="trainers")["leaks"]
    assert [(row["bytes_per_step"], len(row["parts"])) for row in split] == [(3000.0, 9), (1000.0, 9)]


def test_a_windows_file_names_what_it_was_given(tmp_path: Path) -> None:
    t = simple()
    t.mark(1, 1)
    t.alloc(0x2000, 8, t.stack(TORCH_LINE, BLOCK, LOOP, MAIN))
    t.mark(2, 1)
    whole = t.write(tmp_path / "whole.cmem", meta={"code": "trainers.loop"})
    for code in ("trainers.nn", ""):
        target = str(tmp_path / f"window{code}.cmem")
        _core.extract(whole, target, 1, code)
        assert cuptimem.open(target).code == own_code.names(code)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("transformers", ("transformers",)),
        ("a,b.c:d", ("a", "b.c", "d")),
        (" pytorch-lightning , pytorch_lightning", ("pytorch_lightning",)),
        (["a", "b:c"], ("a", "b", "c")),
        ("", ()),
    ],
)
def test_names(given: Any, found: tuple[str, ...]) -> None:
    assert own_code.names(given) == found


@pytest.mark.parametrize("given", ["a/b", "./a", "a b", "1a", "a..b", ".a", "*"])
def test_no_names(given: str) -> None:
    with pytest.raises(ValueError, match="is not the name of an installed package"):
        own_code.names(given)
    with pytest.raises(TypeError):
        own_code.names([3])  # type: ignore[list-item]


def test_a_stack_that_is_too_deep_and_all_of_libraries(tmp_path: Path) -> None:
    """Its outermost row stands for frames that were not kept: it is no line of the user's."""
    path = simple().write(tmp_path / "a.cmem")
    raw = _core.analyze(path)
    kept = [(LOOP[0], LOOP[1], LOOP[2], -1, -1, -1, None, 0), (None, "...", -1, -1, -1, -1, None, 0)]
    raw["stacks"] = dict.fromkeys(raw["stacks"], kept)
    (contributor,) = from_dict(path, raw).peak.contributors
    assert contributor.frame == contributor.stack[0] and contributor.stack[1].truncated
    assert not cuptimem.Frame("", "f", 1).is_library  # code without a file name is the user's
