"""Text fits the terminal: no line is wider, a file:line is whole, and code is readable or not there."""

import contextlib
import io
import os
import re
import tempfile
from pathlib import Path

import pytest

from cuptimem import cli
from cuptimem.output.text import blocks, text
from cuptimem.output.text.cells import cell_len
from cuptimem.report.stacks import shown_file
from tests.record.faults import traces
from tests.record.faults.test_names import VIEWS

WIDTHS = (60, 80, 100, 200)
CODE = "hidden_states = self.second_projection(torch.nn.functional.gelu(self.first_projection(hidden_states)))  # 表"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has a trace of a program below it, and of another one elsewhere."""
    made = tmp_path_factory.mktemp("widths")
    names = traces.Names(
        file=f"{made}/src/models/encoder_blocks.py",
        function="EncoderBlockWithVeryLongName.forward",
        code=f"    {CODE}",
        label="encoder.layers.11.feed_forward.intermediate.weight",
        kernel="void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
        holder="trainer.callbacks[2].history (ModelHistoryCallback) in function main → list[0:24]",
        problem="a problem that takes more than one line, as the file system in which the trace lies is full",
        end="the disk is full",
    )
    traces.write(made / "near.cmem", names)
    traces.write(made / "far.cmem", traces.Names(file="/home/ü/表表表/" + "long_name_of_a_file_" * 12 + ".py"))
    return made


def shown(folder: Path, view: list[str], width: int, trace: str = "near.cmem") -> list[str]:
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setenv("COLUMNS", str(width))
        patch.chdir(folder)
        assert cli.main([*view, trace]) == 0
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("view", [*VIEWS, ["diff", "far.cmem"]], ids=" ".join)
def test_every_view(folder: Path, view: list[str], width: int) -> None:
    for trace in ("near.cmem", "far.cmem"):
        lines = shown(folder, view, width, trace)
        assert [line for line in lines if cell_len(line) > width] == []
        assert not re.search(r"…\w*\)", "\n".join(lines))  # "(23 more lines)" is whole, or begins
        for at in code_columns(lines):
            # The column has its 24, or all that there is to show.
            assert width - at >= blocks.ENOUGH_CODE or not any(line[at:].endswith("…") for line in lines)


def code_columns(lines: list[str]) -> list[int]:
    """Where columns of code begin."""
    return [match.start() for line in lines if (match := re.search(r"(?<=  )code$", line))]


def test_all_room_goes_to_code(folder: Path) -> None:
    for width in (100, 200):
        lines = shown(folder, ["summary"], width)
        rows = [one for one in lines if "src/models/encoder_blocks.py:13 " in one and " is held by " not in one]
        assert rows
        for row in rows:
            assert CODE in row or cell_len(row) >= width - 1  # the mark has no half of a wide letter


def test_a_place_is_whole_and_can_be_opened(folder: Path) -> None:
    """From where the command runs, wherever there is room for it."""
    for view in (["summary"], ["peak"], ["leaks"], ["ledger"], ["fragmentation"], ["table"], ["tree"]):
        for width in WIDTHS:
            lines = shown(folder, view, width)
            places = [line for line in lines if "encoder_blocks.py:" in line]
            assert places
            for place in places:
                found = re.search(r"(\S*encoder_blocks\.py):\d+", place)
                assert found is not None
                if found[1] != "src/models/encoder_blocks.py":
                    assert found[1].startswith("…") and width < 80, place


def test_from_a_folder_beside_it_can_be_opened_from_afar_it_is_short(folder: Path, tmp_path: Path) -> None:
    beside = os.path.relpath(folder / "src/models/encoder_blocks.py", tmp_path)
    assert beside.count("../") == 1
    for here, expected in ((tmp_path, beside), (Path("/"), "…/models/encoder_blocks.py")):
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
            patch.chdir(here)
            assert cli.main(["table", str(folder / "near.cmem")]) == 0
        assert f"  {expected}:13  " in out.getvalue()


@pytest.mark.parametrize(
    ("here", "file", "expected"),
    [
        ("/a/b/c", "/a/b/c/d/e.py", "d/e.py"),
        ("/a/b/c", "/a/b/e.py", "../e.py"),
        ("/a/b/c", "/a/e.py", "../../e.py"),
        ("/a/b/c", "/x/y/z/e.py", "…/z/e.py"),
        ("/a", "/x/y/e.py", "…/y/e.py"),
        ("/a", "/x/e.py", "/x/e.py"),
        ("/", "/x/e.py", "/x/e.py"),
        ("/a", "/a/lib/python3.11/site-packages/torch/nn/e.py", "torch/nn/e.py"),
        ("/a", "<stdin>", "<stdin>"),
        ("/a", "e.py", "e.py"),
        ("/ab", "/a/e.py", "/a/e.py"),
    ],
)
def test_a_path_never_leads_to_another_file(
    monkeypatch: pytest.MonkeyPatch, here: str, file: str, expected: str
) -> None:
    monkeypatch.setattr(os, "getcwd", lambda: here)
    assert shown_file(file) == expected


def test_in_a_folder_that_is_gone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.chdir(tmp_path / "gone")
        os.rmdir(tmp_path / "gone")
        assert cli.main(["table", str(folder / "near.cmem")]) == 0
    assert "  …/models/encoder_blocks.py:13  " in out.getvalue()


def test_what_is_to_be_copied_is_not_broken() -> None:
    said = blocks.Text("  ok      torch  at /a/long/path/that/has/no/room/at/all is here", hang=17, whole=True)
    assert text.render([said], 40).splitlines() == [
        "  ok      torch  at",
        " " * 17 + "/a/long/path/that/has/no/room/at/all",
        " " * 17 + "is here",
    ]


def test_without_a_width_nothing_is_cut(folder: Path) -> None:
    assert any(CODE in line for line in shown(folder, ["summary"], 0))


# -- the layout ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 5, 20, 39, 40, 60])
def test_any_table_fits(width: int) -> None:
    columns = (blocks.Column("device"), *(blocks.Column(name, right=True) for name in ("peak", "end", "change")))
    table = blocks.Table(columns, (("a long name of a device, 表表", "1,234,567 B", "12 B", "+3.4 GiB"),))
    lines = text.render([table], max(width, 4)).splitlines()
    assert all(cell_len(line) <= max(width, 4) for line in lines)
    assert not any("1,2" in line and "1,234,567 B" not in line for line in lines)  # a number is whole or not there


def test_lines_are_broken_between_words() -> None:
    def broken(line: blocks.Text, width: int) -> list[str]:
        return text.render([line], width).splitlines()

    assert broken(blocks.Text("  it needs 12.1 GiB on cuda:0"), 20) == ["  it needs 12.1 GiB", "    on cuda:0"]
    assert broken(blocks.Text("  it needs 12.1 GiB on cuda:0"), 17) == ["  it needs", "    12.1 GiB on", "    cuda:0"]
    assert broken(blocks.Text("a b · c d · e", breaks=" · "), 9) == ["a b ·", "  c d · e"]
    assert broken(blocks.Text("! " + "x" * 10 + " y", hang=2), 8) == ["! xxxxxx", "  xxxx y"]
    assert broken(blocks.Text("表" * 5), 6) == ["表表", "  表表", "  表"]
    assert broken(blocks.Text("      x = f(1)", cut=True), 11) == ["      x = …"]
    assert text.render([blocks.Text("word " * 40, prose=True)]).count("\n") == 2


def test_a_script_in_a_temporary_folder_is_shown_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere the folder's random name is left out, so that two runs have the same lines."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sub").mkdir()
        for there, shown in (("", "sub/train.py"), ("sub", "train.py")):
            monkeypatch.chdir(Path(folder) / there)
            assert shown_file(f"{folder}/sub/train.py") == shown
    monkeypatch.chdir("/")
    assert shown_file(f"{folder}/sub/train.py") == "tmp…/sub/train.py"
