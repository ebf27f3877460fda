"""Two recordings: totals, lines that were added and removed, grew and moved."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import cuptimem
from cuptimem import Frame
from cuptimem.output import json
from cuptimem.output.text import blocks, diff_views, text, views
from cuptimem.report import diff
from cuptimem.report.model import Line
from tests.tools.cli import sample

OLD = """\
def load(n):
    return torch.zeros(n)

def step(x):
    y = model(x)
    z = relu(y)
    z = relu(z)
    return z
"""
NEW = """\
import gc

def load(n):
    return torch.zeros(n)

def step(x):
    x = x.half()
    y = model(x)
    z = relu(y)
    z = relu(z)
    return z + 1
"""


def frames(folder: Path, name: str, text_: str, wanted: Sequence[int]) -> list[Frame]:
    path = folder / name
    function = ""
    found = []
    for number, line in enumerate(text_.splitlines(), start=1):
        if line.startswith("def "):
            function = line[4:].split("(")[0]
        if number in wanted:
            found.append(Frame(str(path), function, number, text=line))
    return found


def numbers(before: list[Frame], after: list[Frame]) -> dict[int, int]:
    return {new[1]: old[1] for new, old in diff.match(before, after).items()}


@pytest.mark.parametrize("names", [("train.py", "train.py"), ("old.py", "new.py")])
def test_lines_that_moved(tmp_path: Path, names: tuple[str, str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    before = frames(tmp_path / "a", names[0], OLD, [2, 5, 6, 7, 8])
    after = frames(tmp_path / "b", names[1], NEW, [4, 7, 8, 9, 10, 11])
    assert numbers(before, after) == {4: 2, 8: 5, 9: 6, 10: 7}


def test_equal_texts_keep_their_order_and_their_function(tmp_path: Path) -> None:
    text_ = "def f(x):\n    a = g(x)\n    a = g(x)\n\ndef h(x):\n    a = g(x)\n"
    before = frames(tmp_path, "a.py", text_, [2, 3, 6])
    after = frames(tmp_path, "b.py", "\n\n" + text_, [4, 5, 8])
    assert numbers(before, after) == {4: 2, 5: 3, 8: 6}
    assert numbers(before, list(reversed(after))) == {4: 2, 5: 3, 8: 6}
    assert numbers(before, after[1:]) == {5: 2, 8: 6}  # which of the two went is unknown


def test_without_texts_only_the_place_counts() -> None:
    before = [Frame("/gone/train.py", "f", 5), Frame("/gone/train.py", "g", 9)]
    after = [Frame("/gone/train.py", "f", 6), Frame("/gone/train.py", "g", 9), Frame("/gone/train.py", "f", 5)]
    assert numbers(before, after) == {9: 9, 5: 5}
    assert numbers(before[:1], [Frame("/gone/train.py", "other", 5)]) == {}


def test_a_function_without_its_class_is_the_same(tmp_path: Path) -> None:
    """As PyTorch's snapshots have it, beside a recording, which has the text, too."""
    (whole,) = frames(tmp_path, "a.py", "def f(x):\n    a = g(x)\n", [2])
    method, bare = replace(whole, function="Net.f"), replace(whole, text="")
    known = diff._Known({}, {whole.file})
    for before, after in ((method, bare), (bare, method)):
        assert numbers([before], [after]) == {2: 2} and not known.moved(before, after)
    assert known.moved(method, replace(whole, function="Other.f"))


def test_a_changed_text_is_another_line(tmp_path: Path) -> None:
    before = frames(tmp_path, "a.py", "def f(x):\n    a = g(x)\n", [2])
    after = frames(tmp_path, "b.py", "def f(x):\n    a = g(2 * x)\n", [2])
    assert numbers(before, after) == {}


Rows = Sequence[tuple[int, int, str]]  # bytes, line of the file, phase


def recording(folder: Path, name: str, text_: str, peak: Rows, end: Rows, stepped: Rows, steps: int) -> cuptimem.Report:
    """A report whose contributors stand at lines of a file; line 0: no stack."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    raw = sample.analysis(folder)
    function, functions = "", {}
    texts = dict(enumerate(text_.splitlines(), start=1))
    for number, line in enumerate(text_.splitlines(), start=1):
        function = line[4:].split("(")[0] if line.startswith("def ") else function
        functions[number] = function
    raw["stacks"] = {i + 10: [(str(path), functions[i], i, i, -1, -1, None, 0, texts[i])] for i in functions}

    def contributors(rows: Rows) -> list[tuple[object, ...]]:
        return [
            (size, 1, 0 if not line else line + 10, 0 if not line else line + 10, phase, None, *sample.UNKNOWN)
            for size, line, phase in rows
        ]

    (device,) = raw["devices"]
    device.update(
        contributors=contributors(peak),
        peak=sum(row[0] for row in peak),
        end=sum(row[0] for row in end),
        tables={"end": (contributors(end), (0, 0)), "stepped": (contributors(stepped), (7 * steps, steps))},
    )
    raw["steps"] = [{**raw["steps"][0], "index": i, "contributors": []} for i in range(steps)]
    raw["meta"]["script"] = name
    raw["leaks"] = []
    from cuptimem.report.load import from_dict

    return from_dict(str(folder / "run.cmem"), raw)


def two(folder: Path) -> tuple[cuptimem.Report, cuptimem.Report]:
    before = recording(
        folder / "a",
        "train.py",
        OLD,
        [(400, 5, "forward"), (300, 5, "backward"), (50, 2, "data"), (30, 8, "forward"), (9, 0, "before start")],
        [(40, 2, "data"), (9, 0, "before start")],
        [(2000, 5, "forward"), (200, 2, "data")],
        2,
    )
    after = recording(
        folder / "b",
        "train.py",
        NEW,
        [(900, 8, "forward"), (300, 8, "backward"), (20, 4, "data"), (60, 7, "forward"), (9, 0, "before start")],
        [(40, 4, "data"), (9, 0, "before start"), (11, 11, "other")],
        [(6000, 8, "forward"), (800, 4, "data")],
        4,
    )
    return before, after


def compared(folder: Path) -> tuple[cuptimem.Report, cuptimem.Report, list[diff.DeviceDiff]]:
    before, after = two(folder)
    return before, after, diff.compare(before, after)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places begin in the test's folder."""
    monkeypatch.chdir(tmp_path)


def test_what_was_added_and_removed_and_grew(tmp_path: Path) -> None:
    before, after, (device,) = compared(tmp_path)
    shown = text.render(views.diff(before, after, [device], None, 3), 120)
    rows = [line.split() for line in shown.splitlines()]

    def row(*start: str) -> list[str]:
        (found,) = [row for row in rows if row[: len(start)] == list(start)]
        return found

    assert row("cpu", "peak")[2:] == ["789", "B", "1.3", "KiB", "+500", "B", "+63", "%"]
    assert row("cpu", "live", "at", "the", "end")[5:] == ["49", "B", "60", "B", "+11", "B", "+22", "%"]
    assert row("cpu", "allocated", "a", "step")[4:] == ["1.1", "KiB", "1.7", "KiB", "+600", "B", "+54", "%"]
    assert row("+500", "B", "700", "B")[4:] == ["1.2", "KiB", "grew", "b/train.py:8", "step", "y", "=", "model(x)"]
    assert row("+60", "B", "60", "B")[4:] == ["added", "b/train.py:7", "step", "x", "=", "x.half()"]
    assert row("-30", "B", "30", "B", "removed")[5:6] == ["a/train.py:8"]
    assert row("-30", "B", "59", "B", "29", "B")[6:] == ["(2", "more,", "1", "equal)"]
    assert row("+11", "B", "11", "B", "added")[5:6] == ["b/train.py:11"]
    assert row("+500", "B", "1000", "B")[4:7] == ["1.5", "KiB", "grew"]  # a step
    assert row("0", "7", "B", "7", "B")[5:] == ["(compacted:", "no", "line", "kept)"]
    assert "steps before: 2; after: 4" in shown and len(shown.splitlines()) < 40


def test_rows_sum_to_the_totals(tmp_path: Path) -> None:
    """Of any two recordings, in what people and in what programs read."""
    for seed in range(60):
        r = random.Random(seed)

        def rows(count: int, r: random.Random = r) -> Rows:
            phases = ["forward", "other"]
            return [(r.randrange(1, 9) * 4, r.randrange(0, count), r.choice(phases)) for _ in range(r.randrange(12))]

        before = recording(tmp_path / "a", "t.py", OLD, rows(9), rows(9), rows(9), r.choice([0, 1, 4]))
        after = recording(tmp_path / "b", "t.py", NEW, rows(12), rows(12), rows(12), r.choice([0, 1, 4]))
        devices = diff.compare(before, after)
        for section in devices[0].sections:
            for side in (0, 1):
                assert sum(one.bytes[side] for one in section.changes) + section.rest[side] == section.bytes[side]
        document = json.diff(before, after, devices)["devices"][0]
        for what in ("peak", "end", "stepped"):
            part = document[what]
            for side in ("before", "after"):
                assert sum(row["bytes"][side] for row in part["lines"]) + part["rest"][side] == part["bytes"][side]
        assert document["peak"]["bytes"] == {"before": before.peak.bytes, "after": after.peak.bytes}
        (peak, *_) = devices[0].sections
        table = next((b for b in diff_views._section("cpu", peak, 2) if isinstance(b, blocks.Table)), None)
        if table is not None:  # small enough that nothing is rounded

            def number(cell: str) -> int:
                return int(cell.split()[0]) if cell else 0

            assert sum(number(row[0]) for row in table.rows) == after.peak.bytes - before.peak.bytes
            assert sum(number(row[1]) for row in table.rows) == before.peak.bytes
            assert sum(number(row[2]) for row in table.rows) == after.peak.bytes


def test_nothing_differs(tmp_path: Path) -> None:
    before, _ = two(tmp_path)
    shown = text.render(views.diff(before, before, diff.compare(before, before), None, 3))
    assert "No line differs." in shown and "grew" not in shown and "%" not in shown


def test_a_device_of_one_alone(tmp_path: Path) -> None:
    before, after = two(tmp_path)
    empty = recording(tmp_path / "c", "train.py", OLD, [], [], [], 0)
    empty = replace(empty, devices=(), steps=cuptimem.Steps())
    for one, other, side in ((empty, after, 1), (before, empty, 0)):
        (device,) = diff.compare(one, other)
        assert device.device == "cpu"
        assert all(section.bytes[1 - side] == 0 < section.bytes[side] for section in device.sections)
        assert len({change.bytes[1 - side] for section in device.sections for change in section.changes}) == 1
    assert diff.compare(empty, empty) == []
    assert "Nothing was allocated" in text.render(views.diff(empty, empty, [], None, 3))


def test_a_line_has_the_same_form_on_both_sides(tmp_path: Path) -> None:
    """By module, though only one of the recordings has the stack that shows the loop."""
    from tests.tools.cli import stacked

    tables = {"end": ([], (0, 0)), "stepped": ([], (0, 0))}
    state = [(stacked.SITE + "torch/optim/adam.py", "_init_group", 160), stacked.STEP, stacked.TRAIN, stacked.MAIN]
    only_state = stacked.report(tmp_path, [(30, "optimizer", state)], names=["h.0.attn"], tables=tables)
    trained = stacked.trained(tmp_path, tables=tables, called=True)
    for before, after, sign in ((only_state, trained, 1), (trained, only_state, -1)):
        (device,) = diff.compare(before, after)
        change = next(one for one in device.sections[0].changes if one.shown.where == "me/train.py:9")
        assert change.kind == ("grew" if sign > 0 else "shrank")
        parts = {name: after_ - before_ for name, before_, after_ in change.parts}
        assert parts == {"h.*.attn": sign * 40, "h.*.mlp": sign * 20}
        said = diff_views.parts_in_a_line(device.sections[0], change)
        assert said == (
            "of which +40 B h.*.attn, +20 B h.*.mlp" if sign > 0 else "of which -40 B h.*.attn, -20 B h.*.mlp"
        )


def test_a_line_in_another_function_is_moved(tmp_path: Path) -> None:
    """The same code, once on either side; a script of another name is no other file."""
    new = OLD.replace("def step(x):", "def forward(x):")
    rows: Rows = [(400, 5, "forward"), (50, 2, "data"), (30, 6, "forward")]
    before = recording(tmp_path / "a", "train.py", OLD, rows, [], [], 2)
    after = recording(tmp_path / "b", "other.py", new, rows, [], [], 2)
    (device,) = diff.compare(before, after)
    kinds = {change.shown.where: change.kind for change in device.sections[0].changes}
    assert kinds == {
        "b/other.py:5": "moved",
        "b/other.py:2": "same",
        "b/other.py:6": "added",
        "a/train.py:6": "removed",
    }
    shown = text.render(views.diff(before, after, [device], None, 9), 120)
    assert "moved from a/train.py:5 step" in shown


def with_loops(report: cuptimem.Report, loops: Sequence[tuple[str, int, int]], peak_step: int) -> cuptimem.Report:
    """loops: of each step its loop, what it allocated and its peak."""
    from dataclasses import replace

    first = report.steps[0]
    steps = [
        replace(first, index=i, loop=loop, allocated=allocated, peak=peak)
        for i, (loop, allocated, peak) in enumerate(loops)
    ]
    (device,) = report.devices
    moved = replace(device, peak=replace(device.peak, step=peak_step))
    return replace(report, devices=(moved,), steps=cuptimem.Steps(steps))


def test_loops_are_compared_with_the_same_loops(tmp_path: Path) -> None:
    before, after = two(tmp_path)
    training = [("training", 9, 40), ("training", 5, 50), ("training", 5, 30)]
    one = with_loops(before, [*training, ("evaluation", 2, 20)], 1)
    other = with_loops(after, [*training, ("evaluation", 2, 90), ("evaluation", 3, 20)], 3)
    assert diff.steps_to_compare(one, one) == [("training", "stepped", 2, 2), ("evaluation", "stepped", 3, 3)]
    assert diff.steps_to_compare(one, other) == [
        ("training", "stepped", 2, 2),
        ("evaluation", "stepped", 3, 3),
        ("training", "peak", 1, 1),
        ("evaluation", "peak", 3, 3),
    ]
    pairs = [
        diff.OfLoop("training", "stepped", before, after),
        diff.OfLoop("training", "peak", before, after),
        diff.OfLoop("evaluation", "stepped", None, after),
    ]
    (device,) = diff.compare(one, other, pairs)
    assert [(section.what, section.loop) for section in device.shown] == [
        ("peak", ""),
        ("peak", "training"),
        ("end", ""),
        ("stepped", "training"),
        ("stepped", "evaluation"),
    ]
    assert device.shown[3].bytes == (before.contents("stepped").bytes, after.contents("stepped").bytes)
    assert device.shown[3].steps == (1, 1) and device.shown[4].bytes[0] == 0
    shown = text.render(views.diff(one, other, [device], None, 3), 160)
    assert (
        "! the peaks on cpu lie at different moments: before in a step of training, after in a step of evaluation; the "
        "highest peaks of training are compared, too" in shown
    )
    assert "cpu allocated in a step of training" in shown and "cpu highest peak of training" in shown


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_word_is_lost_where_there_is_little_room(width: int) -> None:
    """Sizes, functions and code give way to it."""
    frame = Frame(f"/work/{'folder/' * 3}a_long_name_of_a_module.py", "fit_for_one_epoch", 123)
    change = diff.Change("other", Line(1 << 20, 1, "other", frame.place, (), frame), None)
    section = diff.Section("peak", (1 << 20, 0), (0, 0), (1, 1), (change,))
    shown = text.render(diff_views._section("cuda:0", section, 5), width).splitlines()
    row = next(line for line in shown if "module.py:123" in line)
    assert " removed " in row and all(len(line) <= width for line in shown)
