"""What would have let a refused request fit: arithmetic on accounts made by hand."""

from dataclasses import replace

import pytest

from cuptimem.output.text import oom_views, text
from cuptimem.report.fragmentation import Fragmentation
from cuptimem.report.held import HeldLine
from cuptimem.report.leaks import Holder, Leak, LeakPart
from cuptimem.report.model import Contributor, Device, Frame, OutOfMemory, Peak
from tests.tools.cli.simulated_runs import report

MIB = 1 << 20
LINE = (Frame("/u/train.py", "train", 12),)


def refused(
    asked: int, *, free: int | None = 100 * MIB, empty: int = 0, expandable: int = 0, activations: int = 0
) -> OutOfMemory:
    """On a device with 300 MiB in blocks of 400 reserved."""
    memory = Fragmentation(
        device="cuda:0",
        what="oom",
        time_ns=5,
        reserved=400 * MIB,
        allocated=300 * MIB,
        requested=300 * MIB,
        asked=asked,
        too_small=100 * MIB,
        largest_free_block=15 * MIB,
        free_on_device=free,
        largest_request=None,
        empty_cache_returns=empty,
        expandable_returns=expandable,
        segments_total=20,
        segments=(),
        pins=(),
    )
    alive = [Contributor(300 * MIB - activations, 3, LINE, "other", category="parameter")]
    if activations:
        alive.append(Contributor(activations, 1, LINE, "forward", category="activation"))
    contributors = tuple(sorted(alive, key=lambda c: -c.bytes))
    return OutOfMemory(
        "cuda:0", 5, asked, 300 * MIB, LINE, 3, contributors, escaped=True, reserved=400 * MIB, memory=memory
    )


def fits(oom: OutOfMemory, *held: HeldLine) -> list[str]:
    """The lines under that heading."""
    one = replace(report(300 * MIB, (oom,)), held=held)
    device: Device = replace(one.devices[0], refused=1, peak=Peak("cuda:0", 300 * MIB, 7, 2, oom.contributors))
    lines = text.render(oom_views.page(replace(one, devices=(device,)), oom), 80).splitlines()
    return lines[lines.index("What would have let this request fit") + 1 :]


def test_what_is_missing_is_what_the_segment_needs() -> None:
    assert fits(refused(151 * MIB)) == ["  - freeing 52.0 MiB more on the device: the request needs 152.0 MiB of it"]
    assert fits(refused(3 * MIB, free=0)) == [
        "  - freeing 20.0 MiB more on the device: the request needs 20.0 MiB of it"
    ]
    assert fits(refused(512, free=0)) == ["  - freeing 2.0 MiB more on the device: the request needs 2.0 MiB of it"]


def test_an_empty_segment_counts_as_free() -> None:
    assert fits(refused(152 * MIB, empty=20 * MIB))[0].startswith("  - freeing 32.0 MiB more")


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (0, None),
        (20, "up to 20.0 MiB of the cached memory: at least 32.0 MiB would be left to free"),
        (60, "up to 60.0 MiB of the cached memory"),
    ],
)
def test_expandable_segments_are_named_where_they_give_something_back(gain: int, said: str | None) -> None:
    lines = fits(refused(152 * MIB, expandable=gain * MIB))
    assert " ".join(" ".join(lines[1:]).split()) == (
        "" if said is None else f"- PYTORCH_ALLOC_CONF=expandable_segments:True would give back {said}"
    )


def test_activations_are_named_where_they_are_enough() -> None:
    assert len(fits(refused(152 * MIB, activations=103 * MIB))) == 1
    lines = fits(refused(152 * MIB, activations=208 * MIB))
    assert "25 % less of the 208.0 MiB of activations" in lines[1]


def test_a_leak_is_named_and_its_activations_are_no_batch_s() -> None:
    """A smaller batch leaves what earlier batches have left."""
    oom = refused(152 * MIB, activations=208 * MIB)
    of_leak = (Frame("/u/train.py", "train", 13),)
    kept = Contributor(180 * MIB, 9, of_leak, "forward", category="activation")
    own = Contributor(28 * MIB, 1, LINE, "forward", category="activation")
    oom = replace(oom, contributors=(kept, oom.contributors[1], own))
    parts = (LeakPart(170 * MIB, 9, of_leak),)
    made = (170 * MIB, 9, 20 * MIB, 1, 0, 8, "training", of_leak, (), parts)
    leak = Leak("bytes", "cuda:0", *made, "survivors", "", "high", "")
    one = replace(report(300 * MIB, (oom,)), leaks=(leak,))
    said = " ".join(" ".join(text.render(oom_views.page(one, oom), 80).splitlines()).split())
    assert "a leak has 170.0 MiB of what is live (57 %): /u/train.py:13" in said
    assert "of activations" not in said
    assert "% less of the 208.0 MiB of activations" in " ".join(fits(oom))
    assert "a leak" not in " ".join(text.render(oom_views.page(replace(one, leaks=()), oom), 80).splitlines())


def test_a_kept_exception_is_named_where_what_it_has_is_enough() -> None:
    """Of a larger batch that was tried before."""
    kept = "dropping the exception that is kept (why in module train): its traceback has 60.0 MiB of the functions"
    for mib, expected in ((60, f"- {kept} that it left"), (40, "")):
        holders = (
            Holder("why in module train → traceback → x in step()", 1, mib * MIB),
            Holder("model (Sequential) in module train", 1, 200 * MIB),
        )
        lines = fits(refused(152 * MIB), HeldLine("cuda:0", LINE, holders))
        assert " ".join(" ".join(lines[1:]).split()) == expected


def test_all_kept_exceptions_that_it_takes_are_named() -> None:
    """And no variable that is called as a traceback is."""

    def held(*paths: tuple[str, int]) -> str:
        holders = tuple(Holder(path, 1, mib * MIB) for path, mib in paths)
        return " ".join(" ".join(fits(refused(152 * MIB), HeldLine("cuda:0", LINE, holders))[1:]).split())

    one, two = (
        ("first in module train → traceback → x in step()", 28),
        ("why in module train → traceback → y in f()", 30),
    )
    both = "dropping the exceptions that are kept (why in module train; first in module train): their tracebacks have"
    assert held(one, two, ("third in module train → traceback → z in f()", 1)) == f"- {both} 58.0 MiB together"
    assert held(("store in module train → traceback_log → x", 60)) == ""


def test_what_nothing_would_have_helped() -> None:
    (first, second) = fits(refused(501 * MIB))
    assert first.startswith("  Nothing that PyTorch could free: the request needs 502.0 MiB")
    assert second.endswith("500.0 MiB.")


def test_what_is_not_known() -> None:
    assert fits(refused(152 * MIB, free=None)) == [
        "  Not known: the recording does not say how much the device had left."
    ]
    assert "Enough was free, as far as was seen: 300.0 MiB" in fits(refused(152 * MIB, free=300 * MIB))[0]


def test_rows_sum_to_what_was_allocated() -> None:
    oom = refused(152 * MIB)
    many = tuple(Contributor(MIB * (i + 1), 1, LINE, "forward", qualified=f"layer.{i}") for i in range(20))
    for alive, rows in ((many, 8), (many[:6], 7), ((), 0)):
        one = replace(oom, contributors=alive)
        lines = text.render(oom_views.page(report(1, (one,)), one), 80).splitlines()
        if not alive:
            assert not any(line.startswith("Live by") for line in lines)
            continue
        start = lines.index("Live by module") + 2
        cells = [line.split() for line in lines[start : lines.index("", start)]]
        assert len(cells) == rows and sum(float(row[0]) for row in cells) == 300
