"""What the report of a test over its limit says of a baseline."""

from collections.abc import Callable

import pytest

from tests.tools.pytest_plugin.measured import Run, run_suite

__all__ = ["run_suite"]

SUITE = """
import pytest
import torch

ELEMENTS = {elements}

@pytest.mark.limit_tensor_memory("{limit}")
def test_forward():
    x = torch.ones(1000)
    y = torch.ones(ELEMENTS)
"""
SMALL = SUITE.format(limit="1 MiB", elements=100)
LARGE = SUITE.format(limit="10 KiB", elements=5000)


def said(run: Run) -> str:
    """The report of the one test that fails."""
    return run.out.partition("the limit is ")[2]


@pytest.mark.parametrize("name", ["baseline", pytest.param("main", marks=pytest.mark.extended)])
def test_what_the_baseline_had(run_suite: Callable[..., Run], name: str) -> None:
    """Without an option it is the default one; beside other processes it is in their reports."""
    assert run_suite(f"--cuptimem-save={name}", test_it=SMALL).code == 0
    options = [] if name == "baseline" else [f"--cuptimem-compare={name}", "-n1"]
    if options:
        pytest.importorskip("xdist", reason="for a run in another process")
    run = run_suite(*options, test_it=LARGE)
    assert run.code == 1
    report = said(run)
    assert f"baseline '{name}' has other figures:\n  peak +19.1 KiB (+445.5 %, 4.3 KiB to 23.4 KiB)" in report
    assert "    +19.1 KiB grew test_it.py:9 test_forward: 400 B to 19.5 KiB" in report


def test_the_same_figures(run_suite: Callable[..., Run]) -> None:
    assert run_suite("--cuptimem-save", test_it=SMALL).code == 0
    run = run_suite(test_it=SMALL.replace("1 MiB", "1 KiB"))
    assert run.code == 1 and "baseline 'baseline' has the same figures" in said(run)


def test_no_baseline_and_a_damaged_one(run_suite: Callable[..., Run], pytester: pytest.Pytester) -> None:
    run = run_suite(test_it=LARGE)
    assert run.code == 1 and "baseline '" not in said(run)
    assert run_suite("--cuptimem-save", test_it=SMALL).code == 0
    (file,) = pytester.path.glob(".cuptimem/*/baseline.json")
    file.write_text("{")
    run = run_suite(test_it=LARGE)
    assert run.code == 1 and "baseline.json: not JSON in line 1, column 2; restore the file" in said(run)
