"""Kinds of driver memory that PyTorch seldom asks for, one to one with what the simulated device did."""

from collections.abc import Callable

import pytest

from tests.on_device.simulated import device_log
from tests.record.driver.conftest import Ran

MIB = 1 << 20

Program = Callable[..., Ran]

ARRAYS = {
    "flat": 4 * MIB,
    "image": 4 * MIB,
    "layers": 6 * MIB,
    "levels": (256 * 128 + 128 * 64 + 64 * 32) // 2,
    "volume": 2 * MIB,
}


def test_arrays(program: Program) -> None:
    ran = program("arrays")
    found = ran.match()
    assert found.differ == []
    assert found.events["array"] == 11 and found.events["free"] == 3 and found.events["failed"] == 1
    given, again = ran.printed["given"], ran.printed["again"]
    live = {address: size for (_, address), (_, size) in found.live.items()}
    assert live == {
        **{given[name]: ARRAYS[name] for name in ("flat", "layers", "volume")},
        **{again[name]: size for name, size in ARRAYS.items()},
    }
    (device,) = ran.analyze()["driver"]["devices"]
    assert device["bytes"] == found.bytes(0) == sum(live.values())


@pytest.mark.parametrize(
    "how", ["cudaDeviceReset", "cuDevicePrimaryCtxReset_v2", "cuCtxDestroy_v2", "cuDevicePrimaryCtxRelease_v2"]
)
def test_a_context_s_end(how: str, program: Program) -> None:
    """The device gives back all that lived in it, and so does the driver level; what belongs to the process stays."""
    ran = program("reset", devices=2, env={"PROGRAM_RESETS": how})
    found = ran.match()
    assert found.differ == []
    assert found.events["context gone"] == found.records["context end"] == 1
    first, second = device_log.report(ran.report)
    assert found.bytes(0) == 8 * MIB + 14 * MIB == first.used - first.context
    assert found.bytes(1) == 2 * MIB == second.used - second.context
    driver = ran.analyze()["driver"]
    assert {one["device"]: one["bytes"] for one in driver["devices"]} == {"cuda:0": 22 * MIB, "cuda:1": 2 * MIB}
    assert driver["unknown_frees"] == driver["failed_frees"] == 0


def test_what_is_refused(program: Program) -> None:
    """Callbacks tell that it failed: the one that would have taken something back is taken back itself."""
    ran = program("refused")
    assert ran.printed["results"] == [801] * 4
    found = ran.match()
    assert found.differ == [] and found.events["failed"] == 1
    assert found.live == {("memory", ran.printed["kept"]): (0, 2 * MIB)}
    driver = ran.analyze()["driver"]
    assert (driver["allocations"], driver["frees"], driver["failed_frees"], driver["unknown_frees"]) == (1, 0, 1, 0)
