"""profile(code=...): a recorded program in which a package calls PyTorch for the user."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cuptimem

torch = pytest.importorskip("torch", reason="the torch-free run leaves these out")
pytestmark = pytest.mark.torch

SOURCE = """\
import torch


def fit(kib):
    return torch.empty(kib * 1024, dtype=torch.uint8)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An installed package."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    (site / "cuptimem_test_trainers").mkdir(parents=True)
    (site / "cuptimem_test_trainers" / "__init__.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delenv("CUPTIMEM_CODE", raising=False)
    import cuptimem_test_trainers  # type: ignore[import-not-found]

    yield cuptimem_test_trainers
    del sys.modules["cuptimem_test_trainers"]


def function(report: cuptimem.Report) -> str | None:
    """Of the largest contributor's line."""
    frame = report.peak.contributors[0].frame
    return frame.function if frame is not None else None


def test_a_profile_names_it_for_its_report_and_its_file(tmp_path: Path, package: Any) -> None:
    path = tmp_path / "run.cmem"
    with cuptimem.profile(path, code="cuptimem-test-trainers") as prof:
        kept = package.fit(64)
        assert function(prof.report) == "fit"
    assert function(prof.report) == function(cuptimem.open(path)) == "fit"
    assert prof.report.code == ("cuptimem_test_trainers",)
    name = "test_a_profile_names_it_for_its_report_and_its_file"
    assert function(cuptimem.open(path, code=())) == name
    del kept


def test_every_window_has_its_own(tmp_path: Path, package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = tmp_path / "outer.cmem", tmp_path / "inner.cmem"
    name = "test_every_window_has_its_own"
    with cuptimem.profile(outer) as plain:
        with cuptimem.profile(inner, code=["cuptimem_test_trainers"]) as chosen:
            kept = package.fit(64)
        assert function(chosen.report) == "fit" and function(plain.report) == name
        with cuptimem.profile() as third:
            more = package.fit(128)
        assert function(third.report) == name
    assert function(cuptimem.open(inner)) == "fit" and function(cuptimem.open(outer)) == name
    monkeypatch.setenv("CUPTIMEM_CODE", "torch")
    assert cuptimem.open(inner).code == ("torch",)
    del kept, more


def test_the_first_window_may_end_first(tmp_path: Path, package: Any) -> None:
    first, second = tmp_path / "first.cmem", tmp_path / "second.cmem"
    one = cuptimem.profile(first, code="cuptimem_test_trainers")
    two = cuptimem.profile(second)
    one.start()
    two.start()
    kept = package.fit(64)
    one.stop()
    two.stop()
    name = "test_the_first_window_may_end_first"
    assert [function(cuptimem.open(path)) for path in (first, second)] == ["fit", name]
    assert [function(prof.report) for prof in (one, two)] == ["fit", name]
    del kept


def test_what_is_no_package_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'\./src' is not the name"):
        cuptimem.profile(code="./src")
