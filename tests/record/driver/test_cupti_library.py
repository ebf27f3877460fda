"""The CUPTI thread and CUPTIs of every kind: which library it takes, how it subscribes, and what it is refused."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Result
from tests.record.driver import fakes
from tests.record.driver.cupti_parts import START, Child
from tests.vendor import surviving_wheel


def test_which_library(child: Child, fake: Path, tmp_path: Path) -> None:
    """What is loaded comes first, then a wheel beside CUDA's runtime, then the toolkit; never another major release."""
    site = tmp_path / "site"
    runtime = fakes.build(site / "nvidia/cuda_runtime/lib/libcudart.so.12", "FAKE_RUNTIME")
    beside = fakes.build(site / "nvidia/cuda_cupti/lib/libcupti.so.12", "FAKE_CUPTI", "FAKE_RECORDS")
    newer = fakes.build(tmp_path / "newer/nvidia/cu13/lib/libcudart.so.13", "FAKE_RUNTIME")
    together = fakes.build(newer.with_name("libcupti.so.13"), "FAKE_CUPTI", "FAKE_RECORDS")
    odd = fakes.build(tmp_path / "odd/libcupti-1234.so.11.8", "FAKE_CUPTI", "FAKE_RECORDS")
    ask = """
cuda, *_ = [ctypes.CDLL(path) for path in {load!r}]
cuda.cuInit(0)
with cuptimem.profile():
    found = _core.cupti_state()
report(path=found["path"], why=found["reason"], version=found["version"])
"""
    home = {"CUDA_HOME": str(fake / "records")}
    driver = str(fake / "libcuda.so.1")
    for load, expected in (
        ([driver], fake / "records/lib64/libcupti.so.13"),
        ([driver, str(runtime)], beside),
        ([driver, str(newer)], together),
        ([driver, str(runtime), str(odd)], odd),
    ):
        found = child(ask.format(load=load), env=home)
        assert (os.path.realpath(found["path"]), found["why"]) == (str(expected), ""), load
        assert found["version"] == 130000
    old = child(ask.format(load=[driver]), env={**home, "FAKE_DRIVER_VERSION": "11080"})
    assert old["path"] == "" and "pip install nvidia-cuda-cupti-cu11" in old["why"]


def test_cuda_arrives_later_and_is_not_initialised_by_us(child: Child, fake: Path) -> None:
    found = child(
        f"""
with cuptimem.profile("a.cmem"):
    at_first = [*state(), cupti_threads()]
    cuda = ctypes.CDLL({str(fake / "libcuda.so.1")!r})
    came = soon(lambda: cupti_threads() == 1)
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
       counts=[value("fake_subscribed"), value("fake_unsubscribed"), value("fake_enabled")], after=cupti_threads(),
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


def test_slots_record_from_the_runtime_on(child: Child, fake: Path) -> None:
    """The driver comes with the first call: what that gives out is not there for callbacks."""
    found = child(
        f"""
fake = Path({str(fake)!r})
ctypes.CDLL(str(fake / "libcudart.so.13"), os.RTLD_GLOBAL | os.RTLD_NOW)
caller = ctypes.CDLL(str(fake / "libcaller.so"))
with cuptimem.profile("a.cmem"):
    at_first = [*state(), cupti_threads()]
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


@pytest.mark.parametrize(
    ("kind", "more", "mode", "v2", "size", "counts"),
    [
        ("names", {}, "callbacks", False, 32, [1, 1]),
        ("multiple", {}, "callbacks", True, 40, [1, 1]),
        ("multiple", {"FAKE_RESULT_V2": "27"}, "callbacks", False, 40, [1, 1]),  # the driver is too old for it
        ("multiple", {"FAKE_RESULT_V2": "39", "FAKE_HOLDER": "x" * 80}, "slots", False, 40, [0, 0]),
        ("early", {}, "callbacks", False, 32, [1, 1]),  # there it slows everything
    ],
)
def test_ways_to_subscribe(
    child: Child,
    fake: Path,
    kind: str,
    more: dict[str, str],
    mode: str,
    v2: bool,
    size: int,
    counts: list[int],
) -> None:
    found = child(
        START.format(folder=str(fake))
        + "report(during=during, v2=_core.cupti_state()['v2'], size=value('fake_size'),"
        + " counts=[value('fake_subscribed'), value('fake_unsubscribed')])",
        env={"CUDA_HOME": str(fake / kind), **more},
    )
    assert (found["during"][0], found["v2"], found["size"], found["counts"]) == (mode, v2, size, counts)
    if mode == "slots":
        assert f"another profiler, {'x' * 63}, holds CUPTI" in found["during"][1]


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
def test_refusals_are_named(child: Child, fake: Path, result: int, words: tuple[str, str]) -> None:
    found = child(
        START.format(folder=str(fake))
        + "report(during=during, driver=driver(), left=[cupti_threads(), value('fake_unsubscribed')])",
        env={"CUDA_HOME": str(fake / "plain"), "FAKE_RESULT": str(result)},
    )
    mode, reason = found["during"]
    assert mode == "slots" and f"error {result}" in reason and all(word in reason for word in words), reason
    assert found["driver"]["driver"] == "slots" and found["driver"]["reason"] == reason
    assert found["left"] == [0, 0]
    assert found["said"] == [f"cuptimem: memory that libraries take from CUDA by themselves is not recorded: {reason}"]


def test_words_that_are_no_text_are_said_all_the_same(child: Child, fake: Path) -> None:
    """The name of who holds CUPTI comes from there; a reason is cut where its room ends."""
    found = child(
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


def test_a_cupti_without_callbacks_is_given_back(child: Child, fake: Path) -> None:
    found = child(
        START.format(folder=str(fake))
        + "report(during=during, counts=[value('fake_subscribed'), value('fake_unsubscribed')])",
        env={"CUDA_HOME": str(fake / "plain"), "FAKE_DEAF": "1"},
    )
    assert found["during"][0] == "slots" and "none of the callbacks" in found["during"][1]
    assert found["counts"] == [1, 1]


def test_what_cupti_takes_for_itself_is_not_the_programs(child: Child, fake: Path) -> None:
    """On the CUPTI thread's thread, and on the program's where that ends the subscription: between pause and resume."""
    found = child(
        START.format(folder=str(fake))
        + """
with cuptimem.profile("b.cmem"):
    _core.fork_before()
    before = value("fake_flushed")
    _core.cupti_stop()
    alone = value("fake_flushed") - before
    _core.fork_parent()
taken = [_core.analyze(path)["driver"]["allocations"] for path in ("a.cmem", "b.cmem")]
report(flushed=before, alone=alone, taken=taken, callbacks=driver()["callbacks"])
""",
        env={"CUDA_HOME": str(fake / "records")},
    )
    assert found["flushed"] > 0 and found["alone"] == 1
    assert (found["taken"], found["callbacks"]) == ([0, 0], "0")


@pytest.mark.parametrize("kernels", [False, True])
def test_kernels_that_are_refused(child: Child, fake: Path, call: Callable[..., Result], kernels: bool) -> None:
    """Memory has its records, so it is not the whole that lacks: who asked for kernels is told."""
    text = START.replace('("a.cmem")', f'("a.cmem", kernels={kernels})')
    found = child(
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
    shown = call("kernels", "a.cmem")
    assert shown.code != 0 and "CONCURRENT_KERNEL" in shown.err and "--kernels" not in shown.err


def test_the_vendors_own_with_a_driver_that_only_answers(child: Child, fake: Path, tmp_path: Path) -> None:
    """Nothing else of a driver is there. CUPTI up to 13.1 says so; 13.2 ends the process (test_without_driver.py)."""
    (tmp_path / "lib64").symlink_to(surviving_wheel() / "lib")  # as a toolkit has it
    found = child(START.format(folder=str(fake)) + "report(during=during)", env={"CUDA_HOME": str(tmp_path)})
    mode, reason = found["during"]
    assert mode == "slots" and "error 999" in reason and "NVIDIA driver" in reason
