"""The driver level as data: ledgers that add up, what is unknown, and which error says what is missing."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem.report import ledger
from cuptimem.report import load as report_module
from cuptimem.report.kernels import short_name
from cuptimem.report.load import from_dict
from tests.tools.cli import driver_sample
from tests.tools.cli.driver_sample import GIB

Make = Callable[..., cuptimem.Report]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def call(**changes: Any) -> cuptimem.Report:
        return from_dict(str(tmp_path / "run.cmem"), driver_sample.analysis(tmp_path, **changes))

    return call


def unknown(**changes: Any) -> dict[str, Any]:
    """A ledger of a device of which only the used bytes were told."""
    nothing = {"others": None, "own": None, "total": None, "driver_reserved": None, "context": None, "step": None}
    return driver_sample.ledger(**{**nothing, "context_measured": False, **changes})


# -- ledgers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        driver_sample.ledger(),
        driver_sample.ledger(used=10 * GIB),  # more is accounted for than used
        driver_sample.ledger(others=None),
        driver_sample.ledger(context_measured=False),
        driver_sample.ledger(tensors=0, rounding=0, cached=0, driver=[], pool_slack=0),
        unknown(),
    ],
)
def test_lines_sum_to_what_is_used(make: Make, row: dict[str, Any]) -> None:
    one = make(ledger=[row]).ledger()
    assert sum(line.bytes for line in one.lines) == one.used == row["used"]
    assert one.residual == row["residual"]
    parts = [line.part for line in one.lines]
    assert parts == sorted(parts, key=list(ledger.PARTS).index) and set(parts) <= set(ledger.PARTS)


def test_a_ledger_that_does_not_add_up_is_none(make: Make) -> None:
    with pytest.raises(cuptimem.Error, match="does not add up"):
        make(ledger=[driver_sample.ledger(residual=1)])
    whole = make().ledger()
    with pytest.raises(cuptimem.Error, match=r"ledger of cuda:0 does not add up"):
        replace(whole, lines=whole.lines[:-1])


def test_reports_stay_plain_data(make: Make) -> None:
    report = make()
    assert pickle.loads(pickle.dumps(report)) == report
    with pytest.raises(AttributeError):
        report.ledger().used = 0  # type: ignore[misc]
    with pytest.raises(AttributeError):
        report.driver.mode = ""  # type: ignore[misc]


# -- another moment ------------------------------------------------------------------------------------------------


def test_another_moment_is_read_from_the_file_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    report = make()
    asked: list[Any] = []

    def analyze(path: str, **options: Any) -> cuptimem.Report:
        asked.append((path, options))
        rows = [driver_sample.ledger(), driver_sample.ledger(what="asked", used=50 * GIB)]
        return make(ledger=rows)

    monkeypatch.setattr(report_module, "analyze", analyze)
    assert report.ledger(at=2.5).used == 50 * GIB
    assert report.ledger("cuda", 3).used == 50 * GIB
    same = {"window": 0, "step": None, "code": (), "source": None, "temporary": False}
    assert asked == [
        (report.path, {**same, "ledger_at_ns": 2_500_000_000}),
        (report.path, {**same, "ledger_at_ns": 3_000_000_000}),
    ]
    for moment in (-1.0, 15.1, float("nan")):
        with pytest.raises(cuptimem.Error, match="no moment .* it ends after 15.0 s"):
            report.ledger(at=moment)
    assert len(asked) == 2
    monkeypatch.setattr(report_module, "analyze", lambda path, **options: replace(report, start_realtime_ns=5))
    with pytest.raises(cuptimem.Error, match="another recording by now"):
        report.ledger(at=1.0)
    with pytest.raises(cuptimem.Error, match="temporary file, gone with its profile"):
        replace(report, path=None).ledger(at=1.0)


def test_an_unknown_moment(make: Make) -> None:
    with pytest.raises(cuptimem.Error, match="'peak', 'end', or seconds"):
        make().ledger(at="noon")
    with pytest.raises(cuptimem.Error, match=r"there: oom, peak, end"):
        make().fragmentation(at="noon")


# -- what is missing -----------------------------------------------------------------------------------------------


def test_devices_that_were_never_asked(make: Make) -> None:
    with pytest.raises(cuptimem.Error, match="ended too soon"):
        make(ledger=[]).ledger()


@pytest.mark.parametrize("device", ["cuda:7", "cpu", "tpu", ""])
def test_a_wrong_device(make: Make, device: str) -> None:
    report = make()
    for ask in (report.ledger, report.fragmentation, report.driver.device):
        with pytest.raises(cuptimem.Error, match=rf"device '{device}' .*there: cuda:0"):
            ask(device)


@pytest.mark.parametrize("moment", ["asked", "now", ""])
def test_a_wrong_moment(make: Make, moment: str) -> None:
    with pytest.raises(cuptimem.Error, match="it is 'peak', 'end', or seconds since the start"):
        make().ledger(at=moment)


def test_why_there_is_no_ledger(make: Make) -> None:
    unused = make(ledger=[], devices=[], driver=driver_sample.driver(allocations=0))
    with pytest.raises(cuptimem.Error, match="the program allocated nothing on a CUDA device"):
        unused.ledger()
    with pytest.raises(cuptimem.Error, match="its devices were never asked, for it ended too soon"):
        make(ledger=[]).ledger()


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("_Z5saxpyifPfS_", "saxpy"),
        ("_ZN12_GLOBAL__N_13fooEv", "foo"),
        (
            "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_4funcIfEEjfLi4EEEEEvT1_",
            "reduce_kernel<ReduceOp>",
        ),
        ("_ZN7cutlass7Kernel2I19cutlass_80_gemm_f16EEvNT_6ParamsE", "Kernel2<cutlass_80_gemm_f16>"),
        ("_Z4copyIfiEvPT_", "copy"),
        ("void at::native::copy<int, 3>(float*, int)", "copy"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("copy host to device", "copy host to device"),  # no kernels
        ("set", "memset"),
        ("_ZN99short", "_ZN99short"),  # not what it says it is
        ("_Z", "_Z"),
        ("copy host to device", "copy host to device"),
        ("", ""),
    ],
)
def test_kernels_by_their_own_name(name: str, short: str) -> None:
    assert short_name(name) == short
