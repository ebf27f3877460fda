"""The witness: when it is there, what it subscribes to, whom it gives way to, and that nothing of it stays."""

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cuptimem import simulator
from tests.conftest import ROOT, Result
from tests.driver import fakes
from tests.simulated import device

HERE = Path(__file__).parent
BEGIN = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(HERE)!r}]\nfrom witness_child import *\n"
TOOLKIT = Path("/usr/local/cuda/lib64/libcupti.so.13")
UNUSED = "CUDA was not used"

Program = Callable[..., dict[str, Any]]


@pytest.fixture
def program(run: Callable[..., Result], tmp_path: Path) -> Program:
    """Runs a program; what it reported, and what was said on standard error."""

    def call(text: str, *, env: Mapping[str, str] | None = None, code: int = 0) -> dict[str, Any]:
        rings = {"CUPTIMEM_RING_DIR": str(tmp_path)}  # of those that are killed
        done = run("-W", "error", "-c", BEGIN + text, env={**rings, **(env or {})})
        assert done.code == code, done.err[-3000:]
        found: dict[str, Any] = json.loads(done.out.splitlines()[-1]) if done.out else {}
        return {**found, "said": done.err.splitlines()}

    return call


@pytest.fixture(scope="session")
def simulated() -> dict[str, str]:
    if any(not path.is_file() for path in simulator.preload()):
        pytest.skip("there is no simulated device here")
    return device.environment(memory="8GiB")


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver, and a toolkit with three kinds of CUPTI."""
    folder = tmp_path_factory.mktemp("fake")
    fakes.build(folder / "libcuda.so.1", "FAKE_DRIVER")
    fakes.build(folder / "plain/lib64/libcupti.so.13", "FAKE_CUPTI")
    fakes.build(folder / "names/lib64/libcupti.so.13", "FAKE_CUPTI", "FAKE_NAMES")
    fakes.build(folder / "multiple/lib64/libcupti.so.13", "FAKE_CUPTI", "FAKE_NAMES", "FAKE_MULTIPLE")
    fakes.build(folder / "records/lib64/libcupti.so.13", "FAKE_CUPTI", "FAKE_RECORDS")
    fakes.build(folder / "shared/lib64/libcupti.so.13", "FAKE_CUPTI", "FAKE_RECORDS", "FAKE_NAMES")
    fakes.build(folder / "libtorch_cpu.so", "FAKE_TORCH")
    fakes.build(folder / "libcudart.so.13", "FAKE_RUNTIME")
    fakes.build(folder / "libcaller.so", "FAKE_CALLER")
    fakes.build(folder / "libpatience.so", "FAKE_PATIENCE")
    return folder


# --- without CUDA --------------------------------------------------------------------------------------------------


def test_without_cuda_there_is_nothing(program: Program) -> None:
    found = program(
        """
with cuptimem.profile("a.cmem"):
    during = [*state(), witnesses()]
report(during=during, after=witnesses(), driver=driver())
"""
    )
    assert found == {
        "during": ["waiting", "", 0],
        "after": 0,
        "driver": {"driver": "none", "reason": UNUSED},
        "said": [],
    }


def test_out_of_order(program: Program, simulated: dict[str, str]) -> None:
    found = program(
        """
at_first = state()
_core.cupti_stop()
_core.cupti_settle(True)
_core.cupti_start(False, True, 0, 1000, None)
try:
    _core.cupti_start(False, True, 0, 1000, None)
    twice = ""
except OSError as error:
    twice = str(error)
_core.cupti_settle(True)
during = state()
_core.cupti_stop()
_core.cupti_stop()
try:
    _core.cupti_start(False, True, 0, 1000, 3)
except TypeError as error:
    uncallable = str(error)
report(at_first=at_first, twice=twice, during=during, after=witnesses(), uncallable=uncallable)
""",
        env=simulated,
    )
    assert found["at_first"] == ["off", ""] and found["during"] == ["callbacks", ""] and found["after"] == 0
    assert "already" in found["twice"] and "callable" in found["uncallable"] and found["said"] == []


def test_turned_off(program: Program, simulated: dict[str, str]) -> None:
    found = program(
        """
with cuptimem.profile("a.cmem", driver=False):
    during = [*state(), witnesses()]
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


# --- a device that is there ----------------------------------------------------------------------------------------

CLIENT = """
api = ctypes.CDLL(None)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
nobody = CALLBACK(lambda *_: None)

class Names(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("old", ctypes.c_char_p),
                ("old_size", ctypes.c_size_t), ("multiple", ctypes.c_uint8)]

def subscribe(name=None):
    handle = ctypes.c_void_p()
    if name is None:
        return api.cuptiSubscribe(ctypes.byref(handle), nobody, None), handle
    asked = Names(size=32, name=name)
    return api.cuptiSubscribe_v2(ctypes.byref(handle), nobody, None, ctypes.byref(asked)), handle
"""


def test_it_subscribes_and_lets_go(program: Program, simulated: dict[str, str]) -> None:
    found = program(
        CLIENT
        + """
with cuptimem.profile("a.cmem"):
    during = [*state(), witnesses(), subscribe()[0]]
    pointer = ctypes.c_void_p()
    api.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
after = [witnesses(), subscribe()[0]]
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


def test_many_short_profiles(program: Program, simulated: dict[str, str]) -> None:
    found = program(
        CLIENT
        + """
modes, files = [], []
for turn in range(20):
    with cuptimem.profile("a.cmem", overwrite=True):
        modes.append(state()[0])
    files.append(len(os.listdir("/proc/self/fd")))
report(modes=sorted(set(modes)), files=len(set(files[2:])), witnesses=witnesses(), free=subscribe()[0])
""",
        env=simulated,
    )
    assert found == {"modes": ["callbacks"], "files": 1, "witnesses": 0, "free": 0, "said": []}


def test_a_window_inside_asks_for_kernels(program: Program, simulated: dict[str, str]) -> None:
    found = program(
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


def test_a_window_inside_has_moments_of_its_own(program: Program, simulated: dict[str, str]) -> None:
    """Though nothing moves in it: one with a path asks at its end, others are asked within a fifth of a second."""
    found = program(
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
def test_another_profiler_holds_the_subscription(
    program: Program, simulated: dict[str, str], name: bytes | None
) -> None:
    found = program(
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
report(first=first, during=during, gave=gave, freed=freed, later=later, driver=driver(), witnesses=witnesses())
""",
        env=simulated,
    )
    assert found["first"] == found["gave"] == found["freed"] == 0
    mode, reason = found["during"]
    assert mode == "slots" and "holds CUPTI: error 39" in reason
    assert reason.startswith("another profiler, Nsight Somewhere," if name else "another profiler holds")
    assert found["driver"]["driver"] == "slots" and found["driver"]["reason"] == reason
    assert found["said"] == [f"cuptimem: memory that libraries take from CUDA by themselves is not recorded: {reason}"]
    assert found["later"] == "callbacks" and found["witnesses"] == 0


def test_a_fork_by_python(program: Program, simulated: dict[str, str]) -> None:
    found = program(
        CLIENT
        + """
at_fork = []
os.register_at_fork(before=lambda: at_fork.append(witnesses()))  # called after cuptimem's, which comes later
profile = cuptimem.profile("a.cmem")
profile.start()
before = witnesses()
child = os.fork()
if child == 0:
    inherited = [*state(), witnesses()]
    with cuptimem.profile("b.cmem"):
        own = [state()[0], witnesses()]
    Path("child").write_text(repr((inherited, own, witnesses())))
    os._exit(0)
os.waitpid(child, 0)
back = soon(lambda: witnesses() == 1)
pointer = ctypes.c_void_p()
api.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
still = state()[0]
profile.stop()
report(before=before, at_fork=at_fork, back=back, still=still, child=Path("child").read_text(), after=witnesses(),
       callbacks=int(driver()["callbacks"]))
""",
        env=simulated,
    )
    assert found["before"] == 1 and found["at_fork"] == [0] and found["back"] and found["still"] == "callbacks"
    assert found["child"] == "(['off', '', 0], ['callbacks', 1], 0)"
    assert found["after"] == 0 and found["callbacks"] >= 1 and found["said"] == []


def test_a_fork_by_c(program: Program, simulated: dict[str, str]) -> None:
    """No handler of Python's runs; the witness is gone without a word, and callbacks find nobody recording."""
    found = program(
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
    os._exit(0 if state() == ["off", ""] and witnesses() == 0 else 1)
code = os.waitpid(child, 0)[1]
alive = witnesses()
profile.stop()
report(code=code, alive=alive, after=witnesses(), mode=driver()["driver"])
""",
        env=simulated,
    )
    assert (found["code"], found["alive"], found["after"], found["mode"]) == (0, 1, 0, "callbacks")
    assert found["said"] == []


def test_stop_from_another_thread_while_one_allocates(program: Program, simulated: dict[str, str]) -> None:
    found = program(
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
after = [witnesses(), subscribe()[0]]
ended.set()
for thread in threads:
    thread.join()
report(after=after, driver=driver()["driver"])
""",
        env=simulated,
    )
    assert found == {"after": [0, 0], "driver": "callbacks", "said": []}


def test_a_killed_process_has_said_how_it_recorded(program: Program, simulated: dict[str, str], tmp_path: Path) -> None:
    program(
        'profile = cuptimem.profile("a.cmem"); profile.start(); os.kill(os.getpid(), 9)',
        env=simulated,
        code=-signal.SIGKILL,
    )
    from cuptimem import _core

    assert _core.trace_meta(str(tmp_path / "a.cmem"))["driver"] == "callbacks"


def test_exit_by_c_while_recording(program: Program, simulated: dict[str, str]) -> None:
    """Neither Python's end nor ours comes before CUDA's."""
    found = program(
        'profile = cuptimem.profile("a.cmem"); profile.start(); report(mode=state()[0]); ctypes.CDLL(None).exit(7)',
        env=simulated,
        code=7,
    )
    assert found["mode"] == "callbacks"


# --- torch.profiler --------------------------------------------------------------------------------------------------

TORCH = """
torch = ctypes.CDLL({folder!r} + "/libtorch_cpu.so", mode=ctypes.RTLD_GLOBAL)
profile = cuptimem.profile("a.cmem")
profile.start()
began = [*state(), _core.cupti_state()["activity"]]

def allocate():
    pointer = ctypes.c_void_p()
    api.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
    _core.cupti_settle(False)
    found = _core.cupti_state()
    return [found["callbacks"], found["records"]]

def found(**more):
    after = [*state(), _core.cupti_state()["activity"], witnesses()]
    profile.stop()
    report(began=began, after=after, driver=driver(), **more)
"""


def test_it_gives_way_to_a_subscriber(program: Program, simulated: dict[str, str], fake: Path) -> None:
    found = program(
        CLIENT
        + TORCH.format(folder=str(fake))
        + """
first = allocate()
result = [torch.torch_subscribe(), torch.torch_record(1)]
second = allocate()
found(first=first, second=second, result=result)
""",
        env=simulated,
    )
    assert found["began"] == ["callbacks", "", True] and found["result"] == [0, 0]
    reason = "torch.profiler asked for CUPTI and keeps it"
    assert found["after"] == ["slots", reason, False, 1]
    assert found["first"][0] >= 1 and found["first"][1] >= 1 and found["second"] == found["first"]
    assert found["driver"]["driver"] == "slots" and found["driver"]["callbacks"] == str(found["first"][0])
    assert found["said"] == [f"cuptimem: memory that libraries take from CUDA by themselves is not recorded: {reason}"]


def test_it_gives_up_its_records_alone(program: Program, simulated: dict[str, str], fake: Path) -> None:
    """A torch.profiler that subscribes to nothing: callbacks go on."""
    found = program(
        CLIENT
        + TORCH.format(folder=str(fake))
        + """
first = allocate()
result = [torch.torch_record(1), torch.torch_record(2)]
second = allocate()
found(first=first, second=second, result=result)
""",
        env=simulated,
    )
    assert found["result"] == [0, 0] and found["said"] == []
    assert found["after"] == ["callbacks", "torch.profiler asked for CUPTI's records", False, 1]
    assert found["second"][0] > found["first"][0] and found["second"][1] == found["first"][1] >= 1
    assert found["driver"]["activity"] == "no" and found["driver"]["driver"] == "callbacks"


def test_it_is_not_detached_without_a_word(program: Program, simulated: dict[str, str], fake: Path) -> None:
    found = program(
        CLIENT + TORCH.format(folder=str(fake)) + "found(result=torch.torch_finalize(), free=subscribe()[0])",
        env=simulated,
    )
    assert found["result"] == found["free"] == 0 and found["after"][0] == "slots"


@pytest.mark.parametrize("kernels", [False, True])
def test_a_torch_profiler_that_records_already_keeps_its_buffers(program: Program, fake: Path, kernels: bool) -> None:
    """One without a subscription is not refused anything, and would not learn that its records go elsewhere."""
    ours = START.format(folder=str(fake)).replace('("a.cmem")', f'("a.cmem", kernels={kernels})')
    found = program(
        f"""
from types import ModuleType
profiler = sys.modules["torch.autograd.profiler"] = ModuleType("profiler")
profiler._is_profiler_enabled = True
{ours}
theirs = [value("fake_registered"), value("fake_multiple"), driver()]
profiler._is_profiler_enabled = False
with cuptimem.profile("b.cmem"):
    pass
report(theirs=theirs, registered=value("fake_registered"), after=driver("b.cmem"))
""",
        env={"CUDA_HOME": str(fake / "shared")},
    )
    registered, multiple, told = found["theirs"]
    assert (registered, multiple, told["driver"], told["activity"]) == (0, 0, "callbacks", "no")
    assert "torch.profiler was recording" in told["reason"]
    assert found["said"] == ([f"cuptimem: kernels are not recorded from now on: {told['reason']}"] if kernels else [])
    assert (found["registered"], found["after"]["activity"], found["after"]["reason"]) == (1, "yes", "")


def test_it_comes_back_in_the_next_profile(program: Program, simulated: dict[str, str], fake: Path) -> None:
    found = program(
        CLIENT
        + TORCH.format(folder=str(fake))
        + """
result = [torch.torch_subscribe(), torch.torch_unsubscribe()]
profile.stop()
with cuptimem.profile("b.cmem"):
    pass
report(result=result, first=driver()["driver"], second=driver("b.cmem")["driver"])
""",
        env=simulated,
    )
    assert (found["result"], found["first"], found["second"]) == ([0, 0], "slots", "callbacks")


def test_the_interface_for_several_makes_room_for_the_old_one(program: Program, fake: Path) -> None:
    found = program(
        f"""
cuda = ctypes.CDLL({str(fake / "libcuda.so.1")!r})
cuda.cuInit(0)
cupti = ctypes.CDLL({str(fake / "multiple/lib64/libcupti.so.13")!r}, mode=ctypes.RTLD_GLOBAL)
value = lambda name: ctypes.c_int.in_dll(cupti, name).value
"""
        + TORCH.format(folder=str(fake))
        + """
several = _core.cupti_state()["v2"]
torch.torch_record(1)
again = soon(lambda: state()[0] == "callbacks")
counts = [value("fake_subscribed"), value("fake_unsubscribed"), value("fake_multiple"), value("fake_registered")]
found(several=several, again=again, counts=counts, v2=_core.cupti_state()["v2"])
"""
    )
    assert found["several"] and found["again"] and not found["v2"]
    assert found["counts"] == [2, 1, 1, 1], "by the old interface, and without its records, which have one user"
    assert found["after"][:2] == ["callbacks", "torch.profiler asked for CUPTI's records"]


# --- libraries that are not quite there ----------------------------------------------------------------------------


def test_cuda_arrives_later_and_is_not_initialised_by_us(program: Program, fake: Path) -> None:
    found = program(
        f"""
with cuptimem.profile("a.cmem"):
    at_first = [*state(), witnesses()]
    cuda = ctypes.CDLL({str(fake / "libcuda.so.1")!r})
    came = soon(lambda: witnesses() == 1)
    import time
    time.sleep(0.1)
    loaded = "libcupti" in Path("/proc/self/maps").read_text()
    untouched = [*state(), loaded, cuda.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p()))]
    cuda.cuInit(0)
    subscribed = soon(lambda: state()[0] == "callbacks")
    cupti = ctypes.CDLL({str(fake / "plain/lib64/libcupti.so.13")!r})
    value = lambda name: ctypes.c_int.in_dll(cupti, name).value
    on = value("fake_enabled")
report(at_first=at_first, came=came, untouched=untouched, subscribed=subscribed, on=on,
       counts=[value("fake_subscribed"), value("fake_unsubscribed"), value("fake_enabled")], after=witnesses(),
       driver=driver())
""",
        env={"CUDA_HOME": str(fake / "plain")},
    )
    assert found["at_first"] == ["waiting", "", 0] and found["came"]
    assert found["untouched"] == ["waiting", "", False, 3]
    assert found["subscribed"] and found["on"] > 0
    assert found["counts"] == [1, 1, 0] and found["after"] == 0
    assert found["driver"]["cupti"] == f"CUPTI 13.0 (130000), {fake}/plain/lib64/libcupti.so.13"
    assert found["driver"]["driver"] == "callbacks"


START = """
cuda = ctypes.CDLL({folder!r} + "/libcuda.so.1")
cuda.cuInit(0)
with cuptimem.profile("a.cmem"):
    during = state()
cupti = None
for line in Path("/proc/self/maps").read_text().splitlines():
    if "libcupti.so" in line:
        cupti = ctypes.CDLL(line.split()[-1])
value = lambda name: ctypes.c_int.in_dll(cupti, name).value if hasattr(cupti, name) else None
"""


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (15, ("driver is older", "update the driver")),
        (33, ("virtual GPU", "settings")),
        (35, ("administrator", "NVreg_RestrictProfilingToAdminUsers=0")),
        (41, ("confidential", "devtools")),
        (43, ("MIG", "whole GPU")),
        (999, ("does not reach the NVIDIA driver", "--gpus all")),
        (1234, ("refuses", "nvidia-smi")),
        (12, ("another profiler holds CUPTI", "torch.profiler")),
    ],
)
def test_refusals_are_named(program: Program, fake: Path, result: int, words: tuple[str, str]) -> None:
    found = program(
        START.format(folder=str(fake))
        + "report(during=during, driver=driver(), left=[witnesses(), value('fake_unsubscribed')])",
        env={"CUDA_HOME": str(fake / "plain"), "FAKE_RESULT": str(result)},
    )
    mode, reason = found["during"]
    assert mode == "slots" and f"error {result}" in reason and all(word in reason for word in words), reason
    assert found["driver"]["driver"] == "slots" and found["driver"]["reason"] == reason
    assert found["left"] == [0, 0]
    assert found["said"] == [f"cuptimem: memory that libraries take from CUDA by themselves is not recorded: {reason}"]


def test_a_cupti_without_callbacks_is_given_back(program: Program, fake: Path) -> None:
    found = program(
        START.format(folder=str(fake))
        + "report(during=during, counts=[value('fake_subscribed'), value('fake_unsubscribed')])",
        env={"CUDA_HOME": str(fake / "plain"), "FAKE_DEAF": "1"},
    )
    assert found["during"][0] == "slots" and "none of the callbacks" in found["during"][1]
    assert found["counts"] == [1, 1]


def test_what_cupti_takes_for_itself_is_not_the_programs(program: Program, fake: Path) -> None:
    """On the witness's thread, and on the program's where that ends the subscription: between pause and resume."""
    found = program(
        START.format(folder=str(fake))
        + """
with cuptimem.profile("b.cmem"):
    _core.capture_fork_pause()
    before = value("fake_flushed")
    _core.cupti_stop()
    alone = value("fake_flushed") - before
    _core.capture_fork_resume()
taken = [_core.analyze(path)["driver"]["allocations"] for path in ("a.cmem", "b.cmem")]
report(flushed=before, alone=alone, taken=taken, callbacks=driver()["callbacks"])
""",
        env={"CUDA_HOME": str(fake / "records")},
    )
    assert found["flushed"] > 0 and found["alone"] == 1
    assert (found["taken"], found["callbacks"]) == ([0, 0], "0")


@pytest.mark.parametrize("kernels", [False, True])
def test_kernels_that_are_refused(program: Program, fake: Path, run: Callable[..., Result], kernels: bool) -> None:
    """Memory has its records, so it is not the whole that lacks: who asked for kernels is told."""
    text = START.replace('("a.cmem")', f'("a.cmem", kernels={kernels})')
    found = program(
        text.format(folder=str(fake)) + "report(during=during, driver=driver())",
        env={"CUDA_HOME": str(fake / "records")},
    )
    told = found["driver"]
    assert (told["driver"], told["activity"]) == ("callbacks", "yes")
    if not kernels:
        assert (told["kernels"], told["reason"], found["said"]) == ("no", "", [])
        return
    assert told["kernels"] == "refused" and "CONCURRENT_KERNEL" in told["reason"]
    assert found["said"] == [f"cuptimem: kernels are not recorded from now on: {told['reason']}"]
    shown = run("-m", "cuptimem", "kernels", "a.cmem")
    assert shown.code != 0 and "CONCURRENT_KERNEL" in shown.err and "--kernels" not in shown.err


@pytest.mark.parametrize(
    ("kind", "more", "mode", "v2", "size", "counts"),
    [
        ("names", {}, "callbacks", False, 32, [1, 1]),
        ("multiple", {}, "callbacks", True, 40, [1, 1]),
        ("multiple", {"FAKE_RESULT_V2": "27"}, "callbacks", False, 40, [1, 1]),  # the driver is too old for it
        ("multiple", {"FAKE_RESULT_V2": "39", "FAKE_HOLDER": "x" * 80}, "slots", False, 40, [0, 0]),
        ("multiple", {"FAKE_VERSION": "130200"}, "callbacks", False, 32, [1, 1]),  # there it slows everything
    ],
)
def test_ways_to_subscribe(
    program: Program,
    fake: Path,
    kind: str,
    more: dict[str, str],
    mode: str,
    v2: bool,
    size: int,
    counts: list[int],
) -> None:
    found = program(
        START.format(folder=str(fake))
        + "report(during=during, v2=_core.cupti_state()['v2'], size=value('fake_size'),"
        + " counts=[value('fake_subscribed'), value('fake_unsubscribed')])",
        env={"CUDA_HOME": str(fake / kind), **more},
    )
    assert (found["during"][0], found["v2"], found["size"], found["counts"]) == (mode, v2, size, counts)
    if mode == "slots":
        assert f"another profiler, {'x' * 63}, holds CUPTI" in found["during"][1]


def test_a_slow_subscription_keeps_nobody_waiting(program: Program, fake: Path) -> None:
    found = program(
        f"""
cuda = ctypes.CDLL({str(fake / "libcuda.so.1")!r})
cuda.cuInit(0)
profile = cuptimem.profile("a.cmem")
profile.start()
started = state()[0]
cupti = ctypes.CDLL({str(fake / "plain/lib64/libcupti.so.13")!r})
value = lambda name: ctypes.c_int.in_dll(cupti, name).value
profile.stop()
report(started=started, counts=[value("fake_subscribed"), value("fake_unsubscribed")], after=witnesses())
""",
        env={"CUDA_HOME": str(fake / "plain"), "FAKE_DELAY_MS": "1800"},
    )
    assert found == {"started": "starting", "counts": [1, 1], "after": 0, "said": []}


def test_one_that_never_answers(program: Program, fake: Path) -> None:
    """The profile ends without it, and says so; the next one finds it still there."""
    found = program(
        f"""
cuda = ctypes.CDLL({str(fake / "libcuda.so.1")!r})
cuda.cuInit(0)
for name in "ab":
    with cuptimem.profile(f"{{name}}.cmem"):
        pass
report(first=driver(), second=driver("b.cmem"))
os._exit(0)
""",
        env={"CUDA_HOME": str(fake / "plain"), "FAKE_DELAY_MS": "60000"},
    )
    assert found["first"]["driver"] == "slots" and found["first"]["reason"] == "CUPTI did not answer in time"
    assert found["second"]["driver"] == "none" and "not let go" in found["second"]["reason"]
    assert len(found["said"]) == 2


def test_torch_profiler_asks_while_a_fork_goes_on(program: Program, fake: Path) -> None:
    """The witness is to give up its records and to leave: it does both."""
    found = program(
        f"""
import threading
fake = Path({str(fake)!r})
ctypes.CDLL(str(fake / "libcuda.so.1")).cuInit(0)
cupti = ctypes.CDLL(str(fake / "records/lib64/libcupti.so.13"), os.RTLD_GLOBAL | os.RTLD_NOW)
value = lambda name: ctypes.c_int.in_dll(cupti, name).value
torch = ctypes.CDLL(str(fake / "libtorch_cpu.so"))
with cuptimem.profile("a.cmem"):
    on, flushed = value("fake_on"), value("fake_flushed")
    busy = threading.Thread(target=_core.cupti_settle, args=(False,))
    busy.start()
    assert soon(lambda: value("fake_flushed") > flushed)
    asks = threading.Thread(target=torch.torch_record, args=(3,))
    asks.start()
    time.sleep(0.1)
    _core.capture_fork_pause()
    asks.join()
    on_then = value("fake_on_then")
    _core.capture_fork_resume()
    busy.join()
    after = state()
report(on=[on, on_then], registered=value("fake_registered"), after=after)
""",
        env={"CUDA_HOME": str(fake / "records"), "FAKE_FLUSH_MS": "600"},
    )
    assert (found["on"], found["registered"]) == ([2, 0], 2)
    assert found["after"] == ["callbacks", "torch.profiler asked for CUPTI's records"]


def test_torch_profiler_does_not_wait_again_for_one_that_hangs(program: Program, fake: Path) -> None:
    """It asks a dozen times as it starts, and holds the GIL."""
    found = program(
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
            "FAKE_DELAY_MS": "60000",
            "LD_PRELOAD": str(fake / "libpatience.so"),
        },
    )
    assert (found["waited"], found["mode"]) == ([1, 1, 1], "starting")


def test_a_thread_that_cannot_be_started_is_tried_again(program: Program, fake: Path) -> None:
    """In the next profile: this one has its tensors, and says what lacks."""
    found = program(
        f"""
import resource
ctypes.CDLL({str(fake / "libcuda.so.1")!r}).cuInit(0)
start, (_, most) = _core.cupti_start, resource.getrlimit(resource.RLIMIT_AS)
def without_room(*words):
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


def test_words_that_are_no_text_are_said_all_the_same(program: Program, fake: Path) -> None:
    """The name of who holds CUPTI comes from there; a reason is cut where its room ends."""
    found = program(
        START.format(folder=str(fake)) + "report(during=during, driver=driver())",
        env={
            "CUDA_HOME": str(fake / "names"),
            "FAKE_RESULT": "39",
            "FAKE_HOLDER": os.fsdecode(b"caf\xe9"),
        },
    )
    assert found["driver"]["driver"] == "slots"
    assert "another profiler, caf\\xe9, holds CUPTI" in found["driver"]["reason"] == found["during"][1]
    assert len(found["said"]) == 1


def test_cuda_used_right_before_the_end(program: Program, fake: Path) -> None:
    """Between two looks of ours: it is not said that it was not used."""
    found = program(
        f"""
with cuptimem.profile("a.cmem"):
    cuda = ctypes.CDLL({str(fake / "libcuda.so.1")!r})
    cuda.cuInit(0)
with cuptimem.profile("b.cmem"):
    pass
report(first=driver()["driver"], second=driver("b.cmem")["driver"], after=witnesses())
""",
        env={"CUDA_HOME": str(fake / "plain")},
    )
    assert found == {"first": "callbacks", "second": "callbacks", "after": 0, "said": []}


def test_forks_do_not_wait_again_for_one_that_hangs(program: Program, fake: Path) -> None:
    found = program(
        f"""
cuda = ctypes.CDLL({str(fake / "libcuda.so.1")!r})
cuda.cuInit(0)
with cuptimem.profile("a.cmem"):
    waited = []
    for _ in range(4):
        before = time.monotonic()
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        waited.append(time.monotonic() - before > 1)
    waiting = witnesses()
    came = soon(lambda: state()[0] == "callbacks")
threads = len(os.listdir("/proc/self/task"))
report(waited=waited, waiting=waiting, came=came, threads=threads)
""",
        env={"CUDA_HOME": str(fake / "plain"), "FAKE_DELAY_MS": "5000"},
    )
    assert found["waited"] == [True, False, False, False]
    assert found["came"] and found["threads"] == 1


def test_slots_record_from_the_runtime_on(program: Program, fake: Path) -> None:
    """The driver comes with the first call: what that gives out is not there for callbacks."""
    found = program(
        f"""
fake = Path({str(fake)!r})
ctypes.CDLL(str(fake / "libcudart.so.13"), os.RTLD_GLOBAL | os.RTLD_NOW)
caller = ctypes.CDLL(str(fake / "libcaller.so"))
with cuptimem.profile("a.cmem"):
    at_first = [*state(), witnesses()]
    taken = caller.caller_take(ctypes.c_size_t(4096))
    ctypes.CDLL(str(fake / "libcuda.so.1")).cuInit(0)
    came = soon(lambda: state()[0] == "callbacks")
(row,) = _core.analyze("a.cmem")["driver"]["devices"]
report(at_first=at_first, taken=taken, came=came, live=[[one["library"], one["bytes"]] for one in row["live"]])
""",
        env={"CUDA_HOME": str(fake / "plain")},
    )
    assert found["at_first"] == ["waiting", "", 0] and found["taken"] == 0 and found["came"]
    assert found["live"] == [["libcaller.so", 4096]]


def test_two_hundred_profiles_leave_nothing(program: Program, simulated: dict[str, str]) -> None:
    found = program(
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


def test_which_library(program: Program, fake: Path, tmp_path: Path) -> None:
    """What is loaded comes first, then a wheel beside CUDA's runtime, then the toolkit; never another major release."""
    site = tmp_path / "site"
    runtime = fakes.build(site / "nvidia/cuda_runtime/lib/libcudart.so.12", "FAKE_RUNTIME")
    beside = fakes.build(site / "nvidia/cuda_cupti/lib/libcupti.so.12", "FAKE_CUPTI")
    newer = fakes.build(tmp_path / "newer/nvidia/cu13/lib/libcudart.so.13", "FAKE_RUNTIME")
    together = fakes.build(newer.with_name("libcupti.so.13"), "FAKE_CUPTI")
    odd = fakes.build(tmp_path / "odd/libcupti-1234.so.11.8", "FAKE_CUPTI")
    ask = """
for path in {load!r}:
    ctypes.CDLL(path)
found = _core.cupti_probe()
report(path=found["path"], why=found["why"], version=found["version"])
"""
    home = {"CUDA_HOME": str(fake / "plain")}
    driver = str(fake / "libcuda.so.1")
    for load, expected in (
        ([driver], fake / "plain/lib64/libcupti.so.13"),
        ([driver, str(runtime)], beside),
        ([driver, str(newer)], together),
        ([driver, str(runtime), str(odd)], odd),
    ):
        found = program(ask.format(load=load), env=home)
        assert (os.path.realpath(found["path"]), found["why"]) == (str(expected), ""), load
        assert found["version"] == 130000
    old = program(ask.format(load=[driver]), env={**home, "FAKE_DRIVER_VERSION": "11080"})
    assert old["path"] == "" and "pip install nvidia-cuda-cupti-cu11" in old["why"]


@pytest.mark.skipif(not TOOLKIT.exists(), reason="there is no CUDA toolkit here")
def test_the_vendors_own_without_a_driver(program: Program, fake: Path) -> None:
    found = program(START.format(folder=str(fake)) + "report(during=during)", env={"CUDA_HOME": "/usr/local/cuda"})
    mode, reason = found["during"]
    assert mode == "slots" and "error 999" in reason and "NVIDIA driver" in reason
