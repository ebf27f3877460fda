"""The CUPTI thread beside torch.profiler, played by a library: which of the two has CUPTI, and when that changes."""

from pathlib import Path

import pytest

from tests.record.driver.cupti_parts import CLIENT, START, Child

TORCH = """
torch = ctypes.CDLL({folder!r} + "/libtorch_cpu.so", mode=ctypes.RTLD_GLOBAL)
profile = cuptimem.profile("a.cmem")
profile.start()
began = [*state(), _core.cupti_state()["activity"]]

def allocate():
    pointer = ctypes.c_void_p()
    api.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
    _core.cupti_flush(False)
    found = _core.cupti_state()
    return [found["callbacks"], found["records"]]

def found(**more):
    after = [*state(), _core.cupti_state()["activity"], cupti_threads()]
    profile.stop()
    report(began=began, after=after, driver=driver(), **more)
"""


def test_it_gives_way_to_a_subscriber(child: Child, simulated: dict[str, str], fake: Path) -> None:
    found = child(
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


def test_it_gives_up_its_records_alone(child: Child, simulated: dict[str, str], fake: Path) -> None:
    """A torch.profiler that subscribes to nothing: callbacks go on."""
    found = child(
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


def test_it_is_not_detached_without_a_word(child: Child, simulated: dict[str, str], fake: Path) -> None:
    found = child(
        CLIENT + TORCH.format(folder=str(fake)) + "found(result=torch.torch_finalize(), free=subscribe()[0])",
        env=simulated,
    )
    assert found["result"] == found["free"] == 0 and found["after"][0] == "slots"


@pytest.mark.parametrize("kernels", [False, True])
def test_a_torch_profiler_that_records_already_keeps_its_buffers(child: Child, fake: Path, kernels: bool) -> None:
    """One without a subscription is not refused anything, and would not learn that its records go elsewhere."""
    ours = START.format(folder=str(fake)).replace('("a.cmem")', f'("a.cmem", kernels={kernels})')
    found = child(
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


def test_it_comes_back_in_the_next_profile(child: Child, simulated: dict[str, str], fake: Path) -> None:
    found = child(
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


def test_the_interface_for_several_makes_room_for_the_old_one(child: Child, fake: Path) -> None:
    found = child(
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
