"""`cuptimem host`: causes of growth in real workers, found and not found, beside what /proc says to the workers."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem.output.pages import timeline
from cuptimem.output.text import host_views
from cuptimem.report import host, host_findings
from cuptimem.report.host import Host
from tests.conftest import ROOT, Result, clean_environment

# extended: needs that samples, which come by the clock, see what lasts some seconds.
MIB = 1 << 20
Recorded = dict[str, tuple[cuptimem.Report, list[dict[str, Any]]]]


def found(report: cuptimem.Report) -> Host:
    assert report.host is not None
    return report.host


@pytest.fixture(scope="module")
def recorded(python: str, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The report of each program, and what its workers wrote."""
    from tests.tools.host import programs  # which imports torch, as most tests here need not

    return record(python, tmp_path_factory, programs.__file__, [*programs.READS], "5")


def record(
    python: str, factory: pytest.TempPathFactory, script: str, names: Sequence[str], *arguments: str, **variables: str
) -> Recorded:
    """Runs them all at once."""
    folders = {name: factory.mktemp(name) for name in names}
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT), **variables}
    command = [python, "-m", "cuptimem", "run", "-o", "a.cmem", script]
    running = [
        subprocess.Popen([*command, name, *arguments], cwd=folder, env=environment, stderr=subprocess.DEVNULL)
        for name, folder in folders.items()
    ]
    assert [one.wait(280) for one in running] == [0] * len(running)
    return {
        name: (
            cuptimem.open(folder / "a.cmem"),
            [{"pid": int(file.stem.split("-")[1]), **json.loads(file.read_text())} for file in folder.glob("*-*.json")],
        )
        for name, folder in folders.items()
    }


def workers(report: cuptimem.Report) -> dict[int, host.Process]:
    return {one.pid: one for one in found(report).processes if one.role == "DataLoader worker"}


def findings(report: cuptimem.Report) -> tuple[host_findings.HostFinding, ...]:
    return host_views.report_findings(report)


@pytest.mark.extended
def test_reading_a_list_copies_it(recorded: Recorded) -> None:
    from tests.tools.host import programs

    report, themselves = recorded["listed"]
    (finding,) = findings(report)
    assert finding.kind == "copied" and finding.processes == 2 and finding.attribute is not None
    assert (finding.attribute.dataset, finding.attribute.path) == ("Listed", "dataset.names")
    names = [f"image-{i:06}" for i in range(programs.ITEMS)]
    assert finding.attribute.items == len(names)
    assert finding.attribute.bytes == sum(map(sys.getsizeof, names))
    # Each worker reads every second batch, and all of its private bytes are copies but what it has made itself.
    for one in themselves:
        copied = workers(report)[one["pid"]].copied
        assert one["end"] - one["begun"] > 12 * MIB
        assert one["end"] - 6 * MIB <= copied <= one["end"] + MIB


@pytest.mark.extended
def test_reading_an_array_copies_nothing(recorded: Recorded) -> None:
    report, themselves = recorded["in-array"]
    assert findings(report) == ()
    for one in themselves:
        assert one["end"] - one["begun"] < 4 * MIB
        assert workers(report)[one["pid"]].copied <= one["end"] + MIB


@pytest.mark.extended
def test_what_a_worker_keeps_grows(recorded: Recorded) -> None:
    report, themselves = recorded["grows"]
    assert len(themselves) == 2
    assert {(one.kind, one.what, one.pid) for one in findings(report)} == {
        ("grows", "memory", one["pid"]) for one in themselves
    }
    for finding in findings(report):
        assert finding.bytes_per_step is not None
        assert 0.7 * 256 < finding.bytes_per_step / 1024 < 1.3 * 256


@pytest.mark.extended
def test_the_account_sums_to_the_tree(recorded: Recorded) -> None:
    for report, _ in recorded.values():
        peak = found(report).peak
        assert peak is not None
        lines = host_views.lines_of_account(report)
        assert sum(line.bytes for line in lines) == sum(point.proportional or 0 for _, point in peak[1])
        assert min(line.bytes for line in lines) >= 0


@pytest.mark.extended
def test_the_recording_names_its_processes(recorded: Recorded, call: Callable[..., Result]) -> None:
    report, themselves = recorded["listed"]
    assert report.path is not None
    text = call("host", report.path).out
    assert all(str(one["pid"]) in text for one in themselves)
    assert "dataset.names of Listed, a list of 500,000 items (29.1 MiB)" in " ".join(text.split())
    assert "3 processes in all" in call("summary", report.path).out
    document = json.loads(call("host", "--json", report.path).out)
    (finding,) = document["findings"]
    assert finding["attribute"]["path"] == "dataset.names"
    assert [one["role"] for one in document["processes"]] == ["recorded", *["DataLoader worker"] * 2]
    assert {one["role"] for one in document["curves"]} == {"recorded", "DataLoader worker"}
    (curve,) = timeline.data(report)["host"]  # a line of the page
    assert curve["role"] == "DataLoader worker" and max(curve["bytes"]) > 100 * MIB
    assert len(curve["time"]) == len(curve["bytes"]) == found(report).samples
    copy = call("scrub", report.path, "b.cmem")
    assert copy.code == 0, copy.err
    assert json.loads(call("host", "--json", "b.cmem").out)["account"] == document["account"]


@pytest.fixture(scope="module")
def queues(python: str, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Without what glibc keeps of each batch that a worker has freed, which grows, too."""
    from tests.tools.host import programs

    threshold = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    return record(python, tmp_path_factory, programs.__file__, [*programs.QUEUES], "8", **threshold)


@pytest.mark.extended
@pytest.mark.parametrize(("name", "taken"), [("slow-loop", 0), ("slow-loop-named", 1)])
def test_a_queue_that_fills_and_stops(queues: Recorded, call: Callable[..., Result], name: str, taken: int) -> None:
    """By name the batch that the loop has is one of the worker's, too."""
    report, (counted,) = queues[name]
    (finding,) = findings(report)
    assert (finding.kind, finding.processes, finding.batches, finding.stopped) == ("fills", 2, 8, True)
    assert finding.bytes <= max(counted["queued"])
    assert 0 <= finding.bytes - (8 + taken) * 4 * MIB <= (8 + taken) * 4096  # a page for PyTorch's header
    assert report.path is not None
    text = " ".join(call("host", report.path).out.split())
    size = f"{(8 + taken) * 4}.0 MiB"
    assert f"The queue of 2 workers filled to {size} of /dev/shm and stays there, num_workers × prefetch_factor" in text
    assert "stays there" not in call("summary", report.path).out  # it is no fault


@pytest.mark.extended
def test_a_queue_that_is_emptied_at_once(queues: Recorded) -> None:
    report, (counted,) = queues["slow-workers"]
    assert findings(report) == ()
    assert statistics.median(counted["queued"]) <= 8 * MIB


@pytest.fixture(scope="module")
def loaded(python: str, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    from tests.tools.host import ranks

    return record(python, tmp_path_factory, ranks.__file__, [*ranks.CAUSES, *ranks.CLEAN])


@pytest.mark.extended
@pytest.mark.parametrize("name", ["loads", "reads", "maps-and-writes"])
def test_a_file_that_each_rank_loads(loaded: Recorded, name: str) -> None:
    report, ranks = loaded[name]
    (finding,) = [one for one in findings(report) if one.kind == "loaded twice"]
    assert finding.path.endswith("/model.pt") and finding.processes == 2
    assert {one.pid for one in found(report).copies} == {one["pid"] for one in ranks}
    for one in ranks:
        assert one["alone"] >= 96 * MIB and (one["of_file"] >= 96 * MIB) == (name == "maps-and-writes")
    # One that is written to is seen while it is.
    assert (64 if name == "maps-and-writes" else 96) * MIB <= finding.bytes < 97 * MIB


@pytest.mark.extended
@pytest.mark.parametrize("name", ["maps", "streams", "inherits"])
def test_a_file_that_the_ranks_share(loaded: Recorded, name: str) -> None:
    report, ranks = loaded[name]
    assert [one for one in findings(report) if one.kind == "loaded twice"] == []
    assert len(ranks) == 2 and all(one["of_file"] == 0 for one in ranks)


@pytest.fixture(scope="module")
def keeping(python: str, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    from tests.tools.host import keeps

    return record(python, tmp_path_factory, keeps.__file__, [*keeps.CAUSES, *keeps.CLEAN])


@pytest.mark.extended
@pytest.mark.parametrize("name", ["loads", "loads-in-threads", "trims", "uses-again", "has-large-ones"])
def test_what_malloc_keeps(keeping: Recorded, call: Callable[..., Result], name: str) -> None:
    report, (child,) = keeping[name]
    malloc = found(report).malloc
    assert malloc is not None and report.path is not None
    # The child's is of some milliseconds later, behind a fork.
    assert abs(malloc.returned - child["returned"]) <= 8 * MIB
    kept = [one for one in findings(report) if one.kind == "kept"]
    assert len(kept) == name.startswith("loads")
    if kept:
        assert 128 * MIB <= kept[0].bytes <= malloc.returned
        text = " ".join(call("host", report.path).out.split())
        assert ("MALLOC_ARENA_MAX=2" in text) == (name == "loads-in-threads")


@pytest.fixture(scope="module")
def mapped(python: str, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    from tests.tools.host import mapped

    return record(python, tmp_path_factory, mapped.__file__, [*mapped.CAUSES, *mapped.CLEAN])


@pytest.mark.extended
@pytest.mark.parametrize("name", ["keeps-state", "keeps-mapping"])
def test_a_checkpoint_that_stays_mapped(mapped: Recorded, call: Callable[..., Result], name: str) -> None:
    report, (itself,) = mapped[name]
    (finding,) = findings(report)
    assert (finding.kind, finding.pid) == ("stays mapped", itself["pid"]) and finding.path.endswith("/weights")
    assert 96 * MIB <= finding.bytes == itself["resident"]
    assert report.path is not None
    assert "/weights stays mapped, 96.0 MiB" in " ".join(call("host", report.path).out.split())


@pytest.mark.extended
@pytest.mark.parametrize("name", ["drops-state", "assigns-state", "reads-data"])
def test_a_mapped_file_that_is_used_or_gone(mapped: Recorded, name: str) -> None:
    report, (itself,) = mapped[name]
    assert findings(report) == ()
    assert (itself["resident"] >= 96 * MIB) == (name != "drops-state")


SHARES = """
import sys, time, torch
with_workers = torch.zeros(int(sys.argv[1]) << 20, dtype=torch.uint8).share_memory_()
time.sleep(2.5)
"""


@pytest.mark.extended
@pytest.mark.parametrize(("mib", "kinds"), [(54, ["shared memory full"]), (30, [])])
def test_a_small_shared_memory(
    run: Callable[..., Result], call: Callable[..., Result], python: str, tmp_path: Path, mib: int, kinds: list[str]
) -> None:
    """/dev/shm of 64 MiB, as in a container."""
    mount = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'
    small = ["unshare", "-m", "sh", "-c", mount, "sh"]
    if subprocess.run([*small, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount")
    (tmp_path / "shares.py").write_text(SHARES)
    environment = {**clean_environment(), "CUPTIMEM_RING_DIR": str(tmp_path)}
    command = [*small, python, "-m", "cuptimem", "run", "-o", "a.cmem", "shares.py", str(mib)]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    report = cuptimem.open(tmp_path / "a.cmem")
    assert [one.kind for one in findings(report)] == kinds
    one = found(report)
    assert one.shm_bytes == 64 * MIB and mib * MIB <= one.shm_used < (mib + 1) * MIB
    shared = [file for file in one.files if file.is_shared_memory and file.bytes == mib * MIB]
    assert len(shared) == 1 and shared[0].pids == (one.recorded.pid,)
    shown = " ".join(call("host", "a.cmem").out.split())
    assert ("/dev/shm was nearly full" in shown) == bool(kinds)


MAPS = """
import mmap, sys, time
with open("model.bin", "wb") as file:
    file.write(bytes(24 << 20))
with open("model.bin", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    total = sum(mapped[at] for at in range(0, len(mapped), 4096))
if sys.argv[1] == "closed":
    mapped.close()
time.sleep(1.5)
"""


@pytest.mark.extended
@pytest.mark.parametrize(("how", "expected"), [("open", [24 * MIB]), ("closed", [])])
def test_a_file_that_stays_mapped(run: Callable[..., Result], tmp_path: Path, how: str, expected: list[int]) -> None:
    (tmp_path / "maps.py").write_text(MAPS)
    assert run("-m", "cuptimem", "run", "-o", "a.cmem", "maps.py", how).code == 0
    files = found(cuptimem.open(tmp_path / "a.cmem")).files
    assert [one.bytes for one in files if one.path == str(tmp_path / "model.bin")] == expected


# -- without a recording -----------------------------------------------------------------------------------------------


def test_a_process_that_is_not_recorded(run: Callable[..., Result], call: Callable[..., Result]) -> None:
    text = "import time; block = bytearray(b'x') * (40 << 20); print('ready', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        shown = call("host", str(process.pid))
        document = json.loads(call("host", "--json", str(process.pid)).out)
        process.kill()
    assert f"pid {process.pid} · now" in shown.out and "cuptimem run" in shown.out
    (one,) = document["processes"]
    assert 40 * MIB <= one["end"]["private"] <= 80 * MIB
    assert sum(line["bytes"] for line in document["account"]) == one["end"]["proportional"]
    gone = call("host", str(process.pid))
    assert gone.code == 1 and gone.err.count("\n") == 1 and "nor a process" in gone.err


def test_a_recording_without_samples(run: Callable[..., Result]) -> None:
    assert run("-m", "cuptimem", "run", "-o", "a.cmem", "-c", "pass").code == 0
    done = run("-m", "cuptimem", "host", "a.cmem")
    assert done.code == 1 and done.out == "" and "no samples of processes" in done.err


# -- by hand -----------------------------------------------------------------------------------------------------------


def sample(time: int, *processes: Any, shm: tuple[int, int] = (1 << 30, 0), files: Any = None, opened: Any = ()) -> Any:
    rows = None if files is None else [(*row, 0, False) for row in files]
    return (10**18 + time * 10**9, 1000, *shm, 0, list(processes), rows, opened, 0)


def process(
    pid: int, role: int, anonymous: int, private: int | None = None, *, start: int = 1, shm: int = 0, queued: int = 0
) -> Any:
    """Sizes in MiB; shared is what is resident and not private."""
    status = (anonymous * MIB, 10 * MIB, shm * MIB, 0)
    rollup = None
    if private is not None:
        shared = anonymous - private
        rollup = (0, private * MIB, 10 * MIB, shared * MIB, anonymous * MIB, (anonymous - 10) * MIB, 10 * MIB, 0)
    return (pid, 1, start, role, "python", status, rollup, queued * MIB)


def made(*samples: Any, **notes: str) -> Host:
    one = host.of_samples(samples, 10**18, {f"host.{key}": text for key, text in notes.items()})
    assert one is not None
    return one


def test_shared_memory_near_its_bound() -> None:
    full = made(sample(1, process(1, 1, 50)), sample(2, process(1, 1, 50), shm=(100 * MIB, 81 * MIB)))
    assert [one.kind for one in host_findings.findings(full)] == []  # the bound is the largest that was seen
    full = made(*(sample(i, process(1, 1, 50), shm=(100 * MIB, 40 * i * MIB)) for i in (1, 2)))
    assert [(one.kind, one.bytes) for one in host_findings.findings(full)] == [("shared memory full", 80 * MIB)]
    below = made(sample(1, process(1, 1, 50), shm=(100 * MIB, 79 * MIB)))
    assert host_findings.findings(below) == ()


def test_a_pid_that_is_used_again_is_another_process() -> None:
    one = made(
        sample(1, process(1, 1, 50), process(2, 2, 30, start=5)),
        sample(2, process(1, 1, 50), process(2, 2, 90, start=9)),
    )
    assert [(p.pid, p.started, p.highest // MIB) for p in one.processes] == [(1, 1, 60), (2, 9, 100), (2, 5, 40)]


def test_new_memory_is_no_copy() -> None:
    grown = made(*(sample(i, process(1, 1, 50, 40), process(2, 2, 100 + i * 20, 5 + i * 20)) for i in range(4)))
    assert grown.processes[1].pid == 2 or grown.processes[0].pid == 1
    assert next(p for p in grown.processes if p.pid == 2).copied == 5 * MIB
    copied = made(*(sample(i, process(1, 1, 300, 40), process(2, 2, 100, 5 + i * 30)) for i in (0, 1, 2, 2)))
    (finding,) = [one for one in host_findings.findings(copied) if one.kind == "copied"]
    assert (finding.bytes, finding.pid, finding.stopped, finding.attribute) == (65 * MIB, 2, True, None)


def test_a_copy_that_no_attribute_explains_is_reported_where_it_is_large() -> None:
    small = made(*(sample(i, process(1, 1, 300, 40), process(2, 2, 100, 5 + i * 20)) for i in (0, 1, 2)))
    assert small.processes[1].copied == 45 * MIB and host_findings.findings(small) == ()


def test_a_queue_that_fills_is_no_growth() -> None:
    sizes = [*range(10, 50, 2), *[50] * 40]
    filled = made(*(sample(i, process(1, 1, 50, shm=size)) for i, size in enumerate(sizes)))
    assert host_findings.findings(filled) == ()
    rising = made(*(sample(i, process(1, 1, 50, shm=10 + i)) for i in range(40)))
    assert [(one.kind, one.what) for one in host_findings.findings(rising)] == [("grows", "shared memory")]
    assert host_findings.findings(rising, [(35 * 10**9, 0), (39 * 10**9, 1)]) == ()  # the first step ended behind it


def test_a_file_of_which_two_have_a_copy() -> None:
    def look(time: int, *anonymous: int, opened: tuple[int, ...] = ()) -> Any:
        rows = [process(i, 1 if i == 1 else 0, size) for i, size in enumerate(anonymous, 1)]
        return sample(time, *rows, opened=[(pid, 100 * MIB, "/m", 0, False) for pid in opened])

    both = look(1, 50, 50, 50), look(2, 50, 90, 90, opened=(2, 3)), look(3, 50, 150, 150)
    (finding,) = host_findings.findings(made(*both))
    assert (finding.kind, finding.bytes, finding.processes, finding.path) == ("loaded twice", 100 * MIB, 2, "/m")
    one = look(1, 50, 50, 50), look(2, 50, 90, 80, opened=(2, 3)), look(3, 50, 150, 100)
    assert host_findings.findings(made(*one)) == ()  # one of them kept half of it


def test_processes_that_were_not_looked_at_are_counted() -> None:
    one = made((10**18, 1000, 0, 0, 0, [process(1, 1, 50)], None, (), 12))
    assert "12 processes of the machine were not looked at" in str(host_views.processes(one, 9))


@pytest.mark.parametrize(
    ("row", "is_found"),
    [
        ((100, 0, 100, 1), True),  # copied into modules
        ((100, 0, 0, 1), False),  # a program that has no modules may use them
        ((100, 100, 0, 1), False),
        ((0, 0, 0, 1), True),
        ((0, 0, 0, 0), False),  # a data set
        ((100, 0, 100, 0), False),
    ],
)
def test_a_mapped_file(row: tuple[int, int, int, int], is_found: bool) -> None:
    looked = sample(1, process(1, 1, 50), files=[(1, 100 * MIB, "/m")])
    one = made(looked, mapped=json.dumps([["/m", *(size * MIB for size in row[:3]), row[3]]]))
    assert [found.kind for found in host_findings.findings(one)] == ["stays mapped"] * is_found


@pytest.mark.parametrize(("last", "kinds"), [(3, ["loaded twice"]), (4, [])])
def test_a_data_set_that_stays_open_is_no_copy(last: int, kinds: list[str]) -> None:
    """Two ranks grow while they have a file open. What is loaded is closed again."""
    file = [(pid, 100 * MIB, "/data.h5", 0, False) for pid in (1, 2)]
    one = made(
        *(
            sample(i, process(1, 1, 50 + 50 * i), process(2, 1, 50 + 50 * i), opened=file if 1 < i <= last else ())
            for i in range(1, 5)
        )
    )
    assert [found.kind for found in host_findings.findings(one)] == kinds


def test_an_unknown_role_is_another_program() -> None:
    one = made(sample(1, process(1, 1, 50), process(2, 99, 30)))
    assert one.processes[1].role == "program"


@pytest.mark.parametrize("text", ["", "x", "{}", "[1]", '[["a"]]', "[" * 5000, '[["a", "b", "c", "d", "e"]]'])
def test_a_damaged_note_names_no_attribute(text: str) -> None:
    one = made(sample(1, process(1, 1, 50)), datasets=text, mapped=text, loaders=text)
    assert (one.attributes, one.mapped, one.batches) == ((), (), None)


def test_files_of_the_recording_itself_are_left_out() -> None:
    rows = [(1, 9, "/dev/shm/.cuptimem-ring-1"), (1, 5, "/a"), (2, 7, "/dev/shm/x"), (3, 7, "/dev/shm/x")]
    one = made(sample(1, process(1, 1, 50), files=rows))
    assert [(f.path, f.pids, f.is_shared_memory) for f in one.files] == [
        ("/dev/shm/x", (2, 3), True),
        ("/a", (1,), False),
    ]


def test_nothing_of_this_needs_torch() -> None:
    code = "import sys, cuptimem.report.host; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, env=os.environ).returncode == 0
