"""The driver level as data: ledgers that add up, what is unknown, and which error says what is missing."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem.report import ledger
from cuptimem.report import load as report_module
from cuptimem.report.kernels import short_name
from cuptimem.report.libraries import library_name
from cuptimem.report.load import from_dict
from tests.tools.cli import driver_sample, sample
from tests.tools.cli.driver_sample import GIB, MIB

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


def test_fields(make: Make) -> None:
    one = make().ledger()
    assert (one.device, one.what, one.step, one.quiet, one.time_ns) == ("cuda:0", "peak", 1, True, 12_000_000_000)
    assert (one.tensors + one.rounding, one.cached, one.context) == (60 * GIB, 22 * GIB, 512 * MIB)
    assert (one.total, one.own, one.others, one.driver_reserved) == (141 * GIB, 94 * GIB, 2 * GIB, 700 * MIB)
    assert one.libraries == {"NCCL": 8 * GIB, "libmine.so": GIB, "cuBLAS": 33 * MIB, "(unknown)": 3 * MIB}
    assert sum(one.libraries.values()) == one.of("driver")
    nccl, mine, cublas, nobody, lost = one.driver
    assert (nccl.name, nccl.library, nccl.kind, nccl.count) == ("NCCL", "libnccl.so.2", "physical", 4)
    assert nccl.frame is not None and nccl.frame.source == "dist.all_reduce(y)"
    assert mine.frame is not None and (mine.frame.line, mine.frame.function) == (10, "train")
    assert cublas.stack is not None and [frame.line for frame in cublas.stack] == [9, 20]
    assert (nobody.stack, nobody.stack_lost, lost.stack, lost.stack_lost) == ((), False, (), True)


def test_what_is_unknown_is_none_and_has_no_line(make: Make) -> None:
    one = make(ledger=[unknown()]).ledger()
    unknowns = (one.total, one.own, one.others, one.driver_reserved, one.context, one.step)
    assert unknowns == (None,) * 6
    assert not {"context", "others"} & {line.part for line in one.lines}


def test_a_context_that_was_there_before_says_so(make: Make) -> None:
    names = [
        next(line.name for line in make(ledger=[row]).ledger().lines if line.part == "context")
        for row in (driver_sample.ledger(), driver_sample.ledger(context_measured=False))
    ]
    assert names == ["CUDA context", "context and earlier"]


def test_the_fullest_device_comes_first(make: Make) -> None:
    small = driver_sample.ledger(device="cuda:0", used=90 * GIB)
    full = driver_sample.ledger(device="cuda:1", used=99 * GIB)
    ends = [driver_sample.ledger(device=f"cuda:{i}", what="end", used=80 * GIB) for i in (0, 1)]
    report = make(ledger=[*ends, small, full])
    assert [(one.device, one.what) for one in report.ledgers] == [
        ("cuda:1", "peak"),
        ("cuda:1", "end"),
        ("cuda:0", "peak"),
        ("cuda:0", "end"),
    ]
    assert report.ledger().device == "cuda:1"
    assert report.ledger("cuda") == report.ledger("cuda:0") and report.ledger("cuda:0").used == 90 * GIB
    assert report.ledger("cuda:0", "end").used == 80 * GIB


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


def test_no_driver_level(make: Make, tmp_path: Path) -> None:
    off = driver_sample.driver(mode="none", reason="libcupti.so was not found")
    report = make(driver=off, ledger=[], fragmentation=[])
    assert not report.driver.recorded
    with pytest.raises(cuptimem.Error, match=r"no ledger .*: libcupti.so was not found$"):
        report.ledger()
    with pytest.raises(cuptimem.Error, match="kept no segments of a device"):
        report.fragmentation()


def test_no_device(tmp_path: Path) -> None:
    """A program on the CPU is no failure of ours: the error says so, and nothing of libraries."""
    raw = sample.analysis(tmp_path) | {"driver": driver_sample.driver(mode="none", reason="no CUDA in this process")}
    with pytest.raises(cuptimem.Error, match="allocated nothing on a CUDA device$"):
        from_dict("run.cmem", raw).ledger()


def test_a_recording_from_before_the_driver_level(tmp_path: Path) -> None:
    old = driver_sample.driver(mode="none", reason="", allocations=0, frees=0)
    raw = driver_sample.analysis(tmp_path, driver=old, ledger=[], kernels=None)
    for report in (from_dict("run.cmem", raw), from_dict("run.cmem", sample.analysis(tmp_path))):
        assert (report.driver.mode, report.ledgers, report.kernels) == ("none", (), None)
        assert "had no driver level" in report.driver.reason
    with pytest.raises(cuptimem.Error, match="had no driver level"):
        from_dict("run.cmem", raw).ledger()


def test_a_killed_program_may_not_have_said_how_it_recorded(make: Make) -> None:
    report = make(driver=driver_sample.driver(mode="none", reason=""))
    assert (report.driver.mode, report.driver.recorded) == ("unknown", True)
    assert report.ledger().used == 96 * GIB


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


def test_a_trace_without_driver_events_has_none(tmp_path: Path) -> None:
    path = tmp_path / "run.cmem"
    write_synthetic(str(path), 2_000, 1)
    report = cuptimem.open(path)
    assert not report.driver.recorded and report.ledgers == () and report.kernels is None
    with pytest.raises(cuptimem.Error, match="no ledger in this recording"):
        report.ledger()


# -- the rest of the driver level ----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["missing", "differ", "alone"])
def test_a_witness_that_disagrees(make: Make, key: str) -> None:
    row = driver_sample.driver()
    row["record_check"][key] = 1
    assert not make(driver=row).driver.record_check.agrees


def test_device_timeline(make: Make) -> None:
    (line,) = make().device_timelines
    assert make(device_timeline=[{"device": "cuda:?", "points": []}]).device_timelines[0].device == "cuda:?"
    assert line.device == "cuda:0"
    assert (line.points[0].used, line.points[0].driver, line.points[1].used) == (None, 0, 96 * GIB)


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("libcublas.so.13", "cuBLAS"),
        ("/usr/lib/libcublasLt.so.13", "cuBLASLt"),
        ("libcudnn_ops.so.9", "cuDNN"),
        ("libnccl.so.2", "NCCL"),
        ("libc10_cuda.so", "PyTorch"),
        ("libtorch_cuda_linalg.so", "PyTorch"),
        ("libffi-1234abcd.so.8.1.2", "ctypes"),
        ("libpython3.11.so.1.0", "Python"),
        ("python3.11", "Python"),
        ("libnvinfer_plugin.so.10", "TensorRT"),
        ("torch_extension.so", "torch_extension.so"),  # a user's own
        ("cuda_utils.so", "cuda_utils.so"),
        ("mine.cpython-311-x86_64-linux-gnu.so", "mine.cpython-311-x86_64-linux-gnu.so"),
        ("", ""),
    ],
)
def test_libraries_by_the_names_people_know(file: str, name: str) -> None:
    assert library_name(file) == name


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
