"""Pages about stacks in a browser: sums of what scripts show, zoom, search, directions, devices, keys, paper."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem.output.pages import diff, flamegraph, tables
from cuptimem.output.text import tree_views
from cuptimem.output.text.part_views import under
from cuptimem.printable import printable
from cuptimem.report import grouping
from cuptimem.report.diff import compare
from tests.tools.cli import labelled, stacked
from tests.tools.pages import stack_reports

Show = Callable[[str], Any]


@pytest.fixture
def show(browser_page: Any, tmp_path: Path) -> Show:
    """Opens a page and waits until its scripts have drawn it."""

    def open_page(html: str) -> Any:
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        browser_page.emulate_media(reduced_motion="reduce")
        browser_page.goto(path.as_uri())
        browser_page.wait_for_selector(":root[data-ready], #empty", state="attached")
        return browser_page

    return open_page


# Every node of every tree: what is below it and what ends in it are its bytes and its blocks.
SUMS = """async () => {
    const stacks = new Stacks(await cuptimem.data()), found = [];
    for (const by of ["stack", "module"]) for (const inverted of [false, true]) for (const own of [false, true])
        stacks.data.measures.forEach((m, i) => {
            const root = stacks.tree([i], { by, inverted, own });
            const pending = [root];
            let wrong = 0, nodes = 0;
            while (pending.length) {
                const node = pending.pop();
                const below = node.children.reduce((sum, child) => sum + child.bytes[0], 0);
                if (below + node.self[0] !== node.bytes[0]) wrong++;
                if ([...node.phases.values()].reduce((a, b) => a + b, 0) !== node.bytes[0]) wrong++;
                nodes++;
                pending.push(...node.children);
            }
            found.push([m.bytes === root.bytes[0] && m.count === root.count[0], wrong, nodes]);
        });
    return found;
}"""


@pytest.mark.parametrize("kind", ["some", "hostile", "damaged", "recorded"])
def test_every_tree_sums(show: Show, tmp_path: Path, kind: str) -> None:
    page = show(flamegraph.html(getattr(stack_reports, kind)(tmp_path)))
    found = page.evaluate(SUMS)
    assert len(found) == 8 * 6 and all(whole and not wrong for whole, wrong, _ in found)
    assert max(nodes for _, _, nodes in found) > 5
    assert page.title() != "1"


def test_a_flame_graph_is_whole_at_once(show: Show, tmp_path: Path) -> None:
    """Before any timer runs: frames grow, and get their names, where it is zoomed, not when the page opens."""
    page = show(flamegraph.html(stack_reports.some(tmp_path)))
    frames = page.evaluate(
        """() => {
        const host = document.getElementById("chart"), bar = document.getElementById("bar");
        [...bar.querySelectorAll("button")].find((one) => one.getAttribute("aria-checked") === "false").click();
        return [...host.querySelectorAll("g.frame")].map((g) => [
            g.getAttribute("width"), g.querySelector("rect").getAttribute("width"),
            g.__data__.data.name, g.querySelector(".d3-flame-graph-label").textContent]);
    }"""
    )
    assert len(frames) > 5
    for wanted, drawn, name, label in frames:
        assert float(wanted) > 0 and (wanted, name) == (drawn, label) and name


def tree_of(page: Any, how: str) -> list[list[Any]]:
    """Depth, title, bytes and blocks of each node, in their order."""
    return page.evaluate(  # type: ignore[no-any-return]
        """async (how) => {
        const stacks = new Stacks(await cuptimem.data()), found = [];
        const walk = (node, depth) => {
            found.push([depth, node.title, node.bytes[0], node.count[0]]);
            node.children.forEach((child) => walk(child, depth + 1));
        };
        walk(stacks.tree([0], how), 0);
        return found;
    }""",
        how,
    )


@pytest.mark.parametrize("inverted", [False, True])
def test_the_tree_is_that_of_the_verb(show: Show, tmp_path: Path, inverted: bool) -> None:
    report = stacked.trained(tmp_path)
    page = show(tables.tree(report, report.peaks, inverted))
    found = sorted(map(tuple, tree_of(page, {"by": "stack", "inverted": inverted, "own": False})))  # type: ignore[arg-type]
    expected = []
    pending = [(0, tree_views.build(report.peak.contributors, inverted))]
    while pending:
        depth, node = pending.pop()
        expected.append((depth, node.frame.function if node.frame else "all", node.bytes, node.count))
        pending += [(depth + 1, below) for below in node.below.values()]
    assert found == sorted(expected)


def frames(page: Any) -> list[str]:
    return page.eval_on_selector_all("#chart g.frame", "all => all.map((g) => g.__data__.data.title)")  # type: ignore[no-any-return]


def test_zoom_and_back(show: Show, tmp_path: Path) -> None:
    page = show(flamegraph.html(stacked_with_tables(tmp_path)))
    calls = {"main", "load", "Loop.train", "Loop.step", "Attention.forward", "MLP.forward"}
    assert set(frames(page)) == {"all of cpu", "Module._call_impl", "Linear.forward", "relu", *calls}
    page.click('#chart g.frame[aria-label^="MLP.forward"]')
    page.wait_for_function("!document.querySelector('#chart g.frame[aria-label^=\"load\"]')")
    assert "Attention.forward" not in frames(page)
    assert page.inner_text("#said") == "MLP.forward: 20 B, 20 % of all"
    assert [b.strip("› ") for b in page.locator("#trail button").all_inner_texts()][-1] == "MLP.forward"
    assert "Below MLP.forward: 20 B in 1 block" in page.inner_text("#lines h2")
    page.click("#trail button >> nth=0")
    page.wait_for_selector('#chart g.frame[aria-label^="load"]', state="attached")
    assert page.inner_text("#said") == ""


def stacked_with_tables(folder: Path) -> cuptimem.Report:
    """90 of 100 bytes stand at one line of the user's; at the end 10 do."""
    main, train, step = stacked.MAIN, stacked.TRAIN, stacked.STEP
    rows: list[stack_reports.Row] = [
        (50, 2, "forward", [stacked.LINEAR, stacked.CALL, (*stacked.ATTENTION, "Attention"), step, train, main]),
        (20, 1, "backward", [stacked.LINEAR, stacked.CALL, (*stacked.ATTENTION, "Attention"), step, train, main]),
        (20, 1, "forward", [stacked.RELU, (*stacked.MLP, "MLP"), stacked.CALL, step, train, main]),
        (10, 1, "data", [stacked.DATA]),
    ]
    return stack_reports.by_hand(folder, {"peak": rows, "end": rows[3:], "allocated": rows})


def test_search_says_the_share(show: Show, tmp_path: Path) -> None:
    page = show(flamegraph.html(stacked_with_tables(tmp_path)))
    page.fill("#search", "linear")
    assert page.inner_text("#said") == "“linear”: 70 B, 70 % of what is shown"
    assert page.locator("#chart g.found").count() == 1
    # Callers and what they call count once.
    page.fill("#search", "gpt.py")
    assert page.inner_text("#said") == "“gpt.py”: 90 B, 90 % of what is shown"
    page.fill("#search", "[(no pattern")
    assert page.inner_text("#said").endswith("0 B, 0 % of what is shown")
    page.keyboard.press("Escape")
    assert page.inner_text("#said") == "" and page.locator("#chart g.found").count() == 0


def test_what_and_directions(show: Show, tmp_path: Path) -> None:
    page = show(flamegraph.html(stacked_with_tables(tmp_path)))
    assert page.locator(".what b").all_inner_texts() == ["100 B", "10 B", "nothing", "nothing", "100 B", "nothing"]
    page.click("[data-what=end]")
    assert page.inner_text("#meaning") == "At the end: what is alive at the end, older than the recording or not."
    assert set(frames(page)) == {"all of cpu", "load"}
    page.click("[data-what=peak]")
    page.click("[data-value=out]")
    depth = "d3.select('#chart').datum().children.map((d) => [d.data.title, d.data.bytes[0]])"
    assert page.evaluate(depth) == [["Linear.forward", 70], ["relu", 20], ["load", 10]]
    page.click("[data-value=in]")
    page.click("[data-value=module]")
    assert page.evaluate(depth) == [["Attention", 70], ["MLP", 20], ["(outside modules)", 10]]
    page.click("[data-value=stack]")
    page.click("#own")
    assert sorted(frames(page)) == ["all of cpu", "load", "main"]
    assert page.locator("#legend .chip").all_inner_texts() == ["your code"]


def test_modules_and_categories(show: Show, tmp_path: Path) -> None:
    """By the modules' names, a number with the name before it; by category, outermost in both directions."""
    report = labelled.report(tmp_path)
    page = show(flamegraph.html(report))
    below = "(d) => d.children?.map((d) => [d.data.title, d.data.bytes[0]])"
    page.click("[data-value=module]")
    (whole,) = page.evaluate(f"[({below})(d3.select('#chart').datum())]")
    net = labelled.TOTAL - 4 * 32 * 1000 - 96 - 40
    assert [row for row in whole if row[0] in ("net.0", "net.1", "net.2")] == [
        ["net.0", 32_288_000], ["net.2", 321_440], ["net.1", 256_000]
    ] and sum(row[1] for row in whole if row[0].startswith("net")) == net  # fmt: skip
    by_category = [[row.key, row.bytes] for row in grouping.group(report.peak.contributors, "category")]
    page.click("[data-value=category]")
    assert sorted(page.evaluate(f"({below})(d3.select('#chart').datum())")) == sorted(by_category)
    page.click("[data-value=out]")
    assert sorted(page.evaluate(f"({below})(d3.select('#chart').datum())")) == sorted(by_category)


@pytest.mark.parametrize("by", ["module", "category", "operator"])
@pytest.mark.parametrize("depth", [None, 1])
def test_table_by_what_blocks_are(show: Show, tmp_path: Path, by: str, depth: int | None) -> None:
    report = labelled.report(tmp_path)
    page = show(tables.table(report, report.peaks, by, "bytes", depth))
    found = (
        "[...document.querySelectorAll('#table tbody tr')].map((r) => [r.cells[4].textContent, r.cells[2].textContent])"
    )

    def rows(depth: int | None) -> list[list[str]]:
        groups = grouping.group(report.peak.contributors, by, depth=depth)
        return sorted([row.key, str(row.count)] for row in groups)

    assert sorted(page.evaluate(found)) == rows(depth)
    assert page.is_enabled("#depth") == (by == "module")
    if by == "module":
        page.fill("#depth", "2")
        assert sorted(page.evaluate(found)) == rows(2)


def test_devices(show: Show, tmp_path: Path) -> None:
    page = show(flamegraph.html(two_devices(tmp_path)))
    assert page.locator("#device option").all_inner_texts() == ["cuda:0", "cpu"]
    first = page.inner_text("[data-what=peak]")
    page.select_option("#device", "cpu")
    assert page.inner_text("[data-what=peak]") != first
    assert "all of cpu" in frames(page)


def two_devices(folder: Path) -> cuptimem.Report:
    """Of a report by hand, whose device is there twice, under another name and with half of its blocks."""
    from dataclasses import replace

    report = stacked_with_tables(folder)
    (cpu,) = report.devices
    peak = replace(cpu.peak, device="cuda:0", bytes=70, contributors=cpu.peak.contributors[:2])
    cuda = replace(cpu, name="cuda:0", peak=peak, tables=tuple(replace(table, device="cuda:0") for table in cpu.tables))
    return replace(report, devices=(cuda, cpu))


def test_keys(show: Show, tmp_path: Path) -> None:
    page = show(flamegraph.html(stacked_with_tables(tmp_path)))
    here = "document.activeElement.__data__?.data.title"
    page.focus('#chart g.frame[tabindex="0"]')
    trail = [page.evaluate(here)]
    for key in ("ArrowDown", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
        trail.append(page.evaluate(here))
    assert trail == ["all of cpu", "main", "load", "main", "Loop.train", "main"]
    assert page.is_visible(".tip") and "train.py:9" in page.inner_text(".tip")
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('said').textContent.startsWith('main')")
    assert page.evaluate(here) == "main"
    page.keyboard.press("Escape")
    assert page.inner_text("#said") == ""
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.focus('.what[aria-checked="true"]')
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.what") == "end" and "load" in frames(page)


def test_a_tip_says_all_of_a_frame(show: Show, tmp_path: Path) -> None:
    page = show(flamegraph.html(stack_reports.some(tmp_path)))
    frame = page.locator("#chart g.frame.own").first
    frame.hover()
    tip = page.inner_text(".tip")
    node = frame.evaluate("(g) => ({ ...g.__data__.data, children: null, phases: null })")
    for part in (node["title"], node["place"], f"{node['bytes'][0]:,} bytes", f"{node['count'][0]} block", "x = y"):
        assert part in tip


def test_dark_and_paper(show: Show, tmp_path: Path) -> None:
    page = show(flamegraph.html(stacked_with_tables(tmp_path)))
    ground = "getComputedStyle(document.body).backgroundColor"
    fill = "getComputedStyle(document.querySelector('#chart g.own rect')).fill"
    light = page.evaluate(ground), page.evaluate(fill)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground), page.evaluate(fill)
    assert light[0] == "rgb(255, 255, 255)" and dark[0] != light[0] and dark[1] != light[1]
    page.emulate_media(media="print")
    assert not page.is_visible("#bar") and page.is_visible("#chart svg") and page.is_visible("#lines table")
    assert page.pdf().startswith(b"%PDF")


def test_nothing_at_all(show: Show, tmp_path: Path) -> None:
    from dataclasses import replace

    empty = replace(stack_reports.by_hand(tmp_path, {"peak": []}), devices=())
    for html in (flamegraph.html(empty), tables.tree(empty, (), False), diff.html(empty, empty, [])):
        assert "Nothing was allocated" in show(html).inner_text("#empty")


def test_one_event(show: Show, tmp_path: Path) -> None:
    report = stack_reports.by_hand(tmp_path, {"peak": [(7, 1, "other", [stacked.DATA])]}, steps=[])
    page = show(flamegraph.html(report))
    assert sorted(frames(page)) == ["all of cpu", "load"]
    assert "No steps were seen" in page.inner_text("main")


def test_many_lines(show: Show, tmp_path: Path) -> None:
    page = show(flamegraph.html(stack_reports.many_lines(tmp_path, 5_000)))
    assert "2,000 smaller ones are merged" in page.inner_text("main")
    found = page.evaluate(SUMS)
    assert all(whole and not wrong for whole, wrong, _ in found)
    assert page.locator("#chart g.frame").count() < 4000


def test_tree_keys_and_filter(show: Show, tmp_path: Path) -> None:
    report = stacked.trained(tmp_path)
    page = show(tables.tree(report, report.peaks, False))
    titles = "[...document.querySelectorAll('.item')].filter((i) => i.offsetParent).map((i) => i.node.title)"
    opened = page.evaluate(titles)
    # Open along the heaviest path down to its end.
    assert opened[:4] == ["all of cpu", "main", "Loop.train", "Loop.step"] and "Linear.forward" in opened
    assert "relu" not in opened
    here = "document.activeElement.node?.title"
    page.focus('.item[tabindex="0"]')
    trail = []
    for key in ("ArrowDown", "ArrowLeft", "ArrowDown", "ArrowUp", "ArrowRight", "ArrowRight", "End", "Home", "l"):
        page.keyboard.press(key)
        trail.append(page.evaluate(here))
    assert trail == ["main", "main", "load", "main", "main", "Loop.train", "load", "all of cpu", "Loop.train"]
    page.fill("#filter", "relu")
    assert "“relu”: 20 B, 20 %" in page.inner_text("#said")
    assert page.evaluate(titles)[-1] == "relu" and "load" not in page.evaluate(titles)
    page.keyboard.press("Escape")
    assert page.evaluate(titles) == opened
    levels = page.eval_on_selector_all(
        ".item", "all => all.every((i) => i.getAttribute('aria-level') && i.getAttribute('aria-setsize'))"
    )
    assert levels


@pytest.mark.parametrize("by", ["line", "library-line", "function", "file", "module", "phase", "stack"])
def test_table_groups_as_the_verb(show: Show, tmp_path: Path, by: str) -> None:
    for report in (stacked.trained(tmp_path), stack_reports.some(tmp_path, 6)):
        page = show(tables.table(report, report.peaks, by, "bytes"))
        found = page.evaluate(
            "[...document.querySelectorAll('#table tbody tr')]"
            ".map((r) => [4, 2].map((i) => r.cells[i].firstChild.data))"
        )
        rows = grouping.group(report.peak.contributors, by, "bytes")
        expected = [[printable(row.key), f"{row.count:,}"] for row in rows]
        if report.peak.rest_bytes:
            expected.append(["(everything else)", f"{report.peak.rest_count:,}"])
        assert sorted(found) == sorted(expected)
        below = [part for row in rows for part in under(row, report.peak)] if by == "line" else []
        assert sorted(page.locator("#table .below").all_text_contents()) == sorted(map(printable, below))


def test_table_sorts_filters_and_copies(show: Show, tmp_path: Path) -> None:
    report = stack_reports.hostile(tmp_path)
    page = show(tables.table(report, report.peaks, "line", "bytes"))
    total = "document.querySelector('#table tfoot tr').title"
    assert page.evaluate(total) == f"{report.peak.bytes:,} bytes"
    page.fill("#filter", "main")
    assert page.evaluate(total) == "0 bytes"
    page.fill("#filter", "gräfin")
    assert page.evaluate(total) == "1,001 bytes" and page.inner_text("#table tfoot td >> nth=4") == "1 row of 7"
    page.fill("#filter", "")
    page.click("[data-sort=key]")
    keys = page.locator("#table tbody td:nth-child(5)").all_inner_texts()
    assert keys == sorted(keys) and page.get_attribute("th:has([data-sort=key])", "aria-sort") == "ascending"
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.click("#copy")
    rows = list(csv.reader(io.StringIO(page.evaluate("window.copied"))))
    assert rows[0][0] == "bytes" and sum(int(row[0]) for row in rows[1:]) == report.peak.bytes
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row)
    assert any(cell == "'=cmd()" for row in rows for cell in row)


def test_diff_page(show: Show, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    before, after = stack_reports.some(tmp_path / "a", 1), stack_reports.some(tmp_path / "b", 2)
    (device,) = compare(before, after)
    page = show(diff.html(before, after, [device]))
    assert page.locator(".card").count() == 3 and page.locator("#curves canvas").count() == 1
    for section in device.sections:
        page.click(f"#what [data-value={section.what}]")
        for equal in (False, True):
            page.set_checked("#equal", equal)
            foot = page.locator("#changes tfoot tr")
            assert int(foot.get_attribute("data-before")) == section.bytes[0]
            assert int(foot.get_attribute("data-after")) == section.bytes[1]
        if section.what != "stepped":
            root = "d3.select('#chart').datum().data.bytes"
            assert page.evaluate(root) == list(section.bytes)
            for width in (0, 1):
                page.click(f"#width [data-value='{width}']")
                assert page.evaluate("d3.select('#chart').datum().value") == section.bytes[width]
    page.click("#over [data-value=time]")
    assert page.locator("#curves canvas").count() == 1
    page.fill("#filter", "no such line")
    assert page.inner_text("#changes tfoot td >> nth=3").startswith("0 lines of")
    page.emulate_media(color_scheme="dark")
    assert page.locator("#curves canvas").count() == 1


def test_colours_of_change(show: Show, tmp_path: Path) -> None:
    report = stacked_with_tables(tmp_path)
    page = show(diff.html(report, report, compare(report, report)))
    shown = page.evaluate("[[0, 5], [5, 0], [5, 5], [4, 5]].map(([a, b]) => changeColour(a, b))")
    assert (
        "--grew) 100%" in shown[0] and "--shrank) 100%" in shown[1] and " 0%" in shown[2] and "--grew) 45%" in shown[3]
    )
    assert page.inner_text("#changes tbody").count("equal line") == 1


def test_a_cut_trace(show: Show, tmp_path: Path) -> None:
    page = show(flamegraph.html(stack_reports.recorded(tmp_path, "cuda", 200_000, cut=5000)))
    assert "the end of the recording is missing" in page.inner_text("header")
    assert page.locator("#chart g.frame").count() > 3


def test_tables_need_no_script(browser_process: Any, tmp_path: Path) -> None:
    report = stacked_with_tables(tmp_path)
    pages = (
        flamegraph.html(report),
        tables.table(report, report.peaks, "line", "bytes"),
        tables.tree(report, report.peaks, False),
        diff.html(report, report, compare(report, report)),
    )
    with browser_process.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        for html, wanted in zip(
            pages, ("me/train.py:4", "me/train.py:4", "train.py:4 load", "me/train.py:4"), strict=True
        ):
            (tmp_path / "page.html").write_text(html)
            page.goto((tmp_path / "page.html").as_uri())
            assert wanted in page.inner_text("main") and not page.is_visible("#app")
