"""Reports of windows while their capture goes on: what was read for one is not read again for the next."""

from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from cuptimem import _core
from cuptimem.record import recorder
from tests.conftest import Result

torch = pytest.importorskip("torch", reason="the torch-free run leaves these out")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("only_new_objects")]

KIB = 1024


def decoded() -> int:
    """Records that the reports of the running capture have cost so far."""
    capture = recorder._capture
    assert capture is not None and capture.file.trace is not None
    return _core.trace_decoded(capture.file.trace)


def some(blocks: int) -> None:
    for _ in range(blocks):
        torch.empty(KIB, dtype=torch.uint8)


def test_windows_one_after_the_other() -> None:
    with cuptimem.profile() as outer:
        kept = []
        for number in range(8):
            some(500)  # between two windows
            with cuptimem.profile() as inner:
                some(500)
                kept.append(torch.empty(KIB, dtype=torch.uint8))
            device = inner.report.device("cpu")
            assert (device.peak_above_start, device.kept) == (KIB, KIB)
            assert device.peak.bytes - device.start == KIB and len(kept) == number + 1
            assert device.allocations == 501
        once = decoded()
    assert outer.report.device("cpu").allocations == 8 * 1001
    assert 8 * 2000 < once < 8 * 2000 * 1.1  # an allocation and a free each; marks and collections come on top


def test_a_window_asked_for_again_and_again() -> None:
    """What lies before it is read once; what lies in it each time."""
    with cuptimem.profile():
        some(20_000)
        with cuptimem.profile() as inner:
            for asked in range(1, 6):
                some(100)
                assert inner.report.device("cpu").allocations == 100 * asked
        before = decoded()
        assert inner.report.device("cpu").allocations == 500
        assert decoded() - before < 2000
    assert before < 40_000 * 1.1


def test_named_windows_are_cut_out_in_passing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with cuptimem.profile():
        for number in range(5):
            some(1000)
            with cuptimem.profile(f"{number}.cmem") as inner:
                some(10)
            assert inner.report.device("cpu").allocations == 10
        assert decoded() < 5 * 2020 * 2  # once for the file, and once more when the next one is looked for


def test_peak_above_start_is_in_every_view(tmp_path: Path) -> None:
    older = [torch.empty(8 * KIB, dtype=torch.uint8)]
    with cuptimem.profile(tmp_path / "a.cmem") as prof:
        first = torch.empty(2 * KIB, dtype=torch.uint8)
        older.clear()
        second = torch.empty(3 * KIB, dtype=torch.uint8)
        del first
    device = prof.report.device("cpu")
    assert device.peak.bytes - device.start == 2 * KIB and device.peak_above_start == 5 * KIB and device.kept == 3 * KIB
    above = prof.report.contents("above")
    assert above.bytes == 5 * KIB == sum(c.bytes for c in above.contributors)
    assert [c.bytes for c in prof.report.contents("kept").contributors] == [3 * KIB]
    assert second.numel() == 3 * KIB


def test_figures_of_a_profile() -> None:
    older = [torch.empty(8 * KIB, dtype=torch.uint8)]
    prof = cuptimem.profile()
    with prof:
        first = torch.empty(2 * KIB, dtype=torch.uint8)
        older.clear()
        cycle: list[object] = [torch.empty(KIB, dtype=torch.uint8)]
        cycle.append(cycle)
        del cycle
        assert prof.peak_above_start == 3 * KIB and prof.kept_bytes == 2 * KIB  # a collection was made
        second = torch.empty(3 * KIB, dtype=torch.uint8)
        del first
    assert prof.peak_above_start == 5 * KIB == prof.on("cpu").peak_above_start
    assert prof.kept_bytes == 3 * KIB == second.nbytes
    assert prof.peak_bytes == prof.report.device("cpu").peak.bytes >= 10 * KIB
    assert prof.peak_above_start <= "5 KiB" and prof.on("cuda:0").peak_bytes == 0
    assert "above start" in str(prof.report)


def test_a_profile_that_starts_with_nothing_has_no_column_for_it(forked: Callable[..., Result]) -> None:
    done = forked(
        "-c",
        "import torch, cuptimem\nwith cuptimem.profile() as prof: torch.ones(10)\n"
        "print(prof.report, prof.peak_above_start == prof.peak_bytes == 40)",
    )
    assert "at start" in done.out and "above start" not in done.out and done.out.endswith("True\n")
