"""`cuptimem ledger`, `fragmentation`, `kernels` and the ledger's place in the summary: text, JSON, exit codes."""

import io
import json as standard_json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem.cli import kernels as kernels_verb
from cuptimem.cli import ledger as ledger_verb
from cuptimem.cli import reading
from cuptimem.output.text import blocks, fragmentation_views, terminal, text, views
from cuptimem.output.text.words import size
from cuptimem.report.load import from_dict
from tests.conftest import Result
from tests.tools.cli import driver_sample, sample
from tests.tools.cli.driver_sample import GIB, MIB, MODEL, MULTIPLY

Run = Callable[..., Result]
Make = Callable[..., cuptimem.Report]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files are named with their folder, which no test should have to guess."""
    made = tmp_path / "project"
    made.mkdir()
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def make(folder: Path) -> Make:
    return lambda **changes: from_dict("missing.cmem", driver_sample.analysis(folder, **changes))


def ledger(report: cuptimem.Report, top: int = 20, width: int = 80) -> list[str]:
    return body(text.render(views.ledger(report, [report.ledger()], top), width))


def body(shown: str) -> list[str]:
    """Below the heading, which may be wrapped."""
    return shown.partition("\n\n")[2].splitlines()


def prose(lines: list[str]) -> str:
    """In one line, for sentences that are wrapped."""
    return " ".join(" ".join(lines).split())


# -- the ledger ----------------------------------------------------------------------------------------------------

LEDGER = """\
cuda:0: 96.0 GiB of 141.0 GiB used at its fullest, in step 1, 12.0 s after the
  start
  PyTorch's tensors have 60.0 GiB of it, its allocator holds 82.0 GiB; 14.0 GiB
  lie outside of that.
       used  share  count  what                       line
   60.0 GiB   62 %         tensors
    4.0 KiB    0 %         rounding
   22.0 GiB   23 %         PyTorch's cache
    8.0 GiB    8 %      4  NCCL, virtual memory       project/big.py:8
    1.0 GiB    1 %      1  libmine.so                 project/big.py:10
   32.0 MiB    0 %      2  cuBLAS                     project/big.py:9
    3.0 MiB    0 %      3  (unknown), stream-ordered  (no Python line)
    1.0 MiB    0 %      1  cuBLAS                     (stack lost)
   29.0 MiB    0 %         pool slack
  512.0 MiB    1 %         CUDA context
    2.0 GiB    2 %         other processes
    2.4 GiB    3 %         residual
   96.0 GiB  100 %         in all
  NVML gives 94.0 GiB to this process.
  Driver and firmware keep 700.0 MiB beside all this.
  Residual: in use, not traced to a recorded caller.

Page-locked host memory: 3.0 GiB at the end, 4.0 GiB at most
  at the end  count  what              line               function
     2.0 GiB      7  PyTorch           project/big.py:11  train
     1.0 GiB      1  NCCL, registered  project/big.py:8   train

  1,204 allocations and 1,100 frees at driver level; all 2,304 records of CUPTI
  agree with them."""


def test_ledger(make: Make) -> None:
    assert "\n".join(ledger(make())) == LEDGER


def test_optional_columns_go_before_the_others_are_cut() -> None:
    columns = (
        blocks.Column("bytes", right=True),
        blocks.LINE,
        blocks.FUNCTION,
        blocks.CODE,
    )
    table = blocks.Table(columns, (("1.0 MiB", "project/a_long_name_of_a_file.py:123", "train", "x" * 60),))

    def shown(width: int | None) -> list[str]:
        return [column.name for column in text.fit(table, width).columns]

    # The line is whole, and what is optional has a least width or is not there: 2 + 7 + 2 + 36, 2 + 24, 2 + 8.
    assert shown(None) == shown(120) == shown(83) == ["bytes", "line", "function", "code"]
    assert shown(82) == shown(73) == ["bytes", "line", "code"]
    assert shown(72) == shown(57) == ["bytes", "line", "function"]
    assert shown(56) == shown(30) == ["bytes", "line"]
    for width in (50, 70, 120):
        assert max(len(line) for line in text.render([table], width).splitlines()) <= width


def test_on_a_terminal(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    report = make()
    for width, last in ((72, "project/big.py:8"), (200, "dist.all_reduce(y)")):
        monkeypatch.setenv("COLUMNS", str(width))
        stream = Terminal()
        terminal.show(views.ledger(report, [report.ledger()], 20), stream)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
        row = next(line for line in plain.splitlines() if "NCCL, virtual" in line)
        assert row.rstrip().endswith(last) and len(row) <= width


def test_lines_that_are_not_shown_are_summed(make: Make) -> None:
    lines = ledger(make(), top=1)
    (rest,) = [line for line in lines if "(4 more lines)" in line]
    assert rest.split()[:3] == ["1.0", "GiB", "1"] and rest.split()[4] == "7"
    assert any("(1 more line)" in line for line in lines)  # page-locked


def test_a_device_whose_memory_is_the_hosts(make: Make) -> None:
    row = driver_sample.ledger(host=4 * GIB, page_cache=3 * GIB, driver_reserved=None, own=None)
    one = make(ledger=[row]).ledger()
    assert (one.host, one.page_cache, one.is_host_memory) == (4 * GIB, 3 * GIB, True)
    lines = ledger(make(ledger=[row]))
    assert [line.split()[:2] for line in lines if "the host's memory" in line and "%" in line] == [["4.0", "GiB"]]
    assert any(line.split()[:2] == ["3.0", "GiB"] and line.endswith("page cache") for line in lines)
    assert any(line.endswith("context and earlier") for line in lines)
    assert "This device's memory is the host's" in prose(lines)
    assert "host's" not in prose(ledger(make(ledger=[driver_sample.ledger()])))


def test_what_is_unknown_is_said(make: Make) -> None:
    row = driver_sample.ledger(
        others=None, own=None, context=None, context_measured=False, driver_reserved=None, total=None
    )
    lines = ledger(make(ledger=[row]))
    assert lines[0].startswith("cuda:0: 96.0 GiB used at its fullest")
    assert [line.split() for line in lines if line.lstrip().startswith("not known")] == [
        ["not", "known", "CUDA", "context"],
        ["not", "known", "other", "processes"],
    ]
    said = prose(lines)
    assert "no moment yet at which nothing moved. It is in the residual." in said
    assert "NVML does not report it: it is in the residual." in said
    assert "NVML gave" not in said and "firmware" not in said
    assert "not traced to a recorded caller" not in said  # the context did not, and is in it


def test_others_in_the_context(make: Make) -> None:
    said = prose(ledger(make(ledger=[driver_sample.ledger(others=None, context_measured=False)])))
    assert "it is in the context (what came later in the residual)" in said
    assert "1 % context and earlier" in said and "Other memory from that time stands in it, too." in said


def test_what_speaks_against_it(make: Make) -> None:
    driver = driver_sample.driver(failed_frees=2, unknown_frees=3, replaced=7)
    driver["record_check"] = {"records": 9, "matched": 4, "missing": 1, "differ": 1, "alone": 3, "dropped": 5}
    row = driver_sample.ledger(quiet=False, used=90 * GIB, pool_short=MIB)
    lines = ledger(make(driver=driver, ledger=[row]))
    assert row["residual"] < 0
    marked = [line for line in lines if line.startswith("! ")]
    for what in (
        "while the driver was asked",
        "1.0 MiB less than is alive in them",
        "3.6 GiB more are accounted for",
        "1 event of memory without CUPTI's record",
        "1 record of CUPTI say",
        "3 records of CUPTI are",
        "5 records dropped",
        "2 frees refused",
        "7 allocations at an address that was still taken",
    ):
        assert sum(what in line for line in marked) == 1 or what in prose(lines), what
    assert len(marked) == 9
    assert "3 frees of memory from before the recording." in prose(lines)
    assert "4 of 9 records of CUPTI agree" in prose(lines)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("slots", "CUPTI did not see all of it: Kineto holds it. Without it only calls of the CUDA runtime"),
        ("none", "the driver level was not recorded (Kineto holds it): all that is not PyTorch's is in the residual"),
    ],
)
def test_less_than_callbacks(make: Make, mode: str, said: str) -> None:
    report = make(driver=driver_sample.driver(mode=mode, reason="Kineto holds it"))
    assert said in prose(ledger(report))
    incomplete = "Incomplete: the lines of libraries, driver rounding, page-locked host memory; with expandable"
    assert (incomplete in prose(ledger(report))) == (mode == "slots")
    assert "What to do" not in prose(ledger(report))
    report = make(driver=driver_sample.driver(mode="slots", reason="only root may: error 35 (become root)"))
    said = prose(ledger(report))
    assert "did not see all of it: only root may: error 35. Without" in said and "What to do: become root." in said
    report = make(driver=driver_sample.driver(reason="the records are another tool's"))
    assert "! the records are another tool's" in ledger(report)
    report = make(driver=driver_sample.driver(mode="none", reason=""))
    assert "whether all of the driver level was seen is not known" in prose(ledger(report))


def test_a_clock_that_another_tool_changed(make: Make, folder: Path) -> None:
    meta = sample.analysis(folder)["meta"] | {"driver.time_base_changed": "yes"}
    assert any(line.startswith("! another tool changed CUPTI's clock") for line in ledger(make(meta=meta)))


def test_a_program_without_pytorch(folder: Path) -> None:
    raw = driver_sample.analysis(folder, devices=[], steps=[], fragmentation=[])
    raw["ledger"] = [driver_sample.ledger(tensors=0, rounding=0, cached=0, used=12 * GIB)]
    report = from_dict("missing.cmem", raw)
    said = prose(ledger(report))
    assert "Nothing of it is PyTorch's: tensors 0 B, NCCL 8.0 GiB" in said
    summary = str(report)
    assert (
        "Nothing was allocated by PyTorch" in summary
        and "cuda:0: 12.0 GiB used at its fullest, 12.0 s after the start: tensors 0 B," in summary
    )


# -- the summary ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tensors", [30 * GIB, 60 * GIB])
def test_what_lies_between_two_measurements_is_said(make: Make, tensors: int) -> None:
    """The device is asked five times a second, PyTorch's allocator tells everything."""
    report = make(ledger=[driver_sample.ledger(tensors=tensors, used=96 * GIB - (60 * GIB - tensors))])
    held = report.device("cuda:0").reserved_peak
    one = report.ledger()
    above = (held or 0) - one.tensors - one.rounding - one.cached
    more = f"held up to {size(held or 0)}, {size(above)} more than here"
    said = f"! cuda:0: between two measurements PyTorch's allocator {more}"
    assert (said in prose(ledger(report))) == (said in prose(str(report).splitlines())) == (tensors == 30 * GIB)


def test_many_libraries_are_summed_in_the_headline(make: Make) -> None:
    libraries = [driver_sample.line("device", f"lib{i}.so", 0, (9 - i) * MIB, 1) for i in range(8)]
    said = prose(str(make(ledger=[driver_sample.ledger(driver=libraries)])).splitlines())
    assert "lib4.so 5.0 MiB, 3 other libraries 9.0 MiB," in said and "lib5.so" not in said


def test_a_missing_driver_level_is_one_line(make: Make) -> None:
    for mode, said in (("none", "no driver level: no libcupti"), ("slots", "without CUPTI")):
        report = make(driver=driver_sample.driver(mode=mode, reason="no libcupti"), ledger=[])
        lines = [line for line in str(report).splitlines() if "driver level" in line or "no ledger" in line]
        assert len(lines) == 1 and said in lines[0]
    lines = [line for line in str(make(ledger=[])).splitlines() if "ledger" in line]
    assert lines == ["  no ledger: the devices were never asked, for the recording ended too soon"]


# -- fragmentation -------------------------------------------------------------------------------------------------

FRAGMENTATION = """\
cuda:0 when it refused, 12.5 s after the start: 4.0 GiB of 10.0 GiB reserved are
  in no block
  asked for and refused       2.0 GiB
  in blocks                   6.0 GiB   60 %
  of that rounding            4.0 KiB    0 %
  in no block                 4.0 GiB   40 %
  largest piece of that       1.0 GiB   10 %
  free on the device        512.0 MiB
  largest request to fit      1.0 GiB
  torch.cuda.empty_cache() would return 512.0 MiB, with expandable segments
  3.0 GiB (PYTORCH_ALLOC_CONF=expandable_segments:True).
  Enough was free, 4.5 GiB in all, but 1.0 GiB too little in one piece:
  fragmentation is what failed it.

What keeps segments from going back (a segment counts for each line in it)
     keeps   by own  segments  line              function  code
   4.0 GiB  3.0 MiB         3  project/big.py:7  train     y = model(x)
   2.0 GiB  1.0 MiB         1  project/big.py:9  train     torch.mm(y, y)
  20.0 MiB  1.0 MiB         1  (no Python line)

Segments with the most unused bytes, of 7
        unused        of  in one piece  blocks  lines                function
  1 x  2.0 GiB   2.0 GiB       1.0 GiB       3  project/big.py:7 +1  train
  2 x  1.0 MiB  20.0 MiB       1.0 MiB       0  (no block)"""


def fragmentation(report: cuptimem.Report, top: int = 10) -> list[str]:
    return body(text.render(views.fragmentation(report, [report.fragmentation()], top), 80))


def test_fragmentation(make: Make) -> None:
    assert "\n".join(fragmentation(make())) == FRAGMENTATION
    assert any("2 more lines not shown (-n)" in line for line in fragmentation(make(), top=1))


def of_one_line(folder: Path, segments: int) -> list[str]:
    """Two ways to one line of the user's: both have blocks in the listed segment of 2 GiB."""
    raw = driver_sample.analysis(folder)
    one = driver_sample.fragmentation()
    own = raw["stacks"][MODEL]
    raw["stacks"][MULTIPLY] = [("/lib/python3.11/site-packages/torch/f.py", "f", 3, 3, 0, 9, None, 0), *own]
    one["pins"] = [
        {"stack": MODEL, "bytes": 3 * MIB, "count": 5, "pinned": 2 * GIB, "segments": 1},
        {"stack": MULTIPLY, "bytes": MIB, "count": 1, "pinned": 2 * GIB, "segments": segments},
    ]
    raw["fragmentation"] = [one]
    return fragmentation(from_dict("missing.cmem", raw))


def test_a_line_keeps_at_least_what_is_listed(folder: Path) -> None:
    lines = of_one_line(folder, 2)
    row = next(line for line in lines if "big.py:7" in line).split()
    assert row[:8] == ["≥", "2.0", "GiB", "4.0", "MiB", "≥", "2", "project/big.py:7"]
    assert "≥: at least. Of each segment the 8 stacks" in prose(lines)


def expandable(*ranges: tuple[int, int], total: int = 0) -> dict[str, Any]:
    """A segment whose pieces of 1 MiB are mapped at these, (first, number)."""
    rows = [{"address": a * MIB, "size": n * MIB, "allocated": MIB, "largest_free": 0} for a, n in ranges]
    mapped = sum(n for _, n in ranges)
    return {
        "address": ranges[0][0] * MIB,
        "size": mapped * MIB,
        "allocated": MIB * len(ranges),
        "largest_free": MIB,
        "expandable": True,
        "addresses": 64 * GIB,
        "unmapped": (sum(ranges[-1]) - ranges[0][0] - mapped) * MIB,
        "ranges_total": total or len(ranges),
        "ranges": rows,
        "pins": [{"stack": MODEL, "bytes": MIB, "count": 1, "pinned": 3 * MIB}],
    }


@pytest.mark.parametrize(
    ("torch", "variable"),
    [
        ("2.4.1", "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.11.0+cu130", "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.12.0", "PYTORCH_ALLOC_CONF"),
    ],
)
def test_the_variable_that_this_torch_reads(make: Make, torch: str, variable: str) -> None:
    report = make()
    said = prose(text.render(fragmentation_views.full([report.fragmentation()], 3, torch), 80).splitlines())
    assert f"({variable}=expandable_segments:True)" in said


def test_fragmentation_says_what_failed_it(make: Make) -> None:
    full = driver_sample.fragmentation(asked=5 * GIB)
    assert "4.5 GiB were free in all: with no fragmentation it would have failed, too." in prose(
        fragmentation(make(fragmentation=[full]))
    )
    odd = prose(fragmentation(make(fragmentation=[driver_sample.fragmentation(asked=MIB)])))
    assert "why it failed is not known" in odd and "fragmentation is what failed" not in odd
    unknown = driver_sample.fragmentation(free_on_device=None, largest_request=None)
    said = prose(fragmentation(make(fragmentation=[unknown])))
    assert "free on the device not known" in said and "were free in all" not in said and "Enough was free" not in said


# -- kernels -------------------------------------------------------------------------------------------------------

KERNELS = """\
1,500 launches, 1,499 seen running, 40 ms in all
! 1 launch has no record of work: CUPTI lost it, or it only went into a CUDA
  graph
   time  share   runs     mean  kernel
  30 ms   75 %  1,000  30.0 µs  vectorized_elementwise_kernel<FillFunctor>
  10 ms   25 %    499  20.0 µs  ampere_sgemm_128x64_tn

Allocated long before their first kernel
    bytes  blocks  waited  line              function  kernel
  1.0 GiB       1   40 ms  project/big.py:7  train     vectorized_elementwise_kernel<FillFunctor>

Freed long after their last kernel
    bytes  blocks  lingered  line              function  kernel
  1.0 MiB      12     2.5 s  project/big.py:8  train     (not known)

  Long is 1.0 ms or more here. Any work on the device counts, for which blocks
  a kernel uses is not known: the first launch after the allocation, the last
  before the free.

Freed, and held by record_stream
    bytes  blocks  waited for stream  line              function  code
  2.0 MiB       3  0x5581             project/big.py:9  train     torch.mm(y, y)"""


def kernels(report: cuptimem.Report, top: int = 10) -> list[str]:
    assert report.kernels is not None
    return text.render(views.kernels(report, report.kernels, top)).splitlines()[2:]


def test_kernels(make: Make) -> None:
    assert "\n".join(kernels(make())) == KERNELS
    assert any("1 more kernel not shown (-n)" in line for line in kernels(make(), top=1))
    said = prose(kernels(make(kernels=driver_sample.kernels(unrecorded=148, unlaunched=3))))
    assert "148 launches before CUPTI's records began, or with compacted ones: what became" in said
    assert "! 3 of those that ran belong to no launch that was seen" in said
    assert "! 4 blocks not judged: too many waited" in prose(kernels(make(kernels=driver_sample.kernels(unjudged=4))))


def test_kernels_that_are_not_listed_count(make: Make) -> None:
    lines = kernels(make(kernels=driver_sample.kernels(ns=80_000_000, names_total=61)))
    assert lines[0].endswith("80 ms in all") and lines[4].split()[:4] == ["30", "ms", "38", "%"]
    assert lines[6] == "  59 more kernels not shown (-n)"


def test_a_graph_is_one_launch_of_many(make: Make) -> None:
    said = "  A CUDA graph is one launch of many kernels."
    assert said in kernels(make(kernels=driver_sample.kernels(ran=1501)))
    assert said not in kernels(make())


def test_kernels_and_nothing_that_waits(make: Make) -> None:
    lines = kernels(make(kernels=driver_sample.kernels(early=[], late=[], deferred_frees=[], dropped=0)))
    assert lines[-1] == "  No block was there 1.0 ms before any kernel, or 1.0 ms after the last."
    assert not any(line.startswith("!") for line in lines)


# -- the verbs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, make: Make) -> Callable[..., list[Any]]:
    """Verbs then read a report made by hand; gives what they asked the analysis for."""

    def call(**changes: Any) -> list[Any]:
        asked: list[Any] = []

        def analyze(path: str, **options: Any) -> cuptimem.Report:
            asked.append(options["ledger_at_ns"])
            return make(**changes)

        monkeypatch.setattr(reading, "analyze", analyze)
        return asked

    return call


def test_ledger_verb(read: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    rows = [driver_sample.ledger(device=f"cuda:{i}", what=what) for i in (0, 1) for what in ("peak", "end", "asked")]
    asked = read(ledger=rows)
    assert ledger_verb.main(["run.cmem"]) == 0
    shown = capsys.readouterr().out
    assert [line[:6] for line in shown.splitlines() if line.startswith("cuda:")] == ["cuda:0", "cuda:1"]
    assert ledger_verb.main(["run.cmem", "--device", "cuda:1", "--at", "end"]) == 0
    (head,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("cuda:")]
    assert head.startswith("cuda:1: 96.0 GiB of 141.0 GiB used at the end")
    assert ledger_verb.main(["run.cmem", "--at", "1.5", "--json"]) == 0
    document = standard_json.loads(capsys.readouterr().out)
    assert [one["what"] for one in document["ledgers"]] == ["asked", "asked"]
    assert asked == [None, None, 1_500_000_000]
    with pytest.raises(cuptimem.Error, match="no moment 99 s"):
        ledger_verb.main(["run.cmem", "--at", "99"])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("moment", ["noon", "-1", "inf", "nan", ""])
def test_wrong_moments_are_wrong_usage(moment: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        ledger_verb.main(["run.cmem", f"--at={moment}"])
    assert ended.value.code == 2
    assert "peak, end, or seconds" in capsys.readouterr().err


def test_kernels_verb(read: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    read()
    assert kernels_verb.main(["run.cmem"]) == 0
    assert "1,500 launches" in capsys.readouterr().out
    assert kernels_verb.main(["run.cmem", "--json"]) == 0
    document = standard_json.loads(capsys.readouterr().out)
    assert document["kernels"][0]["name"] == driver_sample.STALL  # whole
    assert document["late"][0]["kernel"] is None and document["deferred_frees"][0]["stream"] == 0x5581
    read(kernels=None)
    with pytest.raises(cuptimem.Error, match="record again with cuptimem run --kernels"):
        kernels_verb.main(["run.cmem"])
    read(kernels=None, meta={"driver.kernels": "yes"})
    with pytest.raises(cuptimem.Error, match="none was launched"):
        kernels_verb.main(["run.cmem"])
    read(kernels=None, driver=driver_sample.driver(mode="none", reason="no libcupti"))
    with pytest.raises(cuptimem.Error, match="no kernels in this recording, .* driver level: no libcupti"):
        kernels_verb.main(["run.cmem"])
    read(kernels=None, driver=driver_sample.driver(mode="slots", reason="only root may"))
    with pytest.raises(cuptimem.Error, match="no kernels in this recording: CUPTI did not see it: only root may"):
        kernels_verb.main(["run.cmem"])


@pytest.mark.parametrize("verb", ["ledger", "fragmentation", "kernels"])
def test_what_cannot_be_answered_exits_1(call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.cmem"
    write_synthetic(str(path), 2_000, 1)
    for more in ([], ["--json"]):
        done = call(verb, str(path), *more)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("cuptimem: ") and done.err.count("\n") == 1
    # Without FILE it is the same trace, the newest here.
    for arguments, code in (([verb], 1), ([verb, str(path), "--frob"], 2), ([verb, "missing.cmem"], 1)):
        done = call(*arguments)
        assert (done.code, done.out) == (code, "") and "Traceback" not in done.err
