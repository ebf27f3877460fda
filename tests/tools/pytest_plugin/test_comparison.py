"""A run beside a baseline: rules, what is counted, which lines were added, removed and grew."""

from pathlib import Path
from typing import Any

import pytest

from cuptimem.pytest_plugin import baselines, comparison
from cuptimem.pytest_plugin.comparison import parse_rules
from tests.tools.pytest_plugin.records import ENVIRONMENT, H100, KEY, environment, figures, line, record, with_gpus

ONE = "tests/test_x.py::test_one"
TWO = "tests/test_x.py::test_two"
GPU = with_gpus("NVIDIA H100 80GB HBM3")


def compared(
    root: Path,
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
    *rules: str,
    then: dict[str, Any] = ENVIRONMENT,
    now: dict[str, Any] = ENVIRONMENT,
) -> comparison.Comparison:
    """Through the file, as it is saved and loaded."""
    baselines.save(root, "baseline", before, then)
    return comparison.compare(after, now, baselines.load(root, "baseline"), parse_rules(rules))


def broken(result: comparison.Comparison) -> dict[tuple[str, str], list[str]]:
    return {(one.nodeid, one.device): [rule.text for rule in one.broken] for one in result.failures}


def counts(result: comparison.Comparison) -> tuple[int, int, int]:
    return result.compared, result.new, result.not_comparable


@pytest.mark.parametrize(
    ("text", "before", "limit"),
    [
        ("peak:5%", 1000, 1050),
        ("peak:5%", 1001, 1051),  # 1051.05
        ("peak:0%", 7, 7),
        ("peak:5%", 0, 0),
        ("peak:2.5%", 10**15, 1025 * 10**12),
        ("peak:200 %", 10, 30),
        ("peak:512KiB", 100, 100 + 512 * 1024),
        ("peak:512 mb", 100, 100 + (512 << 20)),
        ("leak:0B", 0, 0),
        ("leak:0 b", 5, 5),
        ("allocations:10%", 25, 27),
        ("allocations:3", 25, 28),
        (" Allocations : 0 ", 25, 25),
    ],
)
def test_a_rule_holds_up_to_its_allowance(text: str, before: int, limit: int) -> None:
    (rule,) = parse_rules([text])
    assert rule.allows(before, limit) and rule.allows(before, 0)
    assert not rule.allows(before, limit + 1)


def test_several_rules() -> None:
    rules = parse_rules(["peak:5%,leak:0B", "allocations:3", "peak: 5 %"])
    assert [rule.text for rule in rules] == ["peak:5%", "leak:0B", "allocations:3"]
    assert [rule.figure for rule in rules] == ["peak", "leaked", "allocations"]
    assert parse_rules([]) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a rule is written peak:5%"),
        ("peak", "a rule is written peak:5%"),
        ("peak:5%,", "a rule is written peak:5%"),
        (":5%", "a rule is written peak:5%"),
        ("time:5%", "rules are about peak, leak, allocations"),
        ("peak:", "a size with its unit"),
        ("peak:5", "a size with its unit"),
        ("peak:0", "a size with its unit"),
        ("peak:-5%", "a size with its unit"),
        ("peak:-1B", "a size with its unit"),
        ("peak:%", "a size with its unit"),
        ("peak:nan%", "a size with its unit"),
        ("peak:1e3%", "a size with its unit"),
        ("peak:5%|leak:0B", "a size with its unit"),
        ("peak:9999999999%", "a size with its unit"),
        ("leak:x\ny", "a size with its unit"),
        ("allocations:3KB", "a number"),
        ("allocations:1.5", "a number"),
        ("allocations:", "a number"),
        ("allocations:" + "9" * 5000, "a number"),
    ],
)
def test_wrong_rules(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        parse_rules([text])
    assert "\n" not in str(raised.value)


def test_more_than_the_allowance_fails_and_less_is_shown(tmp_path: Path) -> None:
    before = [record(name, cpu=figures(1000)) for name in "abcd"]
    after = [
        record("a", cpu=figures(1050, allocated=2000)),
        record("b", cpu=figures(1051, allocated=2000)),
        record("c", cpu=figures(1000)),
        record("d", cpu=figures(10, allocated=2000)),
    ]
    result = compared(tmp_path, before, after, "peak:5%")
    assert counts(result) == (4, 0, 0)
    assert broken(result) == {("b", "cpu"): ["peak:5%"]}
    assert [(one.nodeid, one.change) for one in result.differences] == [("b", 51), ("d", -990), ("a", 50)]
    assert result.differences[0].figures() == [("peak", 1000, 1051)]


def test_each_figure_has_its_rule(tmp_path: Path) -> None:
    before = [record("a", cpu=figures(1000)), record("b", cpu=figures(1000)), record("c", cpu=figures(1000))]
    after = [
        record("a", cpu=figures(1000, leaked=1)),
        record("b", cpu=figures(1000, allocations=5)),
        record("c", cpu=figures(1001, leaked=1, allocations=5)),
    ]
    result = compared(tmp_path, before, after, "peak:0B", "leak:0B,allocations:0")
    assert broken(result) == {
        ("a", "cpu"): ["leak:0B"],
        ("b", "cpu"): ["allocations:0"],
        ("c", "cpu"): ["peak:0B", "leak:0B", "allocations:0"],
    }
    assert set(result.judged.values()) == {3}
    assert result.failures == result.differences


def test_what_is_new_and_what_cannot_be_compared(tmp_path: Path) -> None:
    before = [record(ONE, cpu=figures(5)), record("gone", cpu=figures(5))]
    after = [
        record(ONE, cpu=figures(5), cuda_0=figures(3)),
        record(TWO, cpu=figures(9)),
        record("failed", "failed", cpu=figures(9)),
        record("skipped", "skipped"),
    ]
    result = compared(tmp_path, before, after, "peak:0B", now=GPU)
    assert counts(result) == (1, 1, 2)
    assert result.summary() == "compared 1, new 1, not comparable 2"
    assert result.reasons == {f"the baseline is of {KEY}, this is {H100}": 1, "the test did not pass": 1}
    assert result.failures == () and result.idle_rules == ()
    assert result.notes() == [
        f"not comparable: 1, the baseline is of {KEY}, this is {H100}",
        "not comparable: 1, the test did not pass",
    ]


@pytest.mark.parametrize(
    ("now", "comparable"),
    [
        ({"torch": "2.13.1+cu130"}, True),
        ({"torch": "2.14.0+cpu"}, False),
        ({"torch": "2.1.3"}, False),
        ({"devices": {"cpu": "x86_64 avx512"}}, False),
        ({"simulated": "l4, 22.0 GiB"}, False),
        ({"python": "3.13.0"}, True),
    ],
)
def test_versions_compare_by_minor_release(tmp_path: Path, now: dict[str, Any], comparable: bool) -> None:
    before, after = [record(ONE, cpu=figures(5))], [record(ONE, cpu=figures(6))]
    result = compared(tmp_path, before, after, "peak:0B", now=environment(**now))
    assert counts(result) == ((1, 0, 0) if comparable else (0, 0, 1))
    assert bool(result.failures) == comparable
    assert [rule.text for rule in result.idle_rules] == ([] if comparable else ["peak:0B"])


def test_rules_that_compared_nothing(tmp_path: Path) -> None:
    before = [record(ONE, cpu=figures(5, leaked=None)), record(TWO, cpu=figures(5))]
    assert [one.text for one in compared(tmp_path, before, [], "peak:0B").idle_rules] == ["peak:0B"]
    result = compared(tmp_path, before, [record(ONE, cpu=figures(5, leaked=70))], "peak:0B", "leak:0B")
    assert [one.text for one in result.idle_rules] == ["leak:0B"]
    assert (result.failures, result.differences) == ((), ())
    assert result.notes() == ["leak:0B compared nothing"]
    after = [record(ONE, cpu=figures(5, leaked=70)), record(TWO, cpu=figures(5, leaked=1))]
    result = compared(tmp_path, before, after, "leak:0B")
    assert broken(result) == {(TWO, "cpu"): ["leak:0B"]}
    assert result.notes() == ["leak:0B compared 1 of 2: leaks were not measured"]
    assert compared(tmp_path, before, after).idle_rules == ()


def test_a_test_without_allocations_is_zero_on_both_sides(tmp_path: Path) -> None:
    before = [record("none"), record("begins"), record("ends", cpu=figures(5)), record("gpu", cuda_0=figures(5))]
    after = [record("none"), record("begins", cpu=figures(7)), record("ends"), record("gpu"), record("new")]
    result = compared(tmp_path, before, after, "peak:0B", then=GPU, now=GPU)
    assert counts(result) == (4, 1, 0)
    assert broken(result) == {("begins", "cpu"): ["peak:0B"]}
    assert {(one.nodeid, one.device): one.change for one in result.differences} == {
        ("begins", "cpu"): 7,
        ("ends", "cpu"): -5,
        ("gpu", "cuda:0"): -5,
    }


@pytest.mark.parametrize("devices", [GPU["devices"], dict(reversed(GPU["devices"].items()))])
def test_a_test_without_allocations_needs_one_file_that_has_it(tmp_path: Path, devices: dict[str, str]) -> None:
    result = compared(tmp_path, [record(ONE)], [record(ONE)], "peak:0B", now=environment(devices=devices))
    assert counts(result) == (1, 0, 0)


def test_a_run_without_any_device(tmp_path: Path) -> None:
    nowhere = environment(devices={}, torch=None)
    result = compared(tmp_path, [record(ONE, cpu=figures(5))], [record(ONE)], "peak:0B", now=nowhere)
    assert counts(result) == (0, 0, 1)
    assert [rule.text for rule in result.idle_rules] == ["peak:0B"]


def test_two_devices_are_compared_each(tmp_path: Path) -> None:
    before = [record(ONE, cpu=figures(5), cuda_0=figures(50))]
    result = compared(tmp_path, before, [record(ONE, cpu=figures(5), cuda_0=figures(51))], "peak:0B", then=GPU, now=GPU)
    assert counts(result) == (2, 0, 0)
    assert broken(result) == {(ONE, "cuda:0"): ["peak:0B"]}


def test_a_rerun_counts_as_it_ended(tmp_path: Path) -> None:
    before = [record(ONE, cpu=figures(5))]
    after = [record(ONE, "rerun", cpu=figures(50)), record(ONE, cpu=figures(5))]
    assert counts(compared(tmp_path, before, after)) == (1, 0, 0)
    assert compared(tmp_path, before, after, "peak:0B").failures == ()


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, int | None, int | None, int]]:
    rows = baselines.row_of(before), baselines.row_of(after)
    return [(c.what, c.place, c.before, c.after, c.change) for c in comparison.changed_lines(*rows)]


def test_lines_that_were_added_removed_and_grew() -> None:
    before = figures(
        100,
        [
            line(50, "model.py:5 Net.forward", source="y = self.a(x)"),
            line(20, "model.py:9 Net.forward", source="return y"),
            line(20, "torch/nn/modules/linear.py:125 Linear.forward", source="return F.linear(input)"),
            line(10, "(no Python line)", "other"),
        ],
    )
    after = figures(
        203,
        [
            line(90, "model.py:8 Net.forward", source="y = self.a(x)"),
            line(60, "model.py:9 Net.forward", source="y = y.double()"),
            line(30, "model.py:8 Net.forward", "backward", source="y = self.a(x)"),
            line(13, "(no Python line)", "other"),
            line(10, "torch/nn/modules/linear.py:130 Linear.forward", source="return F.linear(input)"),
        ],
    )
    assert changed(before, after) == [
        ("grew", "model.py:8 Net.forward", 50, 120, 70),  # older records have a row for each phase
        ("added", "model.py:9 Net.forward", 0, 60, 60),
        ("removed", "model.py:9 Net.forward", 20, 0, -20),
        ("shrank", "torch/nn/modules/linear.py:130 Linear.forward", 20, 10, -10),
        ("grew", "(no Python line)", 10, 13, 3),
    ]


def test_a_line_edited_in_its_place_is_one_line() -> None:
    def block(text: str, forward: int, backward: int) -> list[Any]:
        place = "model.py:17 Block.forward"
        return [line(forward, place, source=text), line(backward, place, "backward", text)]

    kept = line(5, "model.py:18 Block.forward", source="return x")
    before = figures(50, [*block("x = self.up(x)", 30, 10), kept])
    after = figures(80, [*block("x = self.up(self.up(x))", 50, 10), kept])
    assert changed(before, after) == [("changed", "model.py:17 Block.forward", 40, 60, 20)]
    record_of = [record(ONE, cpu=row) for row in (before, after)]
    (difference,) = comparison.compare(
        record_of[1:], ENVIRONMENT, baselines.Baseline("baseline", {KEY: {ONE: {"cpu": baselines.row_of(before)}}})
    ).differences
    assert comparison.describe(difference, 80)[-2:] == [
        "    +20 B changed model.py:17 Block.forward: 40 B to 60 B",
        "      x = self.up(self.up(x))",
    ]


def test_another_line_at_a_place_is_no_edited_one() -> None:
    """Another function's; and where lines of the function moved, a number says nothing."""
    before = figures(30, [line(30, "model.py:17 f", source="a()")])
    for place in ("model.py:17 g", "other.py:17 f"):
        after = figures(50, [line(50, place, source="b()")])
        assert [change[0] for change in changed(before, after)] == ["added", "removed"]
    moves = [line(5, "model.py:15 f", source="c()")], [line(5, "model.py:16 f", source="c()")]
    pair = (
        figures(35, [*before["contributors"], *moves[0]]),
        figures(55, [line(50, "model.py:17 f", source="b()"), *moves[1]]),
    )
    assert [change[0] for change in changed(*pair)] == ["added", "removed"]


def test_lines_without_text_are_known_by_their_place() -> None:
    before = figures(30, [line(20, "a/model.py:5 f"), line(10, "a/model.py:6 f")])
    after = figures(30, [line(20, "a/model.py:6 f"), line(10, "a/model.py:7 f")])
    assert changed(before, after) == [
        ("removed", "a/model.py:5 f", 20, 0, -20),
        ("grew", "a/model.py:6 f", 10, 20, 10),
        ("added", "a/model.py:7 f", 0, 10, 10),
    ]


def test_two_functions_on_one_line_stay_two() -> None:
    text = "g = lambda: z()"
    before = figures(30, [line(20, "m.py:5 f", source=text), line(10, "m.py:5 f.<lambda>", source=text)])
    after = figures(45, [line(30, "m.py:7 f.<lambda>", source=text), line(15, "m.py:7 f", source=text)])
    assert changed(before, after) == [("grew", "m.py:7 f.<lambda>", 10, 30, 20), ("shrank", "m.py:7 f", 20, 15, -5)]


def test_several_contributors_of_one_line_are_one() -> None:
    before = figures(30, [line(20, "m.py:5 f"), line(10, "m.py:5 f")])
    after = figures(31, [line(31, "m.py:5 f")])
    assert changed(before, after) == [("grew", "m.py:5 f", 30, 31, 1)]


def test_a_line_below_the_ten_that_are_kept_is_not_said_to_be_gone() -> None:
    """The tenth had 100 bytes, so what is not among them may have as many."""
    lines = [line(100, f"m.py:{i} f") for i in range(1, 12)]
    before = figures(1100, lines)
    after = figures(1500, [line(500, "m.py:50 f"), *lines[:9], line(100, "m.py:11 f")])
    assert changed(before, after) == [("grew", "m.py:50 f", None, 500, 400)]
    assert changed(after, before) == [("shrank", "m.py:50 f", 500, None, -400)]
    # Many small ones are below them, none larger than the tenth.
    assert changed(figures(9000, lines), after) == [("grew", "m.py:50 f", None, 500, 400)]
    # All of the peak was known: nothing was left for that line.
    before = figures(1000, lines[:10])
    assert changed(before, after)[0] == ("added", "m.py:50 f", 0, 500, 500)


def test_contributors_that_a_report_has_no_bytes_for() -> None:
    assert changed(figures(0), figures(0)) == []
    assert changed(figures(50), figures(60, [line(60, "m.py:1 f")])) == [("grew", "m.py:1 f", None, 60, 10)]


@pytest.mark.parametrize(
    "place", ["", ":", "m.py", "m.py:x f", ":5 f", "a b:c.py:5 f <g>", "x\n:1 f", "m.py:" + "9" * 50]
)
def test_places_of_all_kinds(place: str) -> None:
    assert changed(figures(5, [line(5, place)]), figures(7, [line(7, place)])) == [("grew", place, 5, 7, 2)]


def test_what_is_written(tmp_path: Path) -> None:
    before = figures(
        1 << 20, [line(1 << 19, "model.py:12 Net.forward", source="h = a(x)"), line(1 << 19, "model.py:13 Net.forward")]
    )
    after = figures(
        3 << 19,
        [line(1 << 20, "model.py:14 Net.forward", source="h = a(x)"), line(1 << 19, "model.py:13 Net.forward")],
        leaked=1,
        allocations=5,
        allocated=2 << 20,
    )
    result = compared(
        tmp_path, [record(ONE, cpu=before)], [record(ONE, cpu=after)], "peak:5%", "peak:0B", "allocations:10"
    )
    assert comparison.report(result, 100) == [
        f"{ONE} on cpu",
        "  peak +512.0 KiB (+50.0 %, 1.0 MiB to 1.5 MiB), over peak:5% and peak:0B",
        "  leaked +1 B (0 B to 1 B)",
        "  allocations +1 (+25.0 %, 4 to 5)",
        "    +512.0 KiB grew model.py:14 Net.forward: 512.0 KiB to 1.0 MiB",
        "compared 1, new 0, not comparable 0",
    ]


def test_a_few_lines_a_test_and_a_few_tests(tmp_path: Path) -> None:
    lines = [line(10 - i, f"m.py:{i} f") for i in range(5)]
    before = [record(f"t{i:02}", cpu=figures(1000 + i)) for i in range(30)]
    after = [record(f"t{i:02}", cpu=figures(40, lines, allocated=2 * (1000 + i))) for i in range(30)]
    result = compared(
        tmp_path, [*before, record("bad", cpu=figures(1))], [*after, record("bad", cpu=figures(2))], "peak:0B"
    )
    said = comparison.report(result, 80, most=4)
    assert [text for text in said if not text.startswith(" ")] == [
        "bad on cpu",
        "t29 on cpu",
        "t28 on cpu",
        "t27 on cpu",
        "t26 on cpu",
        "and 26 more tests with other figures, within the rules",
        "compared 31, new 0, not comparable 0",
    ]
    others = figures(40, lines)
    (one,) = compared(tmp_path, [record(ONE)], [record(ONE, cpu=others)]).differences
    assert comparison.describe(one, 80)[-4:] == [
        "    +10 B added m.py:0 f: 0 B to 10 B",
        "    +9 B added m.py:1 f: 0 B to 9 B",
        "    +8 B added m.py:2 f: 0 B to 8 B",
        "    and 2 more lines",
    ]


def test_a_line_of_which_one_side_is_unknown(tmp_path: Path) -> None:
    before = figures(1100, [line(100, f"m.py:{i} f") for i in range(1, 12)])
    after = figures(500, [line(500, "m.py:50 f")])
    there, back = [record(ONE, cpu=before)], [record(ONE, cpu=after)]
    (one,) = compared(tmp_path, there, back).differences
    wanted = "    at least +400 B grew m.py:50 f: 500 B, not among the largest 10 before"
    assert wanted in comparison.describe(one, 100)
    (one,) = compared(tmp_path, back, there).differences
    wanted = "    at least -400 B shrank m.py:50 f: was 500 B, no longer among the largest 10"
    assert wanted in comparison.describe(one, 100)


@pytest.mark.parametrize("width", [1, 10, 40, 80])
def test_long_and_strange_ids_fit(tmp_path: Path, width: int) -> None:
    nodeid = "t.py::test[a\nb\x1b[2J\u202e" + "x" * 500 + "]"
    before = [record(nodeid, cpu=figures(1, [line(1, "m.py:5 f\n" + "y" * 300)]))]
    (one,) = compared(tmp_path, before, [record(nodeid, cpu=figures(9))]).differences
    said = comparison.describe(one, width)
    assert max(map(len, said)) <= width
    assert all(text.isprintable() for text in said)
    if width == 80:
        assert said[0].startswith("…x") and said[0].endswith("x] on cpu")


def test_tests_without_tensors_compare_no_leaks(tmp_path: Path) -> None:
    """Whether leaks were measured is not known of them: a rule must not pass for their sake alone."""
    unmeasured = record(TWO, cpu=figures(10, leaked=None))
    result = compared(tmp_path, [record(ONE), unmeasured], [record(ONE), unmeasured], "leak:0B")
    assert [rule.text for rule in result.idle_rules] == ["leak:0B"] and result.compared == 2
    grown = compared(tmp_path, [record(ONE)], [record(ONE, cpu=figures(10, leaked=4))], "leak:0B")
    assert broken(grown) == {(ONE, "cpu"): ["leak:0B"]}
