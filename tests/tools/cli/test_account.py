"""What a report with categories, modules and names shows: exact sums in the account, the tables, the summary, JSON."""

import json as json_module
from dataclasses import replace
from pathlib import Path

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem.output import json
from cuptimem.output.text import account_views, blocks, peak_views, table_views, text, views
from cuptimem.report import account, grouping
from cuptimem.report.load import from_dict
from cuptimem.report.model import CATEGORIES, Contributor, LiveTensor
from cuptimem.report.stacks import Frame
from tests.tools.cli import labelled, sample, stacked
from tests.tools.cli.labelled import B1, B2, HIDDEN, ROWS, TOTAL, W1, W2


@pytest.fixture
def report(tmp_path: Path) -> cuptimem.Report:
    return labelled.report(tmp_path)


def keys(report: cuptimem.Report, by: str, depth: int | None = None) -> dict[str, int]:
    return {row.key: row.bytes for row in grouping.group(report.peak.contributors, by, depth=depth)}


# -- tables --------------------------------------------------------------------------------------------------------


def test_modules(report: cuptimem.Report) -> None:
    first, middle, last = 4 * (W1 + B1) + HIDDEN, HIDDEN, 4 * (W2 + B2) + 4 * 32 * 10
    outside = 4 * 32 * 1000 + 96 + 40
    assert keys(report, "module") == {"net.0": first, "net.2": last, "net.1": middle, "(outside modules)": outside}
    assert keys(report, "module", 1) == {"net": first + middle + last, "(outside modules)": outside}
    assert keys(report, "module", 2) == keys(report, "module", 9) == keys(report, "module")


def test_modules_without_a_name_are_the_classes_that_were_called(tmp_path: Path) -> None:
    report = from_dict("x", sample.analysis(tmp_path))
    assert keys(report, "module") == {"Linear": 4000, "(outside modules)": 96}
    frames = tuple(Frame("a.py", "f", 1, module=name) for name in ("Linear", "Block", "Net"))
    one = Contributor(1, 1, frames, "forward")
    assert [grouping.module(one, depth) for depth in (1, 2, None)] == ["Net", "Net > Block", "Net > Block > Linear"]
    assert grouping.module(replace(one, qualified="net.blocks.0"), 2) == "net.blocks"


def test_categories(report: cuptimem.Report) -> None:
    assert keys(report, "category") == {
        "optimizer state": 2 * (W1 + B1 + W2 + B2),
        "parameter": W1 + B1 + W2 + B2,
        "gradient": W1 + B1 + W2 + B2,
        "activation": 2 * HIDDEN,
        "input": 4 * 32 * 1000,
        "temporary": 4 * 32 * 10,
        "before start": 96,
        "unknown": 40,
    }


def test_operators_are_nodes_and_expressions(report: cuptimem.Report) -> None:
    """Calls that only hand on what they got are left out; the same operation of two modules is one row."""
    assert keys(report, "operator") == {
        "opt.step()": 2 * (W1 + B1 + W2 + B2),
        "AddmmBackward0": W1 + B1 + W2 + B2,
        "torch.empty((out_features, in_features), **factory_kwargs)": W1 + B1 + W2 + B2,
        "F.linear(input, self.weight, self.bias)": HIDDEN + 4 * 32 * 10,
        "torch.relu(input)": HIDDEN,
        "torch.randn(32, 1000)": 4 * 32 * 1000,
        "(before start)": 96,
        "loss.backward()": 40,
    }


@pytest.mark.parametrize(
    ("frames", "shown"),
    [
        ((Frame("a.py", "f", 3, 3, 4, 9, text="y = x @ w"),), "x @ w"),
        ((Frame("a.py", "f", 3, 5, 4, 1, text="y = torch.cat("),), "torch.cat(...)"),
        ((Frame("a.py", "f", 3, text="  y = x @ w"),), "y = x @ w"),
        ((Frame("/home/me/a.py", "f", 3),), "f (me/a.py:3)"),
        ((Frame("b.py", "w", 1, text="return func(*args, **kwargs)"), Frame("a.py", "f", 3, text="g(x)")), "g(x)"),
        ((Frame("b.py", "w", 1, text="return func(*args, **kwargs)"),), "return func(*args, **kwargs)"),
        ((Frame("a.py", "f", 1, 1, 0, 7, text="\ud800(x)"),), "���(x)"),
        ((), "(no Python line)"),
    ],
)  # fmt: skip
def test_expressions(frames: tuple[Frame, ...], shown: str) -> None:
    assert grouping.operator(Contributor(1, 1, frames, "forward")) == shown


@pytest.mark.parametrize("by", grouping.GROUPINGS)
def test_every_table_sums_to_the_peak(report: cuptimem.Report, by: str) -> None:
    rows = grouping.group(report.peak.contributors, by)
    assert sum(row.bytes for row in rows) == TOTAL
    assert sum(row.count for row in rows) == report.peak.count == sum(row[1] for row in ROWS)
    document = json.table(report, report.peak, rows, by)
    assert [row[by] for row in document["rows"]] == [row.key for row in rows]


@pytest.mark.parametrize(
    ("by", "shown"),
    [
        ("line", ("a/inner/mod.py:2", "b/inner/mod.py:2")),
        ("library-line", ("a/inner/mod.py:2", "b/inner/mod.py:2")),
        ("file", ("a/inner/mod.py", "b/inner/mod.py")),
        ("function", ("work (a/inner/mod.py)", "work (b/inner/mod.py)")),
        ("stack", ("a/inner/mod.py:2", "b/inner/mod.py:2")),
    ],
)
def test_files_of_one_name_are_two(
    by: str, shown: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = [
        Contributor(size, 1, (Frame(f"{tmp_path}/{folder}/inner/mod.py", "work", 2),), "forward")
        for folder, size in (("a", 1024), ("b", 4096))
    ]
    contents = replace(labelled.report(tmp_path).peak, bytes=5120, contributors=tuple(made), rest_bytes=0, rest_count=0)
    *_, large, small = text.render(table_views.full(contents, by, "bytes", 9)).splitlines()
    assert shown[1] in large and "4.0 KiB" in large
    assert shown[0] in small and "1.0 KiB" in small


# -- the account ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [None, 1, 2])
def test_the_account_is_exact(report: cuptimem.Report, depth: int | None) -> None:
    found = report.account(depth=depth)
    assert (found.device, found.bytes, found.depth) == ("cpu", TOTAL, depth)
    assert found.total.bytes == sum(row.bytes for row in found.rows) == TOTAL
    assert found.total.count == sum(row.count for row in found.rows) == report.peak.count
    by_category = keys(report, "category")
    for category in CATEGORIES:
        parts = sum(row.of(category) for row in found.rows)
        assert found.total.of(category) == parts == by_category.get(category, 0)
    by_module = {grouping.OUTSIDE if row.module is None else row.module: row.bytes for row in found.rows}
    assert by_module == keys(report, "module", depth)


def test_bytes_without_a_contributor_are_unknown(report: cuptimem.Report) -> None:
    found = account.of_contents(replace(report.peak, bytes=TOTAL + 1000, rest_bytes=1000, rest_count=7))
    assert found.total.bytes == found.bytes == TOTAL + 1000
    assert found.total.of("unknown") == 1040 and found.total.count == report.peak.count + 7


def test_an_empty_account() -> None:
    from cuptimem.report.model import Peak

    found = account.of_contents(Peak("cpu", 0, 0, None, ()))
    assert (found.rows, found.total.bytes, found.total.parts) == ((), 0, (0,) * len(CATEGORIES))


def numbers(line: str) -> list[str]:
    return line.replace("optimizer state", "state").split()


def test_the_account_in_text(report: cuptimem.Report) -> None:
    lines = text.render(views.account(report, [report.account()], 40)).splitlines()
    assert f"cpu: {TOTAL:,} bytes (31.5 MiB) in 24 blocks, at the peak, in step 1" in lines[2]
    assert numbers(lines[4]) == ["parameters", "8,088,040", "25", "%", "4"]
    (whole,) = [line for line in lines if line.startswith("  module")]
    assert numbers(whole)[:5] == ["module", "all", "parameters", "gradients", "state"] and "buffers" not in whole
    (first,) = [line for line in lines if line.startswith("  net.0")]
    assert numbers(first) == ["net.0", "32,288,000", "8,008,000", "8,008,000", "16,016,000", "256,000"]
    assert numbers(lines[-1])[:3] == ["all", f"{TOTAL:,}", "8,088,040"]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_narrow_account_has_all_columns(report: cuptimem.Report, width: int) -> None:
    """Beside each other, or under each module with their names; no number is cut."""
    found = report.account()
    table = account_views.full([found], 2)[-1]
    assert isinstance(table, blocks.Table)
    lines = text.render([table], width).splitlines()
    assert all(len(line) <= width for line in lines)
    everything = " ".join(" ".join(lines).split()).replace(",  ", " ")
    assert "…" not in everything
    names = [name for name in table.columns[2:] if name.name]
    for row in table.rows:
        for column, cell in zip(names, row[2:], strict=True):
            assert not cell or f"{column.name} {cell}" in everything
    assert sum(line.split()[0] == "module" for line in lines) == sum(line.split()[0] == "all" for line in lines) == 1


def test_equal_modules_are_one_row_where_there_are_many(tmp_path: Path) -> None:
    """h.0.attn and h.1.attn; each has its own where all fit, and in JSON."""
    report = stacked.trained(tmp_path)
    assert [row.module for row in report.account().rows] == ["h.0.attn", "h.1.attn", "h.1.mlp", None]
    table = account_views.full([report.account()], 4)[-1]
    assert isinstance(table, blocks.Table)
    assert [row[:2] for row in table.rows] == [
        ("h.0.attn", "50"), ("h.1.attn", "20"), ("h.1.mlp", "20"), (grouping.OUTSIDE, "10"), ("all", "100"),
    ]  # fmt: skip
    table = account_views.full([report.account()], 3)[-1]
    assert isinstance(table, blocks.Table)
    assert [row[:2] for row in table.rows] == [
        ("h.*.attn", "70"), ("h.1.mlp", "20"), (grouping.OUTSIDE, "10"), ("all", "100"),
    ]  # fmt: skip


def test_rows_left_out_of_the_account_are_summed(report: cuptimem.Report) -> None:
    table = account_views.full([report.account(depth=2)], 1)[-1]
    assert isinstance(table, blocks.Table)
    figures = [int(row[1].replace(",", "")) for row in table.rows]
    assert [row[0] for row in table.rows] == ["net.*", "(1 more)", "all"]
    assert figures[0] + figures[1] == figures[2] == TOTAL


def test_where_nothing_is_known(tmp_path: Path) -> None:
    report = from_dict("x", sample.analysis(tmp_path))
    shown = text.render(views.account(report, [report.account()], 9))
    assert "What the blocks are for is not known" in shown and "unknown" in shown
    assert account_views.short(report.peak) == []
    (table,) = peak_views.lines_table(report.peak, 9)
    assert isinstance(table, blocks.Table) and table.columns[3].name == "phase"


# -- summary and peak ----------------------------------------------------------------------------------------------


def test_the_summary_names_the_categories(report: cuptimem.Report) -> None:
    shown = " ".join(str(report).split())
    assert (
        "optimizer state 15.4 MiB (49 %) · parameters 7.7 MiB (25 %) · gradients 7.7 MiB (25 %) · "
        "activations 500.0 KiB (2 %) · 3 others 126.3 KiB (0 %) · unknown 40 B (0 %)"
    ) in shown


def test_the_most_is_named_first(report: cuptimem.Report) -> None:
    """Also where nobody knows what it is for; a little that is unknown is no other category."""
    most = max(report.peak.contributors, key=lambda one: one.bytes)
    rows = tuple(replace(one, category="unknown") if one is most else one for one in report.peak.contributors)
    (said,) = account_views.short(replace(report.peak, contributors=rows))
    assert isinstance(said, blocks.Text) and said.text.strip().startswith("unknown ")


def test_modules_are_cut_where_they_are_alike(report: cuptimem.Report) -> None:
    """Of long names the end tells which one it is."""
    ends = ("query_projection", "key_projection")
    made = tuple(
        replace(report.peak.contributors[0], qualified=f"text_encoder_backbone.layers.11.self_attention_layer.{end}")
        for end in ends
    )
    contents = replace(report.peak, contributors=made)
    shown = text.render(table_views.full(contents, "module", "bytes", 9), 60).splitlines()[-2:]
    assert all(any(line.endswith(end) for line in shown) for end in ends), shown


def test_lines_have_categories(report: cuptimem.Report) -> None:
    (table,) = peak_views.lines_table(report.peak, 9)
    assert isinstance(table, blocks.Table)
    assert table.columns[3].name == "category"
    assert [row[3] for row in table.rows] == [
        "optimizer state", "gradient +1", "parameter", "input", "unknown", "before start",
    ]  # fmt: skip


@pytest.mark.parametrize(("bytes_", "said"), [(98, "activation"), (99, "activation"), (100, "activation +1")])
def test_a_category_of_less_than_a_hundredth_is_not_counted(bytes_: int, said: str) -> None:
    made = (
        Contributor(bytes_, 1, (), "forward", category="temporary"),
        Contributor(9_900, 1, (), "forward", category="activation"),
    )
    assert peak_views.category(made) == said


def entries(report: cuptimem.Report) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    head = ""
    for line in text.render(peak_views.full(report, [report.peak], 9)).splitlines()[2:]:
        if line.startswith(" " * 20):
            found[head].append(line.strip())
        else:
            head = line[line.index("(") :] if "before" not in line else "before"
            found[head] = []
    return found


def test_peak_says_what_the_blocks_are(report: cuptimem.Report) -> None:
    found = entries(report)
    assert found["(optimizer, optimizer state, 8 blocks)"][1:] == [
        "modules net.0, net.2",
        "tensors exp_avg of net.0.weight float32[2000, 1000], exp_avg of net.2.weight float32[10, 2000] +2",
    ]
    assert found["(backward +1, gradient +1, 7 blocks)"][-3:] == [
        "operators AddmmBackward0",
        "saved by AddmmBackward0, ReluBackward0",
        "tensors net.0.weight float32[2000, 1000]",
    ]
    assert found["(data, input, 1 block)"][-1] == "tensors float32[32, 1000]"
    assert "(other, unknown, 3 blocks)" in found


def test_a_tensor_is_shown_with_what_is_known() -> None:
    def shown(name: str | None, dtype: str | None, shape: tuple[int, ...] | None) -> str:
        return peak_views.tensor(LiveTensor(name, "parameter", 4, None, dtype, shape, ()))

    assert shown("scale", "float32", ()) == "scale float32[]"
    assert shown("a.weight", None, None) == "a.weight"
    assert shown(None, "bfloat16", (2, 3)) == "bfloat16[2, 3]"
    assert shown(None, None, None) == ""


# -- JSON ----------------------------------------------------------------------------------------------------------


# -- the command ---------------------------------------------------------------------------------------------------


def test_the_verb(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from cuptimem.cli import main

    path = str(tmp_path / "run.cmem")
    write_synthetic(path, 5_000, 1)
    peak = cuptimem.open(path).peak
    assert main(["account", path, "--depth", "1", "--json"]) == 0
    document = json_module.loads(capfd.readouterr().out)
    assert document["accounts"][0]["bytes"] == peak.bytes
    assert main(["account", path]) == 0
    assert f"{peak.device}: {peak.bytes:,} bytes" in capfd.readouterr().out
    for wrong in (["account", path, "--depth", "0"], ["table", path, "--by", "line", "--depth", "2"]):
        with pytest.raises(SystemExit) as end:
            main(wrong)
        assert end.value.code == 2 and "--depth" in capfd.readouterr().err
    assert main(["account", path, "--device", "cuda:7"]) == 1
    assert "no device 'cuda:7'" in capfd.readouterr().err
