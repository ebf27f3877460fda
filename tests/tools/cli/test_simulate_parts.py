"""Parts of `cuptimem simulate` by themselves: cards and sizes, settings, the environment."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cuptimem.errors import Error
from cuptimem.simulation import cards, child, facts, launch, processes, settings
from cuptimem.simulation.api import make_setup
from tests.conftest import ROOT

GIB = 1 << 30


def test_the_context_of_each_card_is_an_interval():
    assert {one.key for one in cards.CARDS if not 0 < one.context.low < one.context.middle < one.context.high} == set()
    # Golden results rest on the simulator's own constant with its default card.
    assert cards.card("h100").context == cards.Context(450 << 20, 512 << 20, 700 << 20)
    assert cards.card("t4").context == cards.Context(100 << 20, 130 << 20, 160 << 20)
    open_setup = launch.Setup(cards.card("t4"), GIB)
    assert open_setup.context_range == cards.card("t4").context and not open_setup.context_range.exact
    given = launch.Setup(cards.card("t4"), GIB, context=7).context_range
    assert given == cards.Context(7, 7, 7) and given.exact
    found = launch.environment({}, open_setup, "/f", "/f/t", False)
    assert found["CUPTIMEM_SIM_CONTEXT"] == str(130 << 20)


def test_the_cublas_workspace_is_of_the_architecture():
    found = {one.key: one.cublas_workspace for one in cards.CARDS}
    assert {key for key, size in found.items() if size == 32 << 20} == {
        "b200",
        "gb10",
        "gh200",
        "h100",
        "h200",
        "rtx5090",
    }
    assert {size for size in found.values() if size != 32 << 20} == {(8 << 20) + (128 << 10)}


def test_cards_that_a_size_may_stand_for():
    def keys(size: int) -> list[str]:
        return [one.key for one in cards.of_size(size * GIB)]

    assert keys(24) == ["a10g", "rtx3090", "rtx4090", "l4"] and keys(48) == ["a40", "l40s", "a6000"]
    assert keys(12) == ["rtx3060"] and keys(32) == ["rtx5090", "v100-32gb"] and keys(60) == []


def test_cards_without_kernels_in_a_cuda_13_build():
    assert {one.key for one in cards.CARDS if not one.has_kernels} == {"v100-16gb", "v100-32gb"}
    assert cards.card("v100-16gb").architecture == "sm_70"


@pytest.mark.parametrize("name", ["MI300X", "mi250", "AMD Instinct MI210", "Radeon RX 7900 XTX", "RX 7900"])
def test_cards_of_another_maker_are_refused_by_name(name):
    with pytest.raises(Error, match=f"^{name} is an AMD card, and only CUDA is simulated: ROCm builds"):
        cards.card(name)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("H100", "h100"),
        ("RTX A6000", "a6000"),
        ("rtx 3060", "rtx3060"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("V100 16GB", "v100-16gb"),
        ("NVIDIA GH200 120GB", "gh200"),
        ("rtx 4090", "rtx4090"),
        ("NVIDIA L4", "l4"),
        ("A100-80", "a100-80gb"),
        ("a100_40GB", "a100-40gb"),
    ],
)
def test_a_card_by_any_of_its_names(text, key):
    assert cards.card(text).key == key


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a100", "a100-40gb or a100-80gb"),
        ("v100", "v100-16gb or v100-32gb"),
        ("h10", "h100"),
        ("rtx4080", "rtx4090"),
        ("", "There are"),
    ],
)
def test_an_unknown_card(text, hint):
    with pytest.raises(Error, match=hint):
        cards.card(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 * GIB),
        ("24g", 24 * GIB),
        ("24GB", 24 * 10**9),
        ("1.5 GiB", 3 * GIB // 2),
        ("512MiB", 1 << 29),
        ("25769803776", 24 * GIB),
        ("100B", 100),
        ("2T", 2 << 40),
        ("0.1k", 102),
    ],
)
def test_sizes(text, size):
    assert cards.size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "24 potatoes", "-1", "0", "0.0G", "1e9", "24GiBB", "٣", "1,5G"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="a size is"):
        cards.size(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"devices": 0},
        {"devices": 17},
        {"memory": "1MiB"},
        {"memory": "1GiB", "context": "1GiB"},
        {"assume": {"sort": 0.5}},
        {"assume": {"nonzero": 1.5}},
        {"assume": {"nonzero": float("nan")}},
        {"assume": {"nonzero": "half"}},
        {"assume": "nonzero=.1"},
        {"assume": {"repeat_interleave": float("inf")}},
        {"conv_workspace": -1},
    ],
)
def test_setups_that_make_no_sense(wrong):
    with pytest.raises(ValueError):
        make_setup(
            **{
                **dict.fromkeys(("memory", "context", "conv_workspace", "assume")),
                "device": "t4",
                "devices": 1,
                **wrong,
            }
        )


def test_settings_are_read_as_pytorch_reads_them():
    text = "expandable_segments:True, roundup_power2_divisions:[256:1,512:2,>:4],max_split_size_mb:20,"
    assert settings.parts(text) == {
        "expandable_segments": "True",
        "roundup_power2_divisions": "[256:1,512:2,>:4]",
        "max_split_size_mb": "20",
    }
    assert settings.parts("") == {}


def test_which_settings_are_tried():
    assert settings.candidates({}) == [
        "expandable_segments:True",
        "garbage_collection_threshold:0.8",
        "max_split_size_mb:128",
        "backend:cudaMallocAsync",
    ]
    own = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:20", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    assert settings.candidates(own)[0] == "max_split_size_mb:20,expandable_segments:True"
    assert settings.candidates(own)[2:] == ["max_split_size_mb:128", "backend:cudaMallocAsync"]
    assert settings.candidates({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}) == []
    assert settings.with_setting({"PYTORCH_CUDA_ALLOC_CONF": "a:1", "HOME": "/"}, "b:2") == {
        "PYTORCH_ALLOC_CONF": "b:2",
        "HOME": "/",
    }


# --- a run, without torch: the libraries are preloaded, and nothing asks for them -------------------------------------


def start(code: str, tmp_path: Path, **options) -> launch.Run:
    """In a Python that does not look for cuptimem.pth: nothing is recorded."""
    setup = launch.Setup(cards.card("l4"), 24 * GIB)
    return launch.run([sys.executable, "-S", "-c", code], setup, str(tmp_path / "0"), **options)


@pytest.fixture
def once_it_prints(tmp_path, monkeypatch):
    """The clock of a run stands still until its program has printed something: how long that takes is the machine's."""
    output = tmp_path / "0" / "output"

    def monotonic() -> float:
        return time.monotonic() if output.exists() and output.stat().st_size else 0.0

    monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=monotonic, sleep=time.sleep))
    return 0.2


def test_the_variables_of_a_run(tmp_path, monkeypatch):
    base = {
        "LD_PRELOAD": "/own.so",
        "CUDA_VISIBLE_DEVICES": "",
        "CUPTIMEM_FOLLOW": "1",
        "CUPTIMEM_SIM_CONV_WORKSPACE": "5",
        "HOME": "/home/u",
        "TRITON_CACHE_DIR": "/home/u/.triton",
    }
    setup = launch.Setup(cards.card("l4"), 24 * GIB, 2, context=7)
    low = launch.environment(base, setup, "/f", "/f/t.cmem", False)
    libraries = low["LD_PRELOAD"].split(":")
    assert libraries[0].endswith("/libcuptimem_sim.so") and libraries[-1] == "/own.so" and len(libraries) > 5
    assert low["TRITON_LIBCUDA_PATH"] == str(Path(libraries[0]).parent)
    assert (low["CUPTIMEM_SIM_DEVICE"], low["CUPTIMEM_SIM_DEVICES"], low["CUPTIMEM_SIM_MEMORY"]) == (
        "l4",
        "2",
        str(24 * GIB),
    )
    assert (low["CUPTIMEM_SIM_CONTEXT"], low["CUPTIMEM_SIM_CONV_WORKSPACE"]) == ("7", "0")
    assert (low["TORCHINDUCTOR_CACHE_DIR"], low["TRITON_CACHE_DIR"]) == ("/f/inductor", "/f/triton")
    assert not {"CUDA_VISIBLE_DEVICES", "CUPTIMEM_FOLLOW", "CUPTIMEM_SIM_EVENT_LAG"} & set(low)
    high = launch.environment(base, launch.Setup(cards.card("l4"), 1, high_end=True), "/f", "/f/t", False)
    assert "CUPTIMEM_SIM_CONV_WORKSPACE" not in high and high["CUPTIMEM_SIM_EVENT_LAG"] == "1024"


def test_the_device_for_any_command(monkeypatch, tmp_path):
    base = {"LD_PRELOAD": "/own.so", "CUDA_VISIBLE_DEVICES": "7", "XDG_CACHE_HOME": "/c", "CUPTIMEM": "1"}
    setup = launch.Setup(cards.card("l4"), 24 * GIB, 2, context=7)
    found = launch.by_hand(base, setup)
    whole = launch.environment(base, setup, "/f", "/f/t.cmem", False)
    shared = ["LD_PRELOAD", "TRITON_LIBCUDA_PATH", "CUPTIMEM_SIM_CONV_WORKSPACE", "CUPTIMEM_SIM_NCCL"]
    shared += [f"CUPTIMEM_SIM_{name}" for name in ("DEVICE", "DEVICES", "MEMORY", "CONTEXT")]
    assert {name: found[name] for name in shared} == {name: whole[name] for name in shared}
    own = {name: value for name, value in found.items() if name not in shared}
    assert own == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "TORCHINDUCTOR_CACHE_DIR": "/c/cuptimem/simulated/inductor",  # nothing tuned here reaches real runs
        "TRITON_CACHE_DIR": "/c/cuptimem/simulated/triton",
    }
    assert "CUDA_VISIBLE_DEVICES" not in launch.by_hand({"XDG_CACHE_HOME": "/c"}, setup)
    with pytest.raises(Error, match="TORCHINDUCTOR_CACHE_DIR would have a space"):
        launch.by_hand({"XDG_CACHE_HOME": "/c d"}, setup)


def test_libraries_in_a_folder_that_ld_preload_cannot_hold(tmp_path, monkeypatch):
    odd = tmp_path / "a folder: odd"
    odd.mkdir()
    names = []
    for name in ("libcuptimem_sim.so", "libcudart.so.13"):
        (odd / name).write_bytes(b"")
        names.append(odd / name)
    monkeypatch.setattr(launch.cudasim, "preload", lambda: names)
    plain = tmp_path / "plain"
    plain.mkdir()
    found = launch.preload(str(plain))
    assert [Path(path).resolve() for path in found] == names and not any(" " in path for path in found)
    with pytest.raises(Error, match="TMPDIR"):
        launch.preload(str(odd))
    with pytest.raises(Error, match="LD_PRELOAD cannot hold a path with a space or colon"):
        launch.variables({}, launch.Setup(cards.card("l4"), GIB))


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(launch.cudasim, "folder", lambda: tmp_path)
    with pytest.raises(Error, match=r"libcuptimem_sim\.so is missing"):
        launch.preload(str(tmp_path))


def test_how_a_run_ends(tmp_path):
    done = start("import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)", tmp_path)
    assert (done.exit_code, done.signal, done.timed_out, done.output) == (3, None, False, "out\nerr\n")
    assert done.reports == ()
    done = start("import os; os.kill(os.getpid(), 9)", tmp_path)
    assert (done.exit_code, done.signal, done.timed_out) == (None, signal.SIGKILL, False)
    with pytest.raises(Error, match="does not start"):
        launch.run(["/no/python"], launch.Setup(cards.card("l4"), GIB), str(tmp_path / "1"))


@pytest.mark.parametrize("forward", [False, True])
def test_a_run_that_does_not_end(tmp_path, forward):
    done = start("import time; time.sleep(600)", tmp_path, timeout=0.5, forward=forward)
    assert done.timed_out and done.signal == signal.SIGTERM and done.seconds < 600


@pytest.mark.parametrize("forward", [False, True])
def test_a_run_that_does_not_want_to_end(tmp_path, monkeypatch, once_it_prints, forward):
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); time.sleep(600)"
    )
    monkeypatch.setattr(launch, "_GRACE_SECONDS", 0.5)
    done = start(stubborn, tmp_path, timeout=once_it_prints, forward=forward)
    assert done.timed_out and done.signal == signal.SIGKILL and done.output == "x\n"


def test_signals_go_on_to_the_program(tmp_path):
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *a: sys.exit(7))\n"
        "os.kill(os.getppid(), signal.SIGUSR1)\n"
        "signal.pause()\n"
    )
    folder = str(tmp_path / "0")
    outer = (
        "from cuptimem.simulation import launch, cards\n"
        "import sys\n"
        "setup = launch.Setup(cards.card('l4'), 1 << 30)\n"
        f"done = launch.run([sys.executable, '-c', {program!r}], setup, {folder!r}, timeout=300, forward=True)\n"
        "print(done.exit_code, done.signal)\n"
    )
    done = subprocess.run([sys.executable, "-c", outer], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.stdout == "7 None\n", done.stderr


OUTER = """
import os, signal, sys
from cuptimem.simulation import launch, cards
setup = launch.Setup(cards.card('l4'), 1 << 30)
done = launch.run([sys.executable, '-S', '-c', {program!r}], setup, {folder!r}, timeout=300, forward=True)
print(done.exit_code, done.signal, done.interrupted_by)
"""


def outer(program: str, tmp_path: Path, **options) -> str:
    """What a process of its own says of a run with this program."""
    code = OUTER.format(program=program, folder=str(tmp_path / "0"))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


COUNT = """
import os, signal, sys, time
seen = []
for name in ("SIGINT", "SIGTERM"):
    signal.signal(getattr(signal, name), lambda number, frame: seen.append(number))
{send}
end = time.monotonic() + 60
while time.monotonic() < end and not seen:
    time.sleep(0.01)
end = time.monotonic() + 0.5  # a second one would come
while time.monotonic() < end:
    time.sleep(0.05)
sys.exit(10 + len(seen))
"""


def test_what_a_terminal_sends_to_all_comes_once(tmp_path):
    said = outer(COUNT.format(send="os.killpg(0, signal.SIGINT)"), tmp_path, start_new_session=True)
    assert said == f"11 None {signal.SIGINT}\n"
    elsewhere = COUNT.format(send="os.setsid(); os.kill(os.getppid(), signal.SIGINT)")
    assert outer(elsewhere, tmp_path, start_new_session=True) == f"11 None {signal.SIGINT}\n"


def test_a_signal_that_ends_the_program_through_us_is_an_interruption(tmp_path):
    assert outer("import os, time; os.kill(os.getppid(), 15); time.sleep(60)", tmp_path) == "None 15 15\n"
    assert outer(COUNT.format(send="os.kill(os.getppid(), 15)"), tmp_path) == "11 None 15\n"
    assert outer("import os, time; os.kill(os.getppid(), 10); time.sleep(60)", tmp_path) == "None 10 10\n"
    assert outer("import os; os.kill(os.getpid(), 15)", tmp_path) == "None 15 None\n"  # its own affair


def test_what_is_ignored_under_nohup_is_no_interruption(tmp_path):
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    program = "import os, time; os.kill(os.getppid(), 1); time.sleep(0.3)"
    assert outer(program, tmp_path, preexec_fn=ignore) == "0 None None\n"


FAMILY = """
import os, subprocess, sys, time
grandchild = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
child = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {grandchild!r}])"
subprocess.Popen([sys.executable, "-S", "-c", child], start_new_session=True)
time.sleep(600)
"""


@pytest.mark.parametrize("forward", [False, True])
def test_what_a_program_started_ends_with_it_when_its_time_is_up(tmp_path, once_it_prints, forward):
    found: dict[int, int] = {}
    real = launch.processes.below

    def watch(pids):
        found.update(real(pids))
        return real(pids)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch.processes, "below", watch)
        done = start(FAMILY, tmp_path, timeout=once_it_prints, forward=forward)
    assert done.timed_out and done.output == "up\n" and len(found) == 2
    assert not any(processes.birth(pid) == born for pid, born in found.items())


NOTE = """
import os, sys
sys.path.insert(0, {root!r})
from cuptimem.simulation import child
child.start({folder!r})
"""


def with_note(code: str, tmp_path: Path) -> tuple[launch.Run, facts.Facts]:
    """As cuptimem.pth would have started it."""
    folder = str(tmp_path / "0")
    done = start(NOTE.format(root=str(ROOT), folder=folder) + code, tmp_path)
    return done, facts.collect(done)


def test_a_note_has_the_exception_and_its_line(tmp_path):
    code = (
        "class OutOfMemoryError(RuntimeError): pass\n"
        "def f():\n    raise OutOfMemoryError('CUDA out of memory. Tried')\n"
        "try:\n    f()\nexcept RuntimeError as error:\n    raise ValueError('no batch fits') from error\n"
    )
    done, found = with_note(code, tmp_path)
    assert done.exit_code == 1 and found.chain is not None and found.ran_out
    assert [raised.line for raised in found.chain] == [
        "ValueError: no batch fits",
        "__main__.OutOfMemoryError: CUDA out of memory. Tried",
    ]
    assert found.chain[1].at is not None and found.chain[1].at.line == 8 and found.problems == ()
    assert found.report is None and "run.cmem" in found.report_problem


@pytest.mark.parametrize(
    ("code", "ran_out"),
    [
        ("raise MemoryError('out of memory')", False),
        ("raise RuntimeError('CUDA error: out of memory')", True),
        ("raise RuntimeError('CUDA error: invalid argument')", False),
        ("raise RuntimeError('CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`')", True),
        ("raise ValueError('CUDA out of memory is what I print')", False),
    ],
)
def test_which_exceptions_mean_that_a_device_was_full(tmp_path, code, ran_out):
    assert with_note(code, tmp_path)[1].ran_out is ran_out


def test_a_program_that_exits_leaves_no_exception(tmp_path):
    done, found = with_note("try:\n    1/0\nexcept ZeroDivisionError:\n    sys.exit(4)", tmp_path)
    assert done.exit_code == 4 and found.chain is None and len(done.notes) == 1 and done.notes[0]["leader"]


def test_a_crash_leaves_its_line(tmp_path):
    done, found = with_note("import ctypes\nctypes.string_at(1)", tmp_path)
    assert done.signal == signal.SIGSEGV and "string_at" in done.crash and found.problems == ()


def test_a_program_without_note_says_so(tmp_path):
    found = facts.collect(start("pass", tmp_path))
    assert len(found.problems) == 1 and "took no note" in found.problems[0]


def test_the_simulated_part_imports_nothing_that_a_script_could_shadow(tmp_path):
    (tmp_path / "0").mkdir()
    folder = str(tmp_path / "0")
    (tmp_path / "0" / child.SETTINGS).write_text("high_end=0\ntimeout=5\nparent=1\n")
    start = NOTE.format(root=str(ROOT), folder=folder)
    code = f"import sys\nbefore = set(sys.modules)\n{start}\nprint(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    new = set(eval(done.stdout))
    assert {name for name in new if not name.startswith(("cuptimem", "importlib", "_"))} <= {
        "atexit",
        "faulthandler",
        "warnings",
    }, new
