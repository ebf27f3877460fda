"""What somebody sees who tries the plugin: pytest's last line, reasons for skips, mistakes on the command line."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import clean_environment

TESTS = """
import pytest, torch
kept = []

@pytest.mark.limit_tensor_memory("1 KiB")
def test_large():
    torch.ones(1024)

@pytest.mark.limit_tensor_leaks("0 B")
def test_left():
    kept.append(torch.ones(256))

@pytest.mark.limit_tensor_leaks("0 B")
def test_nothing_left():
    torch.ones(256)

@pytest.mark.limit_tensor_leaks("0 B")
def test_garbage():
    cycle = [torch.ones(256)]
    cycle.append(cycle)
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    clean = clean_environment()
    for name in os.environ.keys() - clean.keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "130")


def test_a_run_over_its_limits_ends_in_red(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)
    ran = pytester.runpytest_subprocess("--color=yes", "-k", "large")
    assert ran.ret == 1
    assert "\x1b[31m=" in ran.outlines[-1] and "1 over memory limit" in ran.outlines[-1]
    assert "0 failed" not in ran.outlines[-1]


OVER = [
    "MEMORY test_it.py::test_large - 4.0 KiB tensors at most on cpu, the limit is 1.0 KiB: 3.0 KiB too much",
    "LEAK test_it.py::test_left - 1.0 KiB left behind on cpu, the limit is 0 B: 1.0 KiB too much",
]


def _listed(ran: pytest.RunResult) -> list[str]:
    """What stands in pytest's short summary."""
    heads = [at for at, line in enumerate(ran.outlines) if " short test summary info " in line]
    assert len(heads) <= 1
    return [line for line in ran.outlines[heads[0] + 1 :] if not re.search(r" in \d", line)] if heads else []


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        ((), OVER),
        pytest.param(("-rf",), OVER, marks=pytest.mark.extended),
        pytest.param(("-q", "-ra"), OVER, marks=pytest.mark.extended),
        pytest.param(("-n1",), OVER, marks=pytest.mark.extended),
        (("-rA",), [*(f"PASSED test_it.py::test_{name}" for name in ("left", "nothing_left", "garbage")), *OVER]),
        (("-rN",), []),
        (("--no-summary", "--color=yes"), []),
    ],
)
def test_tests_over_a_limit_are_listed(pytester: pytest.Pytester, options: tuple[str, ...], listed: list[str]) -> None:
    """As pytest lists those that failed."""
    if options == ("-n1",):
        pytest.importorskip("xdist")
    pytester.makepyfile(test_it=TESTS)
    ran = pytester.runpytest_subprocess(*options)
    assert ran.ret == 1 and sorted(_listed(ran)) == sorted(listed)
    assert re.search(
        "3 passed, 1 over memory limit, 1 over leak limit in", re.sub("\x1b\\[[0-9;]*m", "", ran.outlines[-1])
    )
    assert "--color=yes" not in options or "\x1b[31m=" in ran.outlines[-1]


def test_failures_stand_beside_them_and_are_counted_as_before(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=f"{TESTS}\ndef test_wrong():\n    assert 0\n")
    ran = pytester.runpytest_subprocess()
    assert _listed(ran) == ["FAILED test_it.py::test_wrong - assert 0", *OVER]
    assert "1 failed, 3 passed, 1 over memory limit, 1 over leak limit in" in ran.outlines[-1]
    assert sum("test_large ___" in line for line in ran.outlines) == 1  # not among pytest's FAILURES, too


@pytest.mark.parametrize(("option", "first"), [pytest.param("--lf", 2, marks=pytest.mark.extended), ("--ff", 4)])
def test_tests_over_a_limit_are_run_again_as_failures_are(pytester: pytest.Pytester, option: str, first: int) -> None:
    pytester.makepyfile(test_it=TESTS)
    assert pytester.runpytest_subprocess().ret == 1
    ran = pytester.runpytest_subprocess(option, "-v")
    order = [match[1] for line in ran.outlines if (match := re.match(r"test_it.py::(\w+) [A-Z]+ +\[", line))]
    assert len(set(order)) == first and order[0] == "test_large" and order[1] == "test_left"


def test_collections_are_made_only_where_something_is_left(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import cuptimem.record.garbage as garbage
        made, real = [], garbage.collect_finally
        def count(*given):
            made.append(1)
            return real(*given)
        garbage.collect_finally = count
        def pytest_runtest_logfinish(nodeid):
            print(f"{nodeid} {len(made)}")
            made.clear()
        """
    )
    pytester.makepyfile(test_it=TESTS)
    ran = pytester.runpytest_subprocess("-s", "-k", "left or garbage")
    ran.stdout.fnmatch_lines(["*1.0 KiB left behind on cpu*", "*ones(256)*"])
    assert _number(ran.outlines, "test_it.py::test_nothing_left") == "0"
    assert [_number(ran.outlines, f"test_it.py::test_{name}") for name in ("left", "garbage")] == ["1", "1"]
    assert ran.ret == 1 and "1 over leak limit" in ran.outlines[-1]


def _number(lines: list[str], test: str) -> str:
    (found,) = [line.rpartition(" ")[2] for line in lines if re.search(rf"{test} \d+$", line)]
    return found


def test_a_skip_stands_at_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.limit_tensor_memory("1 KiB", device="cuda")
        def test_cuda():
            pass
        """
    )
    ran = pytester.runpytest_subprocess("-rs")
    ran.stdout.fnmatch_lines(["SKIPPED [[]1[]] test_it.py:3: its limit is about a CUDA device*"])


def test_the_fixture_in_a_failed_assertion(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch

        def test_it(tensor_memory):
            kept = torch.ones(1024)
            assert tensor_memory.peak_above_start <= "1 KiB"
        """
    )
    ran = pytester.runpytest_subprocess()
    ran.stdout.fnmatch_lines(
        [
            "E *assert 4096 B (4.0 KiB) <= '1 KiB'",
            "E *where 4096 B (4.0 KiB) = tensor_memory.peak_above_start",
        ]
    )


@pytest.mark.parametrize("rows", ["0", "-1", "x", "1.5", "1_0"])
def test_a_wrong_number_of_rows(pytester: pytest.Pytester, rows: str) -> None:
    ran = pytester.runpytest_subprocess(f"--cuptimem-most={rows}")
    ran.stderr.fnmatch_lines([f"ERROR: --cuptimem-most is a number of rows, 1 or more, not '{rows}'"])
    assert ran.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["sub"], marks=pytest.mark.extended),
        pytest.param(["sub/test_it.py"], marks=pytest.mark.extended),
        ["sub/test_it.py::test_one"],
    ],
)
def test_a_path_is_no_name(pytester: pytest.Pytester, words: list[str]) -> None:
    """Its conftest is found, too, as without the option."""
    folder = pytester.mkdir("sub")
    (folder / "conftest.py").write_text("def pytest_addoption(parser): parser.addoption('--of-sub')\n")
    (folder / "test_it.py").write_text("import torch\ndef test_one(): torch.ones(2)\n")
    pytester.makepyfile(test_other="def test_other(): pass")
    pytester.runpytest_subprocess("--of-sub=1", "--cuptimem-save", *words).assert_outcomes(passed=1)
    ran = pytester.runpytest_subprocess("--of-sub=1", "--cuptimem-compare", *words)
    ran.stdout.fnmatch_lines(["compared 1, new 0, not comparable 0"])
    assert [path.name for path in Path(pytester.path).glob(".cuptimem/*/*")] == ["baseline.json"]


def test_a_name_is_no_path(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="import torch\ndef test_one(): torch.ones(2)\n")
    pytester.mkdir("main")
    pytester.runpytest_subprocess("--cuptimem-save", "other").assert_outcomes(passed=1)
    pytester.runpytest_subprocess("--cuptimem-save=main").assert_outcomes(passed=1)
    assert sorted(path.name for path in pytester.path.glob(".cuptimem/*/*")) == ["main.json", "other.json"]


def test_a_run_over_its_baseline_says_so_in_red(pytester: pytest.Pytester) -> None:
    text = "import torch\nN = {}\ndef test_it():\n    torch.ones(N)\n"
    pytester.makepyfile(test_it=text.format(1024))
    pytester.runpytest_subprocess("--cuptimem-save").assert_outcomes(passed=1)
    pytester.makepyfile(test_it=text.format(2048))
    ran = pytester.runpytest_subprocess("--color=yes", "--cuptimem-compare-fail=peak:5%")
    ran.stdout.fnmatch_lines(
        [
            "  peak +4.0 KiB (+100.0 %, 4.0 KiB to 8.0 KiB), over peak:5%",
            "    +4.0 KiB grew *",
            "FAILED: 1 test over the baseline",
        ]
    )
    assert ran.ret == 1 and "\x1b[31m=" in ran.outlines[-1]


def test_a_rule_that_compared_nothing_says_how_to_let_it_pass(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="import torch\ndef test_it(): torch.ones(2)\n")
    pytester.runpytest_subprocess("--cuptimem-save").assert_outcomes(passed=1)
    ran = pytester.runpytest_subprocess("--cuptimem-compare-fail=leak:0B")
    ran.stdout.fnmatch_lines(["FAILED: leak:0B compared nothing; --cuptimem-compare-lenient lets that pass"])
    assert ran.ret == 1
    assert pytester.runpytest_subprocess("--cuptimem-compare-fail=leak:0B", "--cuptimem-compare-lenient").ret == 0


SPOILED: tuple[tuple[Callable[[str], str | None], str], ...] = (
    (lambda text: "no JSON", "not JSON in line 1, column 1"),
    (lambda text: text[: len(text) // 2], "not JSON in line "),
    (lambda text: text.replace('"schema": 1', '"schema": 99'), "its schema is 99"),
    (lambda text: re.sub(r'"peak": \d+', '"peak": "8"', text), "peak is '8'"),
    (lambda text: "[]", "not a baseline of cuptimem"),
    (lambda text: None, "no baseline was ever saved there"),
)


def test_a_baseline_that_cannot_be_read_ends_the_run_at_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="import torch\ndef test_it(): torch.ones(2)\n")
    pytester.runpytest_subprocess("--cuptimem-save").assert_outcomes(passed=1)
    (file,) = pytester.path.glob(".cuptimem/*/baseline.json")
    whole = file.read_text()
    for spoil, wrong in SPOILED:
        text = spoil(whole)
        file.unlink() if text is None else file.write_text(text)
        ran = pytester.runpytest_subprocess("--cuptimem-compare")
        assert ran.ret == pytest.ExitCode.USAGE_ERROR and not any("test_it.py" in line for line in ran.outlines), wrong
        (said,) = [line for line in ran.errlines if line]
        assert said.startswith("ERROR: .cuptimem/") and wrong in said
