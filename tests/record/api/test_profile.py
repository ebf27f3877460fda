"""cuptimem.profile as people use it: blocks, decorators, nesting, any order of closing, threads, schedules."""

import asyncio
import gc
import json
import os
import pickle
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem import _core
from cuptimem.errors import Error
from cuptimem.record import recorder

torch = pytest.importorskip("torch", reason="the torch-free run leaves these out")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("only_new_objects")]

KIB = 1024


def make(kib: int) -> Any:
    return torch.empty(kib * KIB, dtype=torch.uint8)


def bytes_from(report: cuptimem.Report, function: str = "make") -> int:
    """Bytes at the CPU's peak that were made in a function of this file."""
    return sum(
        c.bytes for c in report.device("cpu").peak.contributors if c.frame is not None and c.frame.function == function
    )


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    gc.collect()
    yield
    assert not recorder.active()


def test_block_with_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.cmem"
    with cuptimem.profile(path) as prof:
        kept = make(64)
    assert prof.path == str(path)
    report = prof.report
    assert report is prof.report
    assert report.complete and report.state == "complete"
    assert bytes_from(report) == 64 * KIB == kept.nbytes
    assert bytes_from(cuptimem.open(path)) == 64 * KIB
    frame = report.peak.contributors[0].frame
    assert frame is not None
    assert (frame.file, frame.function) == (__file__, "make")
    assert frame.source == "return torch.empty(kib * KIB, dtype=torch.uint8)"
    assert report.environment["torch"] == torch.__version__
    assert report.environment["pid"] == str(os.getpid())


def test_temporary_file_goes_with_the_profile() -> None:
    with cuptimem.profile() as prof:
        make(1)
        inside = recorder._capture.file.path  # type: ignore[union-attr]
    assert prof.path is None
    assert os.path.exists(inside)
    report = prof.report
    assert report.path is None
    gc.disable()  # as in many training loops
    try:
        del prof
        assert not os.path.exists(inside)
    finally:
        gc.enable()
    assert bytes_from(report) == KIB  # the report needs no file
    with pytest.raises(cuptimem.Error, match="gone with its profile"):
        report.contents("end")


def test_temporary_file_is_read_again_while_the_profile_is_there() -> None:
    with cuptimem.profile() as outer:
        made = [make(3)]
        with cuptimem.profile() as prof:
            made += [make(1), make(2)]
        make(4)
        (chart,) = prof.report.charts()
    for report, size in ((prof.report, 3 * KIB), (outer.report, 6 * KIB)):
        assert report.contents("kept").bytes == size == report.devices[0].kept
        (chart,) = report.charts()
        assert chart.intervals.high[-1] >= size and sum(chart.intervals.allocated) == report.devices[0].allocated
    assert pickle.loads(pickle.dumps(prof.report)) == prof.report
    assert pickle.loads(pickle.dumps(prof.report)).recorded is None


def test_export_of_a_temporary_file(tmp_path: Path) -> None:
    with cuptimem.profile() as outer:
        made = [make(3)]
        with cuptimem.profile() as prof:
            made += [make(1), make(2)]
        make(4)
    for report, name in ((prof.report, "inner.jsonl"), (outer.report, "outer.jsonl")):
        written = report.export("json", tmp_path / name)
        rows = [json.loads(line) for line in Path(written.path).read_text().splitlines()]
        allocated = sum(row["bytes"] for row in rows if row["kind"] == "allocation" and row["when"] != "before start")
        assert allocated == report.devices[0].allocated
        with pytest.raises(Error, match="name the file"):
            report.export("json")
    with pytest.raises(Error, match="gone with its profile"):
        pickle.loads(pickle.dumps(prof.report)).export("json", tmp_path / "c.jsonl")


def test_snapshot_inside_then_final_after() -> None:
    with cuptimem.profile() as prof:
        first = make(8)
        snapshot = prof.report
        assert bytes_from(snapshot) == 8 * KIB
        assert not snapshot.complete and snapshot.state == "recording"
        second = make(16)
        assert bytes_from(prof.report) == 24 * KIB
    assert bytes_from(snapshot) == 8 * KIB
    assert bytes_from(prof.report) == 24 * KIB == first.nbytes + second.nbytes


def test_exceptions_pass_unchanged_and_the_trace_is_whole(tmp_path: Path) -> None:
    error = ValueError("mine")
    prof = cuptimem.profile(tmp_path / "run.cmem")
    with pytest.raises(ValueError) as caught, prof:
        make(4)
        raise error
    assert caught.value is error
    assert error.__cause__ is None and error.__context__ is None
    assert prof.report.complete
    assert bytes_from(prof.report) == 4 * KIB


def test_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.cmem"
    path.write_text("precious")
    with pytest.raises(cuptimem.Error, match="exists"), cuptimem.profile(path):
        pass
    assert path.read_text() == "precious"
    assert not recorder.active()
    with cuptimem.profile(path, overwrite=True) as prof:
        make(1)
    assert prof.report.complete


@pytest.mark.parametrize("where", ["missing/run.cmem", "."])
def test_impossible_files_are_refused_at_once(tmp_path: Path, where: str) -> None:
    with pytest.raises(cuptimem.Error) as caught, cuptimem.profile(tmp_path / where):
        pass
    assert "\n" not in str(caught.value)


def test_entering_again_makes_a_new_report_and_file(tmp_path: Path) -> None:
    prof = cuptimem.profile(tmp_path / "run.cmem")
    sizes = []
    for kib in (1, 2, 3):
        with prof:
            make(kib)
        sizes.append((bytes_from(prof.report), os.path.basename(prof.path or "")))
    assert sizes == [(1 * KIB, "run.cmem"), (2 * KIB, "run-2.cmem"), (3 * KIB, "run-3.cmem")]
    assert [bytes_from(cuptimem.open(tmp_path / name)) for _, name in sizes] == [size for size, _ in sizes]


def test_nested_windows_have_their_own_report_and_file(tmp_path: Path) -> None:
    with cuptimem.profile(tmp_path / "outer.cmem") as outer:
        before = make(32)
        with cuptimem.profile(tmp_path / "inner.cmem") as inner:
            within = make(4)
            del within
        with cuptimem.profile() as unnamed:
            again = make(2)
        after = make(1)
    assert bytes_from(outer.report) == (32 + 4) * KIB
    for report in (inner.report, cuptimem.open(tmp_path / "inner.cmem")):
        # What the outer window made is alive in the inner one, as what was there before it.
        assert report.device("cpu").start == 32 * KIB
        assert report.device("cpu").peak.bytes == 36 * KIB
        assert report.device("cpu").allocated == 4 * KIB
        assert report.device("cpu").end == 32 * KIB
    assert unnamed.report.device("cpu").allocated == 2 * KIB
    assert cuptimem.open(tmp_path / "outer.cmem").complete
    assert cuptimem.open(tmp_path / "inner.cmem").complete
    assert before.nbytes + again.nbytes + after.nbytes == 35 * KIB


def test_a_window_whose_block_has_ended_is_complete() -> None:
    """While the capture that it is a part of goes on; its times count from its own start."""
    with cuptimem.profile() as outer:
        began = time.time_ns()
        while time.time_ns() - began < 200_000_000:
            make(64)
        with cuptimem.profile() as inner:
            kept = make(64)
            assert inner.report.state == "recording"
        report = inner.report
        assert (report.state, report.complete, "still recording" in str(report)) == ("complete", True, False)
        assert report.peak.time_ns <= report.duration_ns
        assert outer.report.state == "recording" and "still recording" in str(outer.report)
    assert kept.nbytes == 64 * KIB and outer.report.complete


def test_out_of_memory_on_the_cpu_says_what_was_alive() -> None:
    with cuptimem.profile() as prof:
        kept = make(40 * KIB)
        with pytest.raises(RuntimeError):
            make(1 << 40)
    (oom,) = prof.report.ooms
    assert (oom.requested, oom.allocated) == (1 << 50, 40 * KIB * KIB) and kept.nbytes == oom.allocated
    assert sum(c.bytes for c in oom.contributors) == oom.allocated and not oom.escaped
    (line,) = [line for line in str(prof.report).splitlines() if "refused" in line]
    assert line.startswith("! 1 request was refused and caught: 1.0 PiB asked at ")
    assert line.endswith(" with 40.0 MiB in use on cpu")


def test_windows_close_in_any_order(tmp_path: Path) -> None:
    first, second, third = (cuptimem.profile(tmp_path / f"{name}.cmem") for name in "abc")
    first.start()
    a = make(1)
    second.start()
    b = make(2)
    third.start()
    c = make(4)
    first.stop()
    d = make(8)
    third.stop()
    e = make(16)
    second.stop()
    expected = {"a": 1 + 2 + 4, "b": 2 + 4 + 8 + 16, "c": 4 + 8}
    for prof, name in ((first, "a"), (second, "b"), (third, "c")):
        for report in (prof.report, cuptimem.open(tmp_path / f"{name}.cmem")):
            assert report.device("cpu").allocated == expected[name] * KIB, name
            assert report.complete
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".cuptimem-aside-")) == [
        "a.cmem",
        "b.cmem",
        "c.cmem",
    ]
    del first, second, third, prof
    gc.collect()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.cmem", "b.cmem", "c.cmem"]
    assert sum(t.nbytes for t in (a, b, c, d, e)) == 31 * KIB


def test_unnamed_first_window_closes_first(tmp_path: Path) -> None:
    first, second = cuptimem.profile(), cuptimem.profile(tmp_path / "b.cmem")
    first.start()
    second.start()
    make(2)
    first.stop()
    make(4)
    second.stop()
    assert first.report.device("cpu").allocated == 2 * KIB
    assert second.report.device("cpu").allocated == 6 * KIB
    assert cuptimem.open(tmp_path / "b.cmem").device("cpu").allocated == 6 * KIB


def test_threads_share_the_capture() -> None:
    """Windows of several threads; each sees what all threads allocate while it is open."""
    ready, go = threading.Barrier(3), threading.Barrier(3)
    reports: dict[int, cuptimem.Report] = {}

    def work(kib: int) -> None:
        with cuptimem.profile() as prof:
            ready.wait()
            block = make(kib)
            go.wait()
            del block
        reports[kib] = prof.report

    threads = [threading.Thread(target=work, args=(kib,)) for kib in (1, 2)]
    with cuptimem.profile() as outer:
        for thread in threads:
            thread.start()
        ready.wait()
        go.wait()
        for thread in threads:
            thread.join()
    assert outer.report.device("cpu").allocated == 3 * KIB
    assert {kib: report.device("cpu").allocated for kib, report in reports.items()} == {1: 3 * KIB, 2: 3 * KIB}


def test_function_decorator(tmp_path: Path) -> None:
    prof = cuptimem.profile(tmp_path / "run.cmem")

    @prof
    def train(kib: int, *, times: int = 1) -> int:
        """Trains."""
        return sum(make(kib).nbytes for _ in range(times))

    assert train(2, times=3) == 6 * KIB
    assert (train.__name__, train.__doc__) == ("train", "Trains.")
    assert prof.report.device("cpu").allocated == 6 * KIB
    train(1)
    assert prof.report.device("cpu").allocated == KIB
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-2.cmem", "run.cmem"]


def test_bare_decorator_and_recursion() -> None:
    @cuptimem.profile
    def down(depth: int) -> int:
        block = make(1)
        return block.nbytes + (down(depth - 1) if depth else 0)

    assert down(3) == 4 * KIB


def test_our_frames_never_show() -> None:
    prof = cuptimem.profile()

    @prof
    def train() -> Any:
        return make(1)

    block = train()
    files = {frame.file for c in prof.report.peak.contributors for frame in c.stack}
    package = os.path.dirname(cuptimem.__file__)
    assert block.nbytes == KIB
    assert __file__ in files
    assert not [file for file in files if file.startswith(package + os.sep)]


def test_generator_decorator() -> None:
    prof = cuptimem.profile()

    @prof
    def batches(count: int) -> Iterator[Any]:
        received = None
        for _ in range(count):
            received = yield make(received or 1)
        return "done"

    generator = batches(2)
    assert not recorder.active()  # a generator that nobody has asked for a value has not begun
    assert next(generator).nbytes == KIB
    assert recorder.active()
    assert generator.send(5).nbytes == 5 * KIB  # type: ignore[attr-defined]
    with pytest.raises(StopIteration) as end:
        next(generator)
    assert end.value.value == "done"
    assert prof.report.device("cpu").allocated == 6 * KIB
    abandoned = batches(9)
    next(abandoned)
    abandoned.close()  # type: ignore[attr-defined]
    assert prof.report.device("cpu").allocated == KIB


def test_coroutine_and_async_generator_decorators() -> None:
    prof, stream = cuptimem.profile(), cuptimem.profile()

    @prof
    async def train(kib: int) -> int:
        await asyncio.sleep(0)
        return int(make(kib).nbytes)

    @stream
    async def batches() -> AsyncIterator[Any]:
        try:
            kib = yield make(1)
            yield make(kib)
        except KeyError:
            yield make(7)

    async def main() -> None:
        assert await asyncio.gather(train(1), train(2)) == [KIB, 2 * KIB]
        generator = batches()
        assert (await anext(generator)).nbytes == KIB
        assert (await generator.asend(3)).nbytes == 3 * KIB  # type: ignore[attr-defined]
        assert (await generator.athrow(KeyError())).nbytes == 7 * KIB  # type: ignore[attr-defined]
        with pytest.raises(StopAsyncIteration):
            await anext(generator)
        assert stream.report.device("cpu").allocated == 11 * KIB
        assert [block.nbytes async for block in _with(batches(), 1)] == [KIB]

    asyncio.run(main())
    assert asyncio.iscoroutinefunction(train)


async def _with(generator: AsyncIterator[Any], limit: int) -> AsyncIterator[Any]:
    seen = 0
    async for block in generator:
        yield block
        seen += 1
        if seen == limit:
            await generator.aclose()  # type: ignore[attr-defined]
            return


def test_classes_are_not_decorated() -> None:
    with pytest.raises(TypeError, match="functions"):
        cuptimem.profile()(int)


def test_steps_by_hand() -> None:
    with cuptimem.profile() as prof:
        for kib in (1, 3, 2):
            block = make(kib)
            del block
            prof.step()
    steps = prof.report.steps
    assert [(s.index, s.device, s.peak, s.allocated, s.freed, s.end) for s in steps] == [
        (0, "cpu", 1 * KIB, 1 * KIB, 1 * KIB, 0),
        (1, "cpu", 3 * KIB, 3 * KIB, 3 * KIB, 0),
        (2, "cpu", 2 * KIB, 2 * KIB, 2 * KIB, 0),
    ]
    assert prof.report.clock.kind == "step"
    assert prof.report.peak.step == 1
    assert prof.report.step_peak(2).bytes == 2 * KIB
    assert steps.to_dicts()[1]["peak"] == 3 * KIB
    with pytest.raises(cuptimem.Error, match="no step 3"):
        prof.report.step_peak(3)


def test_misuse_is_told() -> None:
    prof = cuptimem.profile()
    with pytest.raises(RuntimeError, match="block"):
        prof.step()
    with pytest.raises(RuntimeError, match="not open"):
        prof.stop()
    with pytest.raises(cuptimem.Error, match="not recorded yet"):
        _ = prof.report


def test_schedule_records_only_its_cycles(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []

    def ready(prof: cuptimem.Profile) -> None:
        report = prof.report
        assert report.complete
        seen.append((len(report.steps), report.device("cpu").allocated, os.path.basename(prof.path or "")))

    with cuptimem.profile(
        tmp_path / "run.cmem",
        schedule=cuptimem.schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=ready,
    ) as prof:
        recorded = []
        for number in range(12):
            recorded.append(recorder.active())
            make(1 << number)
            prof.step()
    #                    skip   wait   warm  active      wait   warm  active      over
    assert recorded == [False, False, True, True, True, False, True, True, True, False, False, False]
    assert seen == [(2, (8 + 16) * KIB, "run.cmem"), (2, (128 + 256) * KIB, "run-2.cmem")]


def test_schedules_of_torch_work_and_agree() -> None:
    import torch.profiler as theirs

    for numbers in ((0, 0, 1, 0, 0), (1, 1, 3, 2, 2), (2, 0, 1, 1, 5), (0, 2, 2, 0, 1)):
        wait, warmup, active, repeat, skip = numbers
        ours = cuptimem.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip)
        other = theirs.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip)
        assert [ours(i).name for i in range(30)] == [other(i).name for i in range(30)]
    cycles = []
    with cuptimem.profile(
        schedule=theirs.schedule(wait=1, warmup=0, active=1, repeat=1), on_trace_ready=lambda p: cycles.append(p.report)
    ) as prof:
        for _ in range(4):
            make(1)
            prof.step()
    assert [report.device("cpu").allocated for report in cycles] == [KIB]


def test_schedule_cut_short_by_the_block(tmp_path: Path) -> None:
    """As torch.profiler: what was recorded of a cycle when the block ends is handed over, a warm-up is not."""
    calls: list[int] = []
    for steps, handed_over in ((2, 1), (1, 1), (0, 0)):
        calls.clear()
        with cuptimem.profile(
            schedule=cuptimem.schedule(wait=0, warmup=1, active=3), on_trace_ready=lambda p: calls.append(1)
        ) as prof:
            for _ in range(steps):
                make(1)
                prof.step()
        assert len(calls) == handed_over


def test_bad_schedules() -> None:
    with pytest.raises(ValueError, match="active"):
        cuptimem.schedule(wait=0, warmup=0, active=0)
    with pytest.raises(TypeError, match="ProfilerAction"), cuptimem.profile(schedule=lambda step: "record"):
        pass
    for wrong in (5, "each", (1, 1, 3)):
        with pytest.raises(TypeError, match="schedule is a function, such as"):
            cuptimem.profile(schedule=wrong)
        with pytest.raises(TypeError, match="on_trace_ready is a function, such as"):
            cuptimem.profile(on_trace_ready=wrong)


def test_on_trace_ready_alone_is_one_cycle() -> None:
    calls = []
    with cuptimem.profile(on_trace_ready=lambda prof: calls.append(prof.report.device("cpu").allocated)) as prof:
        make(1)
        prof.step()
        make(2)
    assert calls == [3 * KIB]


def test_before_start_and_frees() -> None:
    """What lived before the block counts, and its free is no error."""
    old = make(10)
    with cuptimem.profile() as prof:
        new = make(1)
        del old
        gc.collect()
    device = prof.report.device("cpu")
    assert device.start >= 10 * KIB
    assert device.peak.bytes - device.start == KIB
    assert device.end - device.start == KIB - 10 * KIB
    assert prof.report.lost == cuptimem.Lost(seeds_skipped=prof.report.lost.seeds_skipped)
    assert new.nbytes == KIB


def test_forked_child_leaves_the_parents_profile_alone(tmp_path: Path) -> None:
    path, other = tmp_path / "run.cmem", tmp_path / "child.cmem"
    with cuptimem.profile(path) as prof:
        make(1)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                make(64)
                prof.stop()
                try:
                    _ = prof.report
                except cuptimem.Error:
                    with cuptimem.profile(other) as own:
                        make(3)
                    code = 0 if own.report.device("cpu").allocated == 3 * KIB else 3
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        make(2)
    assert prof.report.complete
    assert prof.report.device("cpu").allocated == 3 * KIB
    assert cuptimem.open(other).device("cpu").allocated == 3 * KIB


def test_reports_are_plain_data() -> None:
    with cuptimem.profile() as prof:
        model = torch.nn.Linear(32, 32)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.ones(4, 32)).sum().backward()
            optimizer.step()
    report = prof.report
    text = str(report)
    copy = pickle.loads(pickle.dumps(report))
    assert copy == report
    assert str(copy) == text
    with pytest.raises(AttributeError):
        report.events = 0  # type: ignore[misc]
    assert report.backward.unresolved == 0
    assert report.clock.kind == "optimizer"
    assert len({step.index for step in report.steps}) == 3


def test_to_pandas_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(cuptimem.Error, match="pandas is not installed"):
        cuptimem.Steps().to_pandas()


def test_nothing_recorded() -> None:
    with cuptimem.profile() as prof:
        pass
    assert prof.report.devices == () or prof.report.device("cpu").allocations == 0
    assert "cuptimem" not in str(prof.report).splitlines()[0]
    assert list(prof.report.steps) == []


def test_recording_that_reaches_its_bound(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing can be compacted: it ends with one warning; the program, the file and the report live on, and say so."""
    (tmp_path / "run.cmem.tail").write_text("somebody's")
    with cuptimem.profile(tmp_path / "run.cmem", max_size=20_000) as prof:
        for i in range(20_000):
            make(1 + i % 7)
        with cuptimem.profile(tmp_path / "inner.cmem") as inner:
            make(1)
    said = capfd.readouterr().err.splitlines()
    assert len([line for line in said if "bound" in line]) == 1
    assert all(line.startswith("cuptimem: ") for line in said)
    report = prof.report
    assert not report.complete and "bound" in report.reason
    assert (tmp_path / "run.cmem").stat().st_size <= 60_000
    assert "! recording ended" in str(report)
    with pytest.raises(cuptimem.Error):
        _ = inner.report
    with cuptimem.profile() as again:
        make(3)
    assert again.report.complete and again.report.device("cpu").allocated == 3 * KIB


def test_interrupt_while_the_last_window_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(core: object) -> None:
        remove(core)
        raise KeyboardInterrupt

    remove = recorder.instruments.remove
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(recorder.instruments, "remove", interrupted)
        with cuptimem.profile(tmp_path / "first.cmem"):
            make(64)
    assert cuptimem.open(tmp_path / "first.cmem").complete
    with cuptimem.profile(tmp_path / "second.cmem"):
        make(64)
    assert cuptimem.open(tmp_path / "second.cmem").complete


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_interrupt_before_anybody_has_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """It is ended, if need be by the next one: interrupted itself, it could not be."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(recorder.Window, "__init__", interrupted)
        if again:
            patch.setattr(recorder, "_stop", interrupted)
        with cuptimem.profile(tmp_path / "first.cmem"):
            raise AssertionError("it did not start")
    assert _core.capture_active() is again
    with cuptimem.profile(tmp_path / "second.cmem") as prof:
        make(64)
    assert prof.report.complete and not (tmp_path / "first.cmem").exists()


def test_working_directory_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with cuptimem.profile(tmp_path / "run.cmem") as named, cuptimem.profile():
        make(64)
    assert named.report.complete and named.report.environment["directory"] == ""


def test_steps_belong_inside_the_block() -> None:
    """A schedule that is told of a step after its block would open a window that nobody closes."""
    with cuptimem.profile(schedule=cuptimem.schedule(wait=0, warmup=0, active=1)) as prof:
        prof.step()
    with pytest.raises(RuntimeError, match="inside"):
        prof.step()
    assert not recorder.active()
