"""What the newest Pythons ask of an installation, as far as any Python can say it."""

import pkgutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cuptimem.record import autostart
from tests.pythons import ROOT
from tests.tools.newest.__main__ import Part, text

FREE_THREADED = """
import runpy, sysconfig
real = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else real(name)
runpy.run_path("setup.py")
"""


@pytest.mark.parametrize("name", ["CUPTIMEM", "CUPTIMEM_SIM_CHILD", None])
def test_both_startup_files_do_the_same(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    (pth,) = (ROOT / "cuptimem.pth").read_text().splitlines()
    (entry,) = (ROOT / "cuptimem.start").read_text().splitlines()
    started: list[str] = []
    monkeypatch.setattr(autostart, "start", lambda: started.append("once"))
    monkeypatch.syspath_prepend(ROOT)
    for variable in ("CUPTIMEM", "CUPTIMEM_SIM_CHILD"):
        monkeypatch.delenv(variable, raising=False)
    if name is not None:
        monkeypatch.setenv(name, "1")
    exec(pth, {})
    assert len(started) == (name is not None)
    pkgutil.resolve_name(entry)()
    assert len(started) == 2 * (name is not None)


def test_a_free_threaded_python_is_refused_in_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", FREE_THREADED], cwd=ROOT, capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert "free-threaded" in line and "a Python that has the GIL" in line


def test_the_result_names_what_failed() -> None:
    good = Part("CPython 3.14", Counter(passed=3, skipped=1), [], 0)
    bad = Part("CPython 3.15", Counter(passed=2, failed=1, error=1), ["FAILED tests/a.py::test_b"], 1)
    assert text("2026-01-02", ["Debian forky", "gcc 16"], [good, bad], "12345678") == (
        "# Newest versions, 2026-01-02\n\n"
        "Written by `make newest`: Debian forky, gcc 16.\n\n"
        "Both compilers compile everything with `-Werror`; where none is named, gcc's is tested.\n\n"
        "| tests | passed | failed | skipped | commit |\n"
        "|---|---|---|---|---|\n"
        "| CPython 3.14 | 3 | 0 | 1 | 12345678 |\n"
        "| CPython 3.15 | 2 | 2 | 0 | 12345678 |\n\n"
        "CPython 3.15 ended with 1:\n\n"
        "- `FAILED tests/a.py::test_b`\n"
    )


def test_a_page_of_the_same_day_keeps_other_pythons(tmp_path: Path) -> None:
    page, of = tmp_path / "2026-01-02.md", ["Debian forky"]
    first = [Part("CPython 3.15: a", Counter(passed=1), [], 0), Part("CPython 3.14: a", Counter(failed=1), [], 1)]
    page.write_text(text(page.stem, of, first, "11111111"))
    written = text(page.stem, of, [Part("CPython 3.14: a", Counter(passed=2), [], 0)], "22222222", page)
    assert [line for line in written.splitlines() if line.startswith("| CPython")] == [
        "| CPython 3.14: a | 2 | 0 | 0 | 22222222 |",
        "| CPython 3.15: a | 1 | 0 | 0 | 11111111 |",
    ]
