"""Ranks compared: made-up summaries, with the answer known."""

from cuptimem.distributed.comparison import Ranks, compare
from cuptimem.distributed.summary import Growth, Held, RankDevice, RankSummary
from cuptimem.output.text import rank_views, text

MIB = 1 << 20


def held(bytes: int, step: int | None = 5, **lines: int) -> Held:
    named = {f"train.py:{name[1:]}": size for name, size in lines.items()}
    rest = bytes - sum(named.values())
    return Held(bytes, step, "training", {"activation": bytes}, {**named, "train.py:1": rest}, 0, {}, {})


def device(peak: Held, name: str = "cuda:0", usual: int | None = None) -> RankDevice:
    return RankDevice(name, peak, 0, peak.bytes if usual is None else usual, None, None)


def rank(number: int | None, *devices: RankDevice, world: int = 4, **more: object) -> RankSummary:
    known: dict[str, object] = {
        "path": f"run-{number}.cmem",
        "rank": number,
        "world": world,
        "host": "node",
        "title": "train.py",
        "started": 0,
        "state": "complete",
        "exception": "",
        "steps": {"training": 10},
        "devices": devices,
        "growths": (),
        "resident": None,
        "refused": 0,
    }
    return RankSummary(**{**known, **more})  # type: ignore[arg-type]


def unasked(one: RankSummary, step: int) -> None:
    raise AssertionError(f"rank {one.rank} was asked for step {step}")


def shown(ranks: Ranks) -> str:
    return text.render(rank_views.full(ranks), 200)


def test_equal_ranks_have_no_difference() -> None:
    found = compare([rank(i, device(held(100 * MIB))) for i in range(4)], (), unasked)
    assert found.differences == () and found.order == [0, 1, 2, 3] and found.middle == 1
    assert "No rank differs from the middle one by more than 1 % of its peak." in shown(found)


def test_a_hundredth_is_no_difference() -> None:
    sizes = [100 * MIB, 100 * MIB, 101 * MIB, 101 * MIB + 1]
    found = compare([rank(i, device(held(size))) for i, size in enumerate(sizes)], (), lambda one, step: None)
    assert [one.ranks for one in found.differences] == [(3,)]


def test_a_rank_is_compared_at_the_step_of_the_higher_peak() -> None:
    """With the middle rank at that step, not at its own peak."""
    asked = []

    def held_at(one: RankSummary, step: int) -> Held:
        asked.append((one.rank, step))
        return held(60 * MIB, step, l7=40 * MIB)

    high = device(held(130 * MIB, 9, l7=110 * MIB), usual=100 * MIB)
    found = compare([*(rank(i, device(held(100 * MIB, 2))) for i in range(3)), rank(3, high)], (), held_at)
    (one,) = found.differences
    assert asked == [(1, 9)]
    assert (one.bytes, one.step, one.alone) == (30 * MIB, 9, True)
    assert [(row.name, row.bytes, row.middle) for row in one.lines] == [("train.py:7", 110 * MIB, 40 * MIB)]


def test_a_smaller_rank_is_compared_at_the_middle_ones_step() -> None:
    asked = []

    def held_at(one: RankSummary, step: int) -> Held:
        asked.append((one.rank, step))
        return held(10 * MIB, step)

    low = rank(3, device(held(20 * MIB, 1)))
    found = compare([*(rank(i, device(held(100 * MIB, 8))) for i in range(3)), low], (), held_at)
    assert asked == [(3, 8)] and found.differences[0].bytes == -80 * MIB
    assert [row.more for row in found.differences[0].lines] == [-90 * MIB]


def test_a_step_that_the_middle_rank_lacks() -> None:
    """Then each one's peak is compared, and that is said."""
    high = rank(3, device(held(200 * MIB, 99)))
    found = compare([*(rank(i, device(held(100 * MIB))) for i in range(3)), high], (), lambda one, step: None)
    assert found.differences[0].step is None and "each at its peak" in shown(found)


def test_ranks_that_differ_alike_are_one_difference() -> None:
    """Stages of a pipeline: two kinds among eight ranks, and the middle one's."""
    sizes = [100, 100, 150, 150, 100, 100, 150, 100]
    summaries = [rank(i, device(held(size * MIB)), world=8) for i, size in enumerate(sizes)]
    found = compare(summaries, (), unasked)
    assert [one.ranks for one in found.differences] == [(2, 3, 6)]
    assert "ranks 2, 3 and 6: +50.0 MiB (50 %)" in shown(found)


def test_many_kinds_are_counted_beyond_eight() -> None:
    summaries = [rank(i, device(held(100 * MIB)), world=31) for i in range(20)]
    summaries += [rank(20 + i, device(held((200 + 10 * i) * MIB)), world=31) for i in range(11)]
    found = compare(summaries, (), unasked)
    assert len(found.differences) == 8 and found.unexplained == 3


def test_another_ranks_device() -> None:
    """A checkpoint that every rank loads to the first device."""
    checkpoint = device(held(300 * MIB, None, l12=300 * MIB), "cuda:0")
    summaries = [rank(0, device(held(900 * MIB), "cuda:0"))]
    summaries += [rank(i, device(held(900 * MIB), f"cuda:{i}"), checkpoint) for i in (1, 2, 3)]
    found = compare(summaries, (), unasked)
    (guest,) = found.guests
    assert (guest.device, guest.owner, guest.ranks, guest.bytes) == ("cuda:0", 0, (1, 2, 3), 900 * MIB)
    assert guest.lines[0] == ("train.py:12", 900 * MIB)
    assert "ranks 1 to 3: 900.0 MiB in all on cuda:0, which is rank 0's own" in shown(found)


def test_devices_of_other_machines_are_others() -> None:
    summaries = [rank(i, device(held(MIB)), host=f"node{i}") for i in range(2)]
    assert compare(summaries, (), unasked).guests == ()


def test_leaks_by_line() -> None:
    def leak(line: str) -> tuple[Growth, ...]:
        return (Growth(line, "training", 1024.0, "kept in main()", True),)

    summaries = [rank(i, device(held(MIB)), growths=leak("a.py:1")) for i in range(3)]
    everywhere = compare(summaries, (), unasked)
    assert "leak on every rank: 1.0 KiB a step at a.py:1, held by kept in main()" in shown(everywhere)
    only = compare([*summaries, rank(3, device(held(MIB)))], (), unasked)
    assert "leak on ranks 0 to 2 only" in shown(only)


def test_missing_failed_and_repeated_ranks() -> None:
    """A rank that was started again has two traces: each is shown by its file's name."""
    summaries = [rank(0, device(held(MIB))), rank(0, device(held(MIB)), path="again.cmem"), rank(3, device(held(MIB)))]
    found = compare(summaries, [("run-1.cmem", "it is empty")], unasked)
    assert found.missing == (1, 2) and [found.label(at) for at in range(3)] == ["again.cmem", "run-0.cmem", "3"]
    said = shown(found)
    assert "! no trace of ranks 1, 2" in said and "! run-1.cmem: it is empty" in said


def test_a_rank_that_allocated_nothing() -> None:
    found = compare([*(rank(i, device(held(100 * MIB))) for i in range(3)), rank(3)], (), unasked)
    assert found.differences[0].bytes == -100 * MIB
    assert shown(found)


def test_a_batch_is_larger_where_the_same_line_makes_it() -> None:
    """What one rank alone has loaded is no batch."""

    def of(rest: int, **inputs: int) -> Held:
        total = rest + sum(inputs.values())
        categories = {"activation": rest, "input": total - rest}
        return Held(total, 3, "training", categories, {"train.py:1": total}, 0, inputs, {})

    others = [rank(i, device(of(90 * MIB, batch=10 * MIB))) for i in range(3)]
    longer = compare([*others, rank(3, device(of(225 * MIB, batch=25 * MIB)))], (), unasked)
    assert longer.differences[0].batch == 2.5
    assert "a larger batch, or longer samples: its input has 2.5 times the bytes" in shown(longer)
    loads = compare([*others, rank(3, device(of(90 * MIB, batch=10 * MIB, checkpoint=99 * MIB)))], (), unasked)
    assert loads.differences[0].batch is None and "batch" not in shown(loads)


def test_a_launcher_is_no_rank() -> None:
    """What has no rank but has tensors is one; alone, a process without any stays."""
    launcher = rank(None, path="launcher.cmem")
    found = compare([launcher, rank(0, device(held(MIB))), rank(None, device(held(MIB)), path="own.cmem")], (), unasked)
    assert [one.rank for one in found.ranks] == [0, None] and found.launchers == ("launcher.cmem",)
    assert "1 trace of processes without a rank, which allocated nothing, left out" in shown(found)
    assert compare([launcher], (), unasked).ranks == (launcher,)
