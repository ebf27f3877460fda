"""The core of the simulated device: C clients of it, plain and under sanitizers, and what it leaves in files."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from cudasim.cards import CARDS
from cudasim.tests.core import files
from cudasim.tests.core.clients import DEVICES, MIB, SANITIZED, SOURCES, Clients, cases_of, environment
from cudasim.tests.objects import INCLUDE
from tests.build import build, works

CONTEXT = 300 * MIB


def clients_for(sanitizer: str) -> Clients:
    if sanitizer != "plain" and not works(sanitizer):
        pytest.skip(f"no gcc with the library of its {sanitizer} sanitizer here")
    return Clients(sanitizer)


SANITIZED_TOO = [pytest.param(name, marks=[] if name == "plain" else pytest.mark.sanitizer) for name in SANITIZED]


@pytest.fixture(params=SANITIZED_TOO)
def clients(request: pytest.FixtureRequest) -> Clients:
    return clients_for(request.param)


@pytest.fixture
def plain() -> Clients:
    return clients_for("plain")


CASES = [(name, case) for name in ("accounts", "virtual", "contents", "threads") for case in cases_of(name)]


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}-{case}" for name, case in CASES])
def test_client(clients: Clients, name: str, case: str, tmp_path: Path) -> None:
    if clients.sanitizer == "thread" and name == "virtual":
        pytest.skip("one thread, and that sanitizer has neither room for 3 TiB nor holes")
    settings = DEVICES | ({"CUPTIMEM_SIM_MEMORY": "100MiB"} if case == "context_does_not_fit" else {})
    clients.run(name, case, settings, tmp_path)


def test_many_random_histories_of_bytes(plain: Clients, tmp_path: Path) -> None:
    for seed in range(2, 12):
        plain.run("contents", "model", DEVICES | {"SEED": str(seed), "ROUNDS": "2000"}, tmp_path)


@pytest.mark.parametrize("case", cases_of("limits"))
@pytest.mark.parametrize("sanitizer", SANITIZED_TOO[:2])
def test_limits_of_the_host(sanitizer: str, case: str, tmp_path: Path) -> None:
    if sanitizer == "address" and case in ("address_space", "nothing_is_committed"):
        pytest.skip("that sanitizer has memory of its own")
    settings = DEVICES | {"CUPTIMEM_SIM_LOG": str(tmp_path / "log")} if case == "the_log_was_closed" else DEVICES
    done = clients_for(sanitizer).run("limits", case, settings, tmp_path)
    assert ("log of the simulated device" in done.stderr) == (case == "the_log_was_closed")


def test_time_in_entry_points_is_counted_if_asked_for(plain: Clients, tmp_path: Path) -> None:
    plain.run("threads", "time_in_entry_points", DEVICES | {"CUPTIMEM_SIM_TIMING": "1"}, tmp_path)


def check_work(report: files.Report, pid: int) -> None:
    """What work_and_wait in process.c did."""
    first, second = report.devices
    assert report.header["pid"] == pid
    assert report.header["copy_max"] == 64 << 10
    assert report.header["host"] == 0 and report.header["host_peak"] == 3000
    assert report.header["workspace"] == report.header["handle"] == -1
    assert (first.name, first.capability, first.sms, first.ordinal) == ("NVIDIA H100 80GB HBM3", (9, 0), 132, 0)
    assert first.counters == {
        "total": 1024 * MIB,
        "context": CONTEXT,
        "used": CONTEXT + 8 * MIB,
        "peak": CONTEXT + 14 * MIB,
        "peak_library": 8 * MIB,
        "library": 8 * MIB,
        "allocs": 2,
        "frees": 1,
        "refused": 1,
        "refused_least": 900 * MIB,
        "refused_used": CONTEXT + 6 * MIB,
        "limited": 0,
        "reads": 1,
        "read_bytes": 1,
        "known_reads": 1,
        "known_bytes": 1,
    }
    assert second.counters["used"] == CONTEXT + 2 * MIB and second.counters["peak"] == CONTEXT + 6 * MIB
    assert second.counters["allocs"] == 2 and second.counters["frees"] == 1 and second.counters["reads"] == 1
    assert report.notes == {
        (2, "NCCL"): (3, 20),
        (3, "CUDA context"): (2, CONTEXT),
        (3, "cuBLAS"): (1, 8 * MIB),
    }


def test_a_killed_process_leaves_its_report(plain: Clients, tmp_path: Path) -> None:
    path = tmp_path / "report"
    command = [str(plain.client("process")), "work_and_wait"]
    settings = environment(DEVICES | {"CUPTIMEM_SIM_REPORT": str(path), "CUPTIMEM_SIM_LOG": str(tmp_path / "log")})
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        check_work(files.read_report(path), pid)  # while it lives
        process.send_signal(signal.SIGKILL)
    check_work(files.read_report(path), pid)

    log = files.read_log(tmp_path / "log")
    ops = [
        "context",
        "alloc",
        "free",
        "reserve",
        "unreserve",
        "create",
        "destroy",
        "map",
        "unmap",
        "refused",
        "limited",
        "host_alloc",
        "host_free",
    ]
    assert [(ops[record.op - 1], record.device) for record in log] == [
        ("context", 0),
        ("alloc", 0),
        ("context", 1),
        ("alloc", 1),
        ("refused", 0),
        ("reserve", -1),
        ("create", 1),
        ("map", 1),
        ("host_alloc", -1),
        ("alloc", 0),
        ("unmap", 1),
        ("destroy", 1),
        ("unreserve", -1),
        ("free", 0),
        ("host_free", -1),
    ]
    used = [0, 0]
    for record in log:  # every change of an account is there
        if record.device >= 0:
            used[record.device] += record.change
            assert record.used == used[record.device]
        assert record.thread == pid
    assert used == [CONTEXT + 8 * MIB, CONTEXT + 2 * MIB]
    assert [record.time for record in log] == sorted(record.time for record in log)
    block = log[1]
    assert (block.bytes, block.charged, block.change, block.kind) == (5 * MIB, 6 * MIB, 6 * MIB, 1)
    small = log[3]
    assert (small.bytes, small.charged, small.change) == (700, 1024, 2 * MIB)
    assert log[7].extra == log[6].address and log[7].address == log[5].address + 2 * MIB
    assert log[9].kind == 5


def pids_of(plain: Clients, path: Path, times: int) -> list[int]:
    settings = DEVICES | {"CUPTIMEM_SIM_REPORT": str(path), "LEAVE": "1"}
    return [int(plain.run("process", "work_and_wait", settings, path.parent).stdout.split()[0]) for _ in range(times)]


def test_each_process_has_a_report_of_its_own(plain: Clients, tmp_path: Path) -> None:
    path = tmp_path / "report"
    pids = pids_of(plain, path, 3)
    assert {file.name for file in tmp_path.iterdir()} == {"report", f"report.{pids[1]}", f"report.{pids[2]}"}
    check_work(files.read_report(path), pids[0])
    check_work(files.read_report(tmp_path / f"report.{pids[2]}"), pids[2])


def test_an_empty_file_is_taken_and_another_left_alone(plain: Clients, tmp_path: Path) -> None:
    empty, other = tmp_path / "empty", tmp_path / "other"
    empty.touch()
    other.write_text("precious")
    (pid,) = pids_of(plain, empty, 1)
    check_work(files.read_report(empty), pid)
    (pid,) = pids_of(plain, other, 1)
    assert other.read_text() == "precious"
    check_work(files.read_report(tmp_path / f"other.{pid}"), pid)


def test_a_report_that_cannot_be_made_is_said_and_nothing_else(plain: Clients, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "report"
    settings = DEVICES | {"CUPTIMEM_SIM_REPORT": str(path), "CUPTIMEM_SIM_LOG": str(path), "LEAVE": "1"}
    done = plain.run("process", "work_and_wait", settings, tmp_path)
    assert done.stderr.splitlines() == [
        f"cuptimem: no report of the simulated device: {path}: No such file or directory",
        f"cuptimem: no log of the simulated device: {path}: No such file or directory",
    ]
    assert not list(tmp_path.iterdir())


def no_room() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))


def test_no_room_for_files_is_said_and_nothing_else(plain: Clients, tmp_path: Path) -> None:
    report, log = tmp_path / "report", tmp_path / "log"
    settings = DEVICES | {"CUPTIMEM_SIM_REPORT": str(report), "CUPTIMEM_SIM_LOG": str(log), "LEAVE": "1"}
    command = [str(plain.client("process")), "work_and_wait"]
    done = subprocess.run(command, env=environment(settings), capture_output=True, text=True, preexec_fn=no_room)
    assert done.returncode == 0 and done.stdout.endswith("done\n")
    assert done.stderr.splitlines() == [
        f"cuptimem: no report of the simulated device: {report}: File too large",
        "cuptimem: the log of the simulated device ends here: No space left on device",
    ]
    assert log.stat().st_size == 500


def test_a_child_that_forks_before_use_reports_for_itself(plain: Clients, tmp_path: Path) -> None:
    path = tmp_path / "report"
    plain.run("threads", "fork_before_use", DEVICES | {"CUPTIMEM_SIM_REPORT": str(path)}, tmp_path)
    (child,) = tmp_path.glob("report.*")
    parents, childs = files.read_report(path), files.read_report(child)
    assert [report.devices[0].counters["allocs"] for report in (parents, childs)] == [0, 1]
    assert (2, "a report, and no device") in parents.notes and (2, "a report, and no device") not in childs.notes
    assert childs.header["pid"] != parents.header["pid"]


def test_a_child_that_forks_after_use_writes_nothing(plain: Clients, tmp_path: Path) -> None:
    path = tmp_path / "report"
    plain.run("threads", "fork_among_threads", DEVICES | {"CUPTIMEM_SIM_REPORT": str(path)}, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["report"]
    assert (2, "in a child") not in files.read_report(path).notes


def test_notes_beyond_their_room_are_counted(plain: Clients, tmp_path: Path) -> None:
    path = tmp_path / "report"
    plain.run("process", "more_notes_than_room", DEVICES | {"CUPTIMEM_SIM_REPORT": str(path)}, tmp_path)
    report = files.read_report(path)
    assert len(report.notes) == 256 and report.header["dropped"] == 20


def test_a_trace_says_every_call(plain: Clients, tmp_path: Path) -> None:
    settings = DEVICES | {"CUPTIMEM_SIM_TRACE": "1", "LEAVE": "1"}
    lines = plain.run("process", "work_and_wait", settings, tmp_path).stderr.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(("note", "host"))] == (
        [
            "context",
            "alloc",
            "context",
            "alloc",
            "refused",
            "reserve",
            "create",
            "map",
            "alloc",
            "unmap",
            "destroy",
            "unreserve",
            "free",
        ]
    )
    assert lines[0] == f"context device 0 address 0 bytes {CONTEXT} used {CONTEXT}"


def test_blocks_that_pytorch_hands_out_are_fresh(clients: Clients, tmp_path: Path) -> None:
    source = Path(__file__).parent / "libc10.c"
    library = build("libc10.so", [source], "-shared", "-fPIC", link=["-Wl,-soname,libc10.so"])
    clients.run("process", "blocks_handed_out", DEVICES | {"LIBC10": str(library)}, tmp_path)
    clients.run("process", "blocks_handed_out", DEVICES, tmp_path)


# --- Settings ---------------------------------------------------------------------------------------------------------


def configured(plain: Clients, folder: Path, settings: Mapping[str, str]) -> tuple[list[str], list[list[str]], str]:
    done = plain.run("process", "configuration", settings, folder)
    lines = done.stdout.splitlines()[:-1]
    return lines[0].split(), [line.split("|") for line in lines[1:]], done.stderr


def test_defaults(plain: Clients, tmp_path: Path) -> None:
    numbers, devices, said = configured(plain, tmp_path, {})
    assert numbers == ["1", "1", str(MIB), "-1", "-1", "0", "13000", "0", "0"] and said == ""
    assert devices == [
        ["0", "NVIDIA H100 80GB HBM3", "h100", "85017755648", str(512 * MIB), "9.0", "132", "233472", "232448"]
        + ["2048", "32", "52428800", "1980000", "2619000", "5120"]
    ]


def test_all_profiles(plain: Clients, tmp_path: Path) -> None:
    assert [card.name for card in CARDS] == sorted(card.name for card in CARDS)
    asked = "A100 40GB,NVIDIA GeForce RTX 3090,RTX 5090,Tesla T4"
    _, devices, _ = configured(plain, tmp_path, {"CUPTIMEM_SIM_DEVICE": asked})
    assert [row[2] for row in devices] == ["a100-40gb", "rtx3090", "rtx5090", "t4"]
    devices = [configured(plain, tmp_path, {"CUPTIMEM_SIM_DEVICE": card.key})[1][0] for card in CARDS]
    facts = {row[2]: (row[5], int(row[6]), int(row[7]) >> 10, int(row[9]), int(row[10])) for row in devices}
    assert facts == {
        "a100-40gb": ("8.0", 108, 164, 2048, 32),
        "a100-80gb": ("8.0", 108, 164, 2048, 32),
        "a10g": ("8.6", 80, 100, 1536, 16),
        "a40": ("8.6", 84, 100, 1536, 16),
        "b200": ("10.0", 148, 228, 2048, 32),
        "gb10": ("12.1", 48, 100, 1536, 24),
        "gh200": ("9.0", 132, 228, 2048, 32),
        "rtx3060": ("8.6", 28, 100, 1536, 16),
        "rtx3090": ("8.6", 82, 100, 1536, 16),
        "rtx4090": ("8.9", 128, 100, 1536, 24),
        "rtx5090": ("12.0", 170, 100, 1536, 24),
        "h100": ("9.0", 132, 228, 2048, 32),
        "h200": ("9.0", 132, 228, 2048, 32),
        "l4": ("8.9", 58, 100, 1536, 24),
        "l40s": ("8.9", 142, 100, 1536, 24),
        "a6000": ("8.6", 84, 100, 1536, 16),
        "t4": ("7.5", 40, 64, 1024, 16),
        "v100-16gb": ("7.0", 80, 96, 2048, 32),
        "v100-32gb": ("7.0", 80, 96, 2048, 32),
    }
    for row in devices:
        optin = int(row[7]) if row[5].startswith("7.") else int(row[7]) - 1024
        assert int(row[8]) == optin
        assert all(int(number) > 0 for number in (row[3], row[4], *row[11:15]))


def test_several_devices(plain: Clients, tmp_path: Path) -> None:
    settings = {"CUPTIMEM_SIM_DEVICE": "t4,L4", "CUPTIMEM_SIM_DEVICES": "2", "CUPTIMEM_SIM_MEMORY": "10GiB"}
    _, devices, _ = configured(plain, tmp_path, settings)
    assert [(row[2], row[3]) for row in devices] == [("t4", str(10 << 30)), ("l4", str(10 << 30))]
    _, devices, _ = configured(plain, tmp_path, {"CUPTIMEM_SIM_DEVICE": "t4", "CUPTIMEM_SIM_DEVICES": "16"})
    assert [row[2] for row in devices] == ["t4"] * 16


@pytest.mark.parametrize(
    ("size", "bytes"),
    [
        ("1", 1),
        ("4096", 4096),
        ("24GiB", 24 << 30),
        ("24 gib", 24 << 30),
        ("24g", 24 << 30),
        ("24GB", 24 * 10**9),
        ("1.5GiB", 3 << 29),
        ("2KiB", 2048),
        ("7TiB", 7 << 40),
        ("512MB", 512 * 10**6),
        ("100B", 100),
    ],
)
def test_sizes(plain: Clients, tmp_path: Path, size: str, bytes: int) -> None:
    settings = {"CUPTIMEM_SIM_COPY_MAX": size, "CUPTIMEM_SIM_CONV_WORKSPACE": size, "CUPTIMEM_SIM_HANDLE_BYTES": size}
    numbers, _, said = configured(plain, tmp_path, settings)
    assert numbers[2:5] == [str(bytes)] * 3 and said == ""


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CUPTIMEM_SIM_DEVICE", "a100"),  # which of them?
        ("CUPTIMEM_SIM_DEVICE", "h100,"),
        ("CUPTIMEM_SIM_DEVICE", ",".join(["t4"] * 17)),
        ("CUPTIMEM_SIM_DEVICES", "0"),
        ("CUPTIMEM_SIM_DEVICES", "17"),
        ("CUPTIMEM_SIM_DEVICES", "two"),
        ("CUPTIMEM_SIM_MEMORY", "0"),
        ("CUPTIMEM_SIM_MEMORY", "24GiBs"),
        ("CUPTIMEM_SIM_MEMORY", "-1"),
        ("CUPTIMEM_SIM_MEMORY", "lots"),
        ("CUPTIMEM_SIM_MEMORY", "99999999999TiB"),
        ("CUPTIMEM_SIM_MEMORY", "99999999999999999999999"),
        ("CUPTIMEM_SIM_CONTEXT", "x"),
        ("CUPTIMEM_SIM_COPY_MAX", "1 MiB or so"),
        ("CUPTIMEM_SIM_EVENT_LAG", "-3"),
        ("CUPTIMEM_SIM_TIMING", "yes"),
        ("CUPTIMEM_SIM_TRACE", "2"),
        ("CUDA_VISIBLE_DEVICES", "GPU-8f7d"),
    ],
)
def test_a_wrong_value_leaves_no_device_and_is_named(plain: Clients, tmp_path: Path, variable: str, value: str) -> None:
    numbers, devices, said = configured(plain, tmp_path, {variable: value})
    assert numbers[0] == numbers[1] == "0" and devices == []
    assert said.startswith(f"cuptimem: {variable}={value[:100]}: expected ") and said.count("\n") == 1


def test_a_list_of_another_length_than_asked_for(plain: Clients, tmp_path: Path) -> None:
    settings = {"CUPTIMEM_SIM_DEVICE": "t4,l4", "CUPTIMEM_SIM_DEVICES": "3"}
    numbers, _, said = configured(plain, tmp_path, settings)
    assert numbers[0] == "0" and said.startswith("cuptimem: CUPTIMEM_SIM_DEVICES=3: expected ")


@pytest.mark.parametrize(
    ("visible", "ordinals"),
    [
        ("0,1,2", [0, 1, 2]),
        ("2,0", [2, 0]),
        (" 1 , 2", [1, 2]),
        ("1", [1]),
        ("", []),
        ("-1", []),
        ("1,-1,2", [1]),
        ("0,7,1", [0]),
        ("0,x", [0]),
        ("1,1", []),
    ],
)
def test_visible_devices(plain: Clients, tmp_path: Path, visible: str, ordinals: list[int]) -> None:
    settings = {"CUPTIMEM_SIM_DEVICE": "t4,l4,h100", "CUDA_VISIBLE_DEVICES": visible}
    numbers, devices, said = configured(plain, tmp_path, settings)
    names = ["t4", "l4", "h100"]
    assert [(int(row[0]), row[2]) for row in devices] == [(i, names[i]) for i in ordinals]
    assert numbers[:2] == [str(len(ordinals)), "3"] and said == ""


def test_nothing_happens_before_the_first_call(plain: Clients, tmp_path: Path) -> None:
    """A program that inherits the preload and never uses CUDA: no file, no word, no mapping but the library's."""
    folder = tmp_path / "work"
    library = build("libcore.so", SOURCES, "-std=gnu11", "-shared", "-fPIC", *INCLUDE, link=["-lpthread", "-ldl"])
    folder.mkdir()
    settings = {"CUPTIMEM_SIM_REPORT": str(folder / "report"), "CUPTIMEM_SIM_MEMORY": "nonsense"}

    def mappings(preload: str) -> list[str]:
        command = ["cat", "/proc/self/maps"]
        inherited = environment(settings | {"LD_PRELOAD": preload})
        done = subprocess.run(command, env=inherited, cwd=folder, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.splitlines()

    without, loaded = mappings(""), mappings(str(library))
    assert os.listdir(folder) == []
    assert any("libcore.so" in line for line in loaded)
    # Its zeroed data is one mapping without a name.
    assert len([line for line in loaded if "libcore.so" not in line]) <= len(without) + 1
