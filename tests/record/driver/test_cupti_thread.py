"""The CUPTI thread: when it is there, what it subscribes to, and that none of it stays after stops, forks and ends."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Result
from tests.record.driver.cupti_parts import CLIENT, Child

UNUSED = "CUDA was not used"


def test_without_cuda_there_is_nothing(child: Child) -> None:
    found = child(
        """
with cuptimem.profile("a.cmem"):
    during = [*state(), cupti_threads()]
report(during=during, after=cupti_threads(), driver=driver())
"""
    )
    assert found == {
        "during": ["waiting", "", 0],
        "after": 0,
        "driver": {"driver": "none", "reason": UNUSED},
        "said": [],
    }


def test_out_of_order(child: Child, simulated: dict[str, str]) -> None:
    found = child(
        """
at_first = state()
_core.cupti_stop()
_core.cupti_flush(True)
_core.cupti_start(False, True, 0, 1000, None)
try:
    _core.cupti_start(False, True, 0, 1000, None)
    twice = ""
except OSError as error:
    twice = str(error)
_core.cupti_flush(True)
during = state()
_core.cupti_stop()
_core.cupti_stop()
try:
    _core.cupti_start(False, True, 0, 1000, 3)
except TypeError as error:
    uncallable = str(error)
report(at_first=at_first, twice=twice, during=during, after=cupti_threads(), uncallable=uncallable)
""",
        env=simulated,
    )
    assert found["at_first"] == ["off", ""] and found["during"] == ["callbacks", ""] and found["after"] == 0
    assert "already" in found["twice"] and "callable" in found["uncallable"] and found["said"] == []


def test_turned_off(child: Child, simulated: dict[str, str]) -> None:
    found = child(
        """
with cuptimem.profile("a.cmem", driver=False):
    during = [*state(), cupti_threads()]
refused = ""
try:
    cuptimem.profile(kernels=True, driver=False)
except ValueError as error:
    refused = str(error)
report(during=during, refused=refused, driver=driver())
""",
        env=simulated,
    )
    assert found["during"] == ["off", "", 0] and found["said"] == []
    assert found["driver"] == {"driver": "none", "reason": "it was turned off (driver=False, --no-driver)"}
    assert "driver=False" in found["refused"]


def test_the_options_of_run(run: Callable[..., Result], simulated: dict[str, str], tmp_path: Path) -> None:
    show = "from cuptimem import _core; s = _core.cupti_state(); print(s['mode'], s['kernels'])"
    for options, printed in (
        ((), "callbacks False"),
        (("--kernels",), "callbacks True"),
        (("--no-driver",), "off False"),
    ):
        done = run("-m", "cuptimem", "run", "-q", "-f", "-o", "a.cmem", *options, "-c", show, env=simulated)
        assert (done.code, done.out.strip(), done.err) == (0, printed, "")
    both = run("-m", "cuptimem", "run", "--kernels", "--no-driver", "-c", "pass")
    assert both.code == 2 and "--kernels" in both.err
    (tmp_path / "a.cmem").unlink()
    started = {**simulated, "CUPTIMEM": "1", "CUPTIMEM_OUTPUT": "a.cmem", "CUPTIMEM_QUIET": "1"}
    for more, printed in (({"CUPTIMEM_KERNELS": "1"}, "callbacks True"), ({"CUPTIMEM_NO_DRIVER": "1"}, "off False")):
        done = run("-c", show, env={**started, "CUPTIMEM_OVERWRITE": "1", **more})
        assert (done.code, done.out.strip(), done.err) == (0, printed, "")


# --- a device that is there ------------------------------------------------------------------------------------------


def test_it_subscribes_and_lets_go(child: Child, simulated: dict[str, str]) -> None:
    found = child(
        CLIENT
        + """
with cuptimem.profile("a.cmem"):
    during = [*state(), cupti_threads(), subscribe()[0]]
    pointer = ctypes.c_void_p()
    api.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
after = [cupti_threads(), subscribe()[0]]
report(during=during, after=after, driver=driver())
""",
        env=simulated,
    )
    assert found["during"] == ["callbacks", "", 1, 39] and found["after"] == [0, 0] and found["said"] == []
    assert found["driver"]["driver"] == "callbacks" and found["driver"]["reason"] == ""
    assert found["driver"]["cupti"].startswith("CUPTI 13.0 (130001), /")
    assert found["driver"]["cupti"].endswith("/libcuptimem_sim.so")
    assert found["driver"]["activity"] == "yes" and found["driver"]["kernels"] == "no"
    assert int(found["driver"]["callbacks"]) >= 1 and int(found["driver"]["records"]) >= 1


def test_many_short_profiles(child: Child, simulated: dict[str, str]) -> None:
    found = child(
        CLIENT
        + """
modes, files = [], []
for turn in range(20):
    with cuptimem.profile("a.cmem", overwrite=True):
        modes.append(state()[0])
    files.append(len(os.listdir("/proc/self/fd")))
report(modes=sorted(set(modes)), files=len(set(files[2:])), cupti_threads=cupti_threads(), free=subscribe()[0])
""",
        env=simulated,
    )
    assert found == {"modes": ["callbacks"], "files": 1, "cupti_threads": 0, "free": 0, "said": []}


def test_a_window_inside_asks_for_kernels(child: Child, simulated: dict[str, str]) -> None:
    found = child(
        """
with cuptimem.profile("a.cmem"), cuptimem.profile("b.cmem", kernels=True):
    pass
report(kernels=driver("b.cmem")["kernels"])
""",
        env=simulated,
    )
    assert found["kernels"] == "no"
    assert found["said"] == [
        "cuptimem: kernels are not recorded: the profile that this one lies in was started without them"
    ]


def test_a_window_inside_has_moments_of_its_own(child: Child, simulated: dict[str, str]) -> None:
    """Though nothing moves in it: one with a path asks at its end, others are asked within a fifth of a second."""
    found = child(
        """
cuda = ctypes.CDLL("libcudart.so.13")
assert cuda.cudaFree(None) == 0
with cuptimem.profile("a.cmem") as outer:
    time.sleep(0.4)
    with cuptimem.profile("b.cmem") as short:
        pass
    with cuptimem.profile() as longer:
        assert soon(lambda: longer.report.ledgers)
rows = [[row.what for row in prof.report.ledgers] for prof in (outer, short, longer)]
rows.append([row.what for row in cuptimem.open("b.cmem").ledgers])
report(rows=rows, used=len({row.used for prof in (outer, short, longer) for row in prof.report.ledgers}))
""",
        env=simulated,
    )
    assert found["rows"] == [["peak", "end"]] * 4 and found["used"] == 1


@pytest.mark.parametrize("name", [None, b"Nsight Somewhere"])
def test_another_profiler_holds_the_subscription(child: Child, simulated: dict[str, str], name: bytes | None) -> None:
    found = child(
        CLIENT
        + f"""
first, handle = subscribe({name!r})
with cuptimem.profile("a.cmem"):
    during = state()
    pointer = ctypes.c_void_p()
    gave = api.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
freed = api.cuptiUnsubscribe(handle)
with cuptimem.profile("b.cmem"):
    later = state()[0]
report(first=first, during=during, gave=gave, freed=freed, later=later, driver=driver(), cupti_threads=cupti_threads())
""",
        env=simulated,
    )
    assert found["first"] == found["gave"] == found["freed"] == 0
    mode, reason = found["during"]
    assert mode == "slots" and "holds CUPTI: error 39" in reason
    assert reason.startswith("another profiler, Nsight Somewhere," if name else "another profiler holds")
    assert found["driver"]["driver"] == "slots" and found["driver"]["reason"] == reason
    assert found["said"] == [f"cuptimem: memory that libraries take from CUDA by themselves is not recorded: {reason}"]
    assert found["later"] == "callbacks" and found["cupti_threads"] == 0


def test_stop_from_another_thread_while_one_allocates(child: Child, simulated: dict[str, str]) -> None:
    found = child(
        CLIENT
        + """
import threading
profile = cuptimem.profile("a.cmem")
profile.start()
ended = threading.Event()

def allocate():
    pointer = ctypes.c_void_p()
    while not ended.is_set():
        api.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
        api.cudaFree(pointer)

threads = [threading.Thread(target=allocate) for _ in range(3)]
for thread in threads:
    thread.start()
stopper = threading.Thread(target=profile.stop)
stopper.start()
stopper.join()
after = [cupti_threads(), subscribe()[0]]
ended.set()
for thread in threads:
    thread.join()
report(after=after, driver=driver()["driver"])
""",
        env=simulated,
    )
    assert found == {"after": [0, 0], "driver": "callbacks", "said": []}


def test_two_hundred_profiles_leave_nothing(child: Child, simulated: dict[str, str]) -> None:
    found = child(
        """
runtime = ctypes.CDLL(None)
def use():
    with cuptimem.profile("a.cmem", overwrite=True):
        address = ctypes.c_void_p()
        assert runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(4096)) == 0
        assert runtime.cudaFree(address) == 0
def held():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return [len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), pages * 4096 >> 20]
for _ in range(20):
    use()
before = held()
for _ in range(180):
    use()
after = held()
report(before=before, after=after)
""",
        env=simulated,
    )
    assert found["after"][:2] == found["before"][:2]
    assert found["after"][2] - found["before"][2] < 4, "MiB"


# --- forks and ends --------------------------------------------------------------------------------------------------


def test_a_fork_by_python(child: Child, simulated: dict[str, str]) -> None:
    found = child(
        CLIENT
        + """
at_fork = []
os.register_at_fork(before=lambda: at_fork.append(cupti_threads()))  # called after cuptimem's, which comes later
profile = cuptimem.profile("a.cmem")
profile.start()
before = cupti_threads()
child = os.fork()
if child == 0:
    inherited = [*state(), cupti_threads()]
    with cuptimem.profile("b.cmem"):
        own = [state()[0], cupti_threads()]
    Path("child").write_text(repr((inherited, own, cupti_threads())))
    os._exit(0)
os.waitpid(child, 0)
back = soon(lambda: cupti_threads() == 1)
pointer = ctypes.c_void_p()
api.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
still = state()[0]
profile.stop()
report(before=before, at_fork=at_fork, back=back, still=still, child=Path("child").read_text(), after=cupti_threads(),
       callbacks=int(driver()["callbacks"]))
""",
        env=simulated,
    )
    assert found["before"] == 1 and found["at_fork"] == [0] and found["back"] and found["still"] == "callbacks"
    assert found["child"] == "(['off', '', 0], ['callbacks', 1], 0)"
    assert found["after"] == 0 and found["callbacks"] >= 1 and found["said"] == []


def test_a_fork_by_c(child: Child, simulated: dict[str, str]) -> None:
    """No handler of Python's runs; the CUPTI thread is gone without a word, and callbacks find nobody recording."""
    found = child(
        CLIENT
        + """
profile = cuptimem.profile("a.cmem")
profile.start()
api.fork.restype = ctypes.c_int
child = api.fork()
if child == 0:
    pointer = ctypes.c_void_p()
    api.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
    profile.stop()
    os._exit(0 if state() == ["off", ""] and cupti_threads() == 0 else 1)
code = os.waitpid(child, 0)[1]
alive = cupti_threads()
profile.stop()
report(code=code, alive=alive, after=cupti_threads(), mode=driver()["driver"])
""",
        env=simulated,
    )
    assert (found["code"], found["alive"], found["after"], found["mode"]) == (0, 1, 0, "callbacks")
    assert found["said"] == []


def test_a_killed_process_has_said_how_it_recorded(child: Child, simulated: dict[str, str], tmp_path: Path) -> None:
    child(
        'profile = cuptimem.profile("a.cmem"); profile.start(); os.kill(os.getpid(), 9)',
        env=simulated,
        code=-signal.SIGKILL,
    )
    from cuptimem import _core

    assert _core.trace_meta(str(tmp_path / "a.cmem"))["driver"] == "callbacks"


def test_exit_by_c_while_recording(child: Child, simulated: dict[str, str]) -> None:
    """Neither Python's end nor ours comes before CUDA's."""
    found = child(
        'profile = cuptimem.profile("a.cmem"); profile.start(); report(mode=state()[0]); ctypes.CDLL(None).exit(7)',
        env=simulated,
        code=7,
    )
    assert found["mode"] == "callbacks"


def test_cuda_used_right_before_the_end(child: Child, fake: Path) -> None:
    """Between two looks of ours: it is not said that it was not used."""
    found = child(
        f"""
with cuptimem.profile("a.cmem"):
    cuda = ctypes.CDLL({str(fake / "libcuda.so.1")!r})
    cuda.cuInit(0)
with cuptimem.profile("b.cmem"):
    pass
report(first=driver()["driver"], second=driver("b.cmem")["driver"], after=cupti_threads())
""",
        env={"CUDA_HOME": str(fake / "plain")},
    )
    assert found == {"first": "callbacks", "second": "callbacks", "after": 0, "said": []}
