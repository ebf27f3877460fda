"""A CUPTI that is slow, or never answers, and threads that cannot be had: nobody waits long, and nobody twice."""

from pathlib import Path

from tests.record.driver.cupti_parts import Child


def test_a_slow_subscription_keeps_nobody_waiting(child: Child, fake: Path, tmp_path: Path) -> None:
    found = child(
        f"""
import threading
cuda = ctypes.CDLL({str(fake / "libcuda.so.1")!r})
cuda.cuInit(0)
profile = cuptimem.profile("a.cmem")
profile.start()
started = state()[0]
cupti = ctypes.CDLL({str(fake / "plain/lib64/libcupti.so.13")!r})
value = lambda name: ctypes.c_int.in_dll(cupti, name).value
threading.Timer(0.1, Path(os.environ["FAKE_GATE"]).touch).start()
profile.stop()
report(started=started, counts=[value("fake_subscribed"), value("fake_unsubscribed")], after=cupti_threads())
""",
        env={"CUDA_HOME": str(fake / "plain"), "FAKE_GATE": str(tmp_path / "gate")},
    )
    assert found == {"started": "starting", "counts": [1, 1], "after": 0, "said": []}


def test_one_that_never_answers(child: Child, fake: Path) -> None:
    """The profile ends without it, and says so; the next one finds it still there."""
    found = child(
        f"""
cuda = ctypes.CDLL({str(fake / "libcuda.so.1")!r})
cuda.cuInit(0)
for name in "ab":
    with cuptimem.profile(f"{{name}}.cmem"):
        pass
report(first=driver(), second=driver("b.cmem"))
os._exit(0)
""",
        env={"CUDA_HOME": str(fake / "plain"), "FAKE_GATE": str(fake / "never")},
    )
    assert found["first"]["driver"] == "slots" and found["first"]["reason"] == "CUPTI did not answer in time"
    assert found["second"]["driver"] == "none" and "not let go" in found["second"]["reason"]
    assert len(found["said"]) == 2


def test_forks_do_not_wait_again_for_one_that_hangs(child: Child, fake: Path, tmp_path: Path) -> None:
    found = child(
        f"""
cuda = ctypes.CDLL({str(fake / "libcuda.so.1")!r})
cuda.cuInit(0)
waits = ctypes.c_int.in_dll(ctypes.CDLL({str(fake / "libpatience.so")!r}), "fake_main_waits")
with cuptimem.profile("a.cmem"):
    waited = []
    for _ in range(4):
        before = waits.value
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        waited.append(waits.value > before)
    waiting = cupti_threads()
    Path(os.environ["FAKE_GATE"]).touch()
    came = soon(lambda: state()[0] == "callbacks")
threads = len(os.listdir("/proc/self/task"))
report(waited=waited, waiting=waiting, came=came, threads=threads)
""",
        env={
            "CUDA_HOME": str(fake / "plain"),
            "FAKE_GATE": str(tmp_path / "gate"),
            "LD_PRELOAD": str(fake / "libpatience.so"),
        },
    )
    assert found["waited"] == [True, False, False, False]
    assert found["came"] and found["threads"] == 1


def test_torch_profiler_asks_while_a_fork_goes_on(child: Child, fake: Path) -> None:
    """The CUPTI thread is to give up its records and to leave: it does both."""
    found = child(
        f"""
import threading
fake = Path({str(fake)!r})
ctypes.CDLL(str(fake / "libcuda.so.1")).cuInit(0)
cupti = ctypes.CDLL(str(fake / "records/lib64/libcupti.so.13"), os.RTLD_GLOBAL | os.RTLD_NOW)
value = lambda name: ctypes.c_int.in_dll(cupti, name).value
torch = ctypes.CDLL(str(fake / "libtorch_cpu.so"))
with cuptimem.profile("a.cmem"):
    on, flushed = value("fake_on"), value("fake_flushed")
    busy = threading.Thread(target=_core.cupti_flush, args=(False,))
    busy.start()
    assert soon(lambda: value("fake_flushed") > flushed)
    asks = threading.Thread(target=torch.torch_record, args=(3,))
    asks.start()
    time.sleep(0.1)
    _core.fork_before()
    asks.join()
    on_then = value("fake_on_then")
    _core.fork_parent()
    busy.join()
    after = state()
report(on=[on, on_then], registered=value("fake_registered"), after=after)
""",
        env={"CUDA_HOME": str(fake / "records"), "FAKE_FLUSH_MS": "600"},
    )
    assert (found["on"], found["registered"]) == ([2, 0], 2)
    assert found["after"] == ["callbacks", "torch.profiler asked for CUPTI's records"]


def test_torch_profiler_does_not_wait_again_for_one_that_hangs(child: Child, fake: Path) -> None:
    """It asks a dozen times as it starts, and holds the GIL."""
    found = child(
        f"""
fake = Path({str(fake)!r})
ctypes.CDLL(str(fake / "libcuda.so.1")).cuInit(0)
ctypes.CDLL(str(fake / "plain/lib64/libcupti.so.13"), os.RTLD_GLOBAL | os.RTLD_NOW)
torch = ctypes.CDLL(str(fake / "libtorch_cpu.so"))
waits = ctypes.c_int.in_dll(ctypes.CDLL(str(fake / "libpatience.so")), "fake_long_waits")
waited = []
with cuptimem.profile("a.cmem"):
    for _ in range(3):
        torch.torch_record(3)
        waited.append(waits.value)
report(waited=waited, mode=state()[0])
os._exit(0)
""",
        env={
            "CUDA_HOME": str(fake / "plain"),
            "FAKE_GATE": str(fake / "never"),
            "LD_PRELOAD": str(fake / "libpatience.so"),
        },
    )
    assert (found["waited"], found["mode"]) == ([1, 1, 1], "starting")


def test_a_thread_that_cannot_be_started_is_tried_again(child: Child, fake: Path) -> None:
    """In the next profile: this one has its tensors, and says what lacks."""
    found = child(
        f"""
import resource
ctypes.CDLL({str(fake / "libcuda.so.1")!r}).cuInit(0)
start, (_, most) = _core.cupti_start, resource.getrlimit(resource.RLIMIT_AS)
def without_room(*words):
    _core.capture_share()  # the rings have theirs
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now, most))
    try:
        start(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
_core.cupti_start = without_room
with cuptimem.profile("a.cmem"):
    pass
_core.cupti_start = start
with cuptimem.profile("b.cmem"):
    pass
report(first=driver(), second=driver("b.cmem")["driver"])
""",
        env={"CUDA_HOME": str(fake / "plain")},
    )
    assert found["first"]["driver"] == "none" and "cannot be started" in found["first"]["reason"]
    assert found["second"] == "callbacks" and len(found["said"]) == 1
