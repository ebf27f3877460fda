"""What a failure says of the lines at the peak: category and module in the place of the phase."""

from pathlib import Path

from cuptimem.pytest_plugin import judging, session
from cuptimem.report.load import from_dict
from tests.tools.cli import labelled, sample


def test_lines_of_a_failure(tmp_path: Path) -> None:
    shown = list(judging._shown(labelled.report(tmp_path).peak, Path("/home/me")))
    assert shown[:3] == [
        "    15.4 MiB  8 blocks, optimizer state of net.0 +1, train.py:12  opt.step()",
        "     8.2 MiB  7 blocks, gradient +1 of net.0 +2, train.py:9  y = net(x)",
        "     7.7 MiB  4 blocks, parameter of net.0 +1, train.py:3  net = Net()",
    ]
    assert "   125.0 KiB  1 block, input, train.py:5  return torch.randn(32, 1000)" in shown


def test_a_module_may_have_any_name(tmp_path: Path) -> None:
    raw = labelled.raw(tmp_path)
    device = raw["devices"][0]
    device["contributors"] = [(*row[:7], "\x1b[2J", row[8]) for row in device["contributors"]]
    text = str(session._raised(judging._shown(from_dict("x", raw).peak, tmp_path)).value)
    assert r"of \x1b[2J" in text and all(line.isprintable() for line in text.split("\n"))


def test_without_categories_it_is_the_phase(tmp_path: Path) -> None:
    shown = list(judging._shown(from_dict("x", sample.analysis(tmp_path)).peak, tmp_path))
    assert [line.split(", ")[1] for line in shown[:2]] == ["forward", "before start"]
