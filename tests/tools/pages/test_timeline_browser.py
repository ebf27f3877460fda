"""The timeline in a Chromium: what a person does with it, with pointer and keys."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem import _core
from cuptimem.output.pages import timeline
from cuptimem.output.text import advice_views
from cuptimem.output.text.words import size
from cuptimem.report.advice import Advice, Proposal
from cuptimem.report.model import Report
from tests.tools.pages import timeline_traces as traces

Open = Callable[[Report], Any]

BY = "select[aria-label='Stack by']"


@pytest.fixture
def opened(browser_page: Any, tmp_path: Path) -> Open:
    """opened(report): the page, drawn."""

    def go(report: Report) -> Any:
        path = tmp_path / "page.html"
        path.write_text(timeline.page(report), encoding="utf-8")
        assert path.stat().st_size < 5_000_000  # also with 100,000 lines
        browser_page.goto(path.as_uri())
        browser_page.wait_for_selector(".contributors tbody tr, .empty", state="attached")
        return browser_page

    return go


def by_line(page: Any) -> Any:
    """The page, stacked by line; it opens by category."""
    assert page.input_value(BY) == "category"
    page.select_option(BY, "line")
    wait_until_drawn(page)
    return page


@pytest.fixture
def leaking(tmp_path: Path) -> Report:
    report = cuptimem.open(traces.training(60, leak=True).write(tmp_path / "leaking.cmem"))
    assert [leak.frame.line for leak in report.leaks if leak.frame is not None] == [40]
    return report


@pytest.fixture
def synthetic(tmp_path: Path) -> Report:
    path = str(tmp_path / "synthetic.cmem")
    write_synthetic(path, 10_000)
    return cuptimem.open(path)


def rows(page: Any) -> dict[str, int]:
    """The table beside the picture: bytes by name, of all its rows but those of details."""
    found = page.eval_on_selector_all(
        ".contributors tbody tr[data-group]",
        "all => all.map(row => [row.querySelector('.row-label')?.textContent ?? row.dataset.group, "
        "Number(row.querySelector('[data-bytes]').dataset.bytes)])",
    )
    sums: dict[str, int] = {}
    for name, bytes_ in found:  # functions of one name in several files are several rows
        sums[name] = sums.get(name, 0) + bytes_
    return sums


def title(page: Any) -> str:
    return str(page.locator(".side-title").inner_text())


def wait_until_drawn(page: Any) -> None:
    """What was asked for is drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def of_the_peak(report: Report, key: Callable[[Any], str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in report.peak.contributors:
        found[key(one)] = found.get(key(one), 0) + one.bytes
    return found


def test_it_opens_at_the_peak(opened: Open, synthetic: Report) -> None:
    page = opened(synthetic)
    assert title(page) == "At the peak"
    assert rows(page) == of_the_peak(synthetic, lambda one: one.category)
    assert rows(by_line(page)) == of_the_peak(synthetic, lambda one: one.where)
    assert int(page.locator(".side-said").get_attribute("data-bytes")) == synthetic.peak.bytes
    assert f"step {synthetic.peak.step}" in page.locator(".mark.peak").inner_text()


def test_a_click_on_the_peak_shows_its_contributors(opened: Open, synthetic: Report) -> None:
    page = by_line(opened(synthetic))
    page.mouse.click(300, 400)
    wait_until_drawn(page)
    assert title(page) != "At the peak"
    page.locator(".mark.peak").click()
    wait_until_drawn(page)
    assert title(page) == "At the peak"
    assert sum(rows(page).values()) == synthetic.peak.bytes
    assert rows(page) == of_the_peak(synthetic, lambda one: one.where)


def test_other_groupings_are_other_series_with_the_same_sum(opened: Open, synthetic: Report) -> None:
    page = opened(synthetic)
    by_line = rows(page)
    page.select_option(BY, "module")
    wait_until_drawn(page)
    by_module = rows(page)
    assert by_module != by_line
    assert by_module == of_the_peak(
        synthetic, lambda one: " › ".join(one.modules[-2:]) if one.modules else "(outside modules)"
    )
    page.select_option(BY, "phase")
    wait_until_drawn(page)
    assert rows(page) == of_the_peak(synthetic, lambda one: one.phase)


@pytest.mark.parametrize("dark", ["true", "false"])
def test_no_group_has_the_colour_of_a_phase(opened: Open, synthetic: Report, dark: str) -> None:
    """Stacked by phase they have the colours of the strip below."""
    page = opened(synthetic)
    phases = ("data", "forward", "backward", "optimizer")
    shown = [page.evaluate(f"timelineInk.colour('{phase}', {dark})") for phase in phases]
    groups = page.evaluate(f"[...Array(30).keys()].map((slot) => timelineInk.colour(slot - 1, {dark}))")
    assert len(set(shown)) == len(phases) and not {*shown} & {*groups}
    page.select_option(BY, "phase")
    wait_until_drawn(page)
    assert rows(page) == of_the_peak(synthetic, lambda one: one.phase)


def test_every_grouping_stacks_up_to_the_live_curve(opened: Open, synthetic: Report) -> None:
    """In the script's own series, at every level of detail."""
    page = opened(synthetic)
    wrong = page.evaluate(
        """async () => {
            const raw = await cuptimem.data(), model = new timelineModel.Model(raw), wrong = [];
            for (const device of model.devices)
                for (const grouping of Object.keys(raw.groups))
                    for (let level = 1; level < device.pieces.length; level++) {
                        const stack = device.stack(grouping, level, () => true);
                        stack.high.forEach((high, i) => {
                            const sum = stack.groups.reduce((all, group) => all + group.values[i], 0);
                            const least = Math.min(...stack.groups.map((group) => group.values[i]));
                            if (sum !== high || least < 0) wrong.push([grouping, level, i, sum, high, least]);
                        });
                        if (Math.max(...stack.high) !== device.peak.bytes) wrong.push([grouping, level, "peak"]);
                    }
            return wrong;
        }"""
    )
    assert wrong == []


def test_a_range_sums_what_was_born_and_died(opened: Open, synthetic: Report) -> None:
    page = opened(synthetic)
    page.keyboard.press("0")
    wait_until_drawn(page)
    box = page.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + 1, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 220, steps=4)
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 220, steps=4)
    page.mouse.up()
    wait_until_drawn(page)
    assert title(page).startswith("From ")
    assert [cell.strip() for cell in page.locator(".contributors thead th").all_inner_texts()][1:] == [
        "born",
        "died",
        "still alive",
    ]
    assert int(page.locator(".side-said").get_attribute("data-bytes")) == synthetic.devices[0].allocated
    assert sum(rows(page).values()) == synthetic.devices[0].allocated


def test_search_filters(opened: Open, synthetic: Report) -> None:
    page = by_line(opened(synthetic))
    before = rows(page)
    page.keyboard.press("/")
    page.keyboard.type("model.py:29")
    wait_until_drawn(page)
    found = rows(page)
    assert 0 < len(found) < len(before)
    assert found["project/model.py:29"] == before["project/model.py:29"]
    page.keyboard.press("Escape")
    wait_until_drawn(page)
    assert rows(page) == before


def test_keys_move_zoom_and_explain(opened: Open, synthetic: Report) -> None:
    page = opened(synthetic)
    page.keyboard.press("0")
    page.locator(".plot").focus()
    page.keyboard.press("ArrowLeft")
    wait_until_drawn(page)
    first = title(page)
    assert first.startswith("Alive at ")
    page.keyboard.press("[")
    wait_until_drawn(page)
    assert title(page) != first
    assert "live" in page.locator("[aria-live]").inner_text()
    page.keyboard.press("?")
    assert page.locator(".help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator(".help").is_visible()
    whole = page.locator(".u-axis, .plot canvas").first.screenshot()
    for _ in range(4):
        page.keyboard.press("+")
    wait_until_drawn(page)
    assert page.locator(".u-axis, .plot canvas").first.screenshot() != whole
    page.keyboard.press("p")
    wait_until_drawn(page)
    assert title(page) == "At the peak"


def test_tab_reaches_what_can_be_used(opened: Open, synthetic: Report) -> None:
    page = opened(synthetic)
    seen = []
    for _ in range(16):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("() => document.activeElement.className + ' ' + document.activeElement.tagName"))
    for wanted in ("tab BUTTON", " SELECT", " INPUT", "plot DIV", "mark peak BUTTON"):
        assert any(one.endswith(wanted) for one in seen), (wanted, seen)


def test_a_name_without_room_keeps_its_line_number(opened: Open, leaking: Report) -> None:
    page = by_line(opened(leaking))
    style = ".row-cut::before { content: 'a/long/folder/of/folders/with/a/long/name/and/more/of/it/'; }"
    page.add_style_tag(content=style)
    lines = page.locator(".row-label", has_text=re.compile(r":\d+$")).all()
    assert len(lines) >= 3
    for label in lines:
        width, all_of_it = label.evaluate("one => [one.clientWidth, one.scrollWidth]")
        assert all_of_it <= width  # what is cut is cut before the number
        assert label.locator(".row-cut").evaluate("one => one.scrollWidth > one.clientWidth")


def test_a_leak_jumps_to_its_place(opened: Open, leaking: Report) -> None:
    page = opened(leaking)
    page.locator(".leak-jump").first.click()
    wait_until_drawn(page)
    chosen = page.locator("tr.chosen .row-label").all_text_contents()
    assert chosen == ["train.py:40"]
    assert title(page).startswith("Alive at ")
    chosen_bytes = rows(page)["train.py:40"]
    assert leaking.leaks[0].bytes - 512 <= chosen_bytes <= leaking.leaks[0].bytes
    assert "A leak: +512 B a step" in page.locator("tr.detail").inner_text()
    page.keyboard.press("Escape")
    wait_until_drawn(page)
    assert page.locator("tr.chosen").count() == 0


def test_advice_marks_its_line(opened: Open, leaking: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    (frame,) = {one.frame for one in leaking.peak.contributors if one.frame is not None and one.frame.line == 40}
    peak = leaking.peak.bytes
    one = Proposal("offload", False, peak // 2, peak // 2, frame, "<write> this", "slower", "rough")
    other = Proposal("sgd", False, peak // 4, peak // 4, None, "SGD", "learns", "exact")
    advised = Advice("cpu", peak, None, (one, other), note="of a part")
    monkeypatch.setattr(advice_views, "quick", lambda report: advised)
    page = opened(leaking)
    table = page.locator("table.advice")
    assert table.locator("tbody tr").count() == 2 and "<write> this" in table.inner_text()
    assert "of a part" in table.locator("caption").inner_text()
    assert page.locator(".advised .tag").count() == 0  # stacked by category
    page.get_by_role("button", name="offload: about").click()
    wait_until_drawn(page)
    assert title(page) == "At the peak"
    assert page.locator("tr.chosen .row-label").all_text_contents() == ["train.py:40"]
    assert page.locator(".advised .tag").all_text_contents() == [f"offload −{advice_views.saving(one, peak)}"]
    assert "<write> this" in page.locator("tr.detail").inner_text()
    page.get_by_role("button", name="sgd: ").click()
    wait_until_drawn(page)
    assert page.locator("tr.chosen").count() == 0


def test_an_allocation_says_what_it_is(opened: Open, leaking: Report) -> None:
    page = opened(leaking)
    page.locator(".blocks").focus()
    page.keyboard.press("ArrowRight")
    facts = page.locator(".block-facts").inner_text()
    assert re.search(r"size\s+[\d.]+ (B|KiB)", facts) and "born" in facts and "died" in facts
    page.locator(".block-facts button").click()
    assert not page.locator(".block-facts").is_visible()


def test_only_what_was_judged_is_a_leak(opened: Open, leaking: Report) -> None:
    """The line of the leak makes what its step frees, too; the stripes are for what was alive behind the last step."""
    page = opened(leaking)
    found = page.evaluate(
        """async () => {
        const data = await cuptimem.data(), model = new timelineModel.Model(data);
        const [device] = model.devices, leak = data.leaks[0];
        const made = device.blocks.filter((block) => data.contributors.leak[block.contributor] === 0);
        const kept = made.filter((block) => model.leakOfBlock(block) === leak);
        const early = { ...kept[0], end: kept[0].begin + 1, endStep: kept[0].step };
        return [made.length, kept.length, kept.every((block) => block.end < 0), model.leakOfBlock(early)];
    }"""
    )
    made, kept, alive, early = found
    assert made >= kept == leaking.leaks[0].count and alive and early is None


def test_light_dark_and_toggle(opened: Open, synthetic: Report, browser_page: Any) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    browser_page.emulate_media(color_scheme="dark")
    page = opened(synthetic)
    assert page.evaluate(ground) == "rgb(22, 24, 29)"
    page.keyboard.press("d")
    wait_until_drawn(page)
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


def test_print_is_white_and_has_the_tables(opened: Open, leaking: Report, browser_page: Any) -> None:
    browser_page.emulate_media(color_scheme="dark")
    page = opened(leaking)
    page.emulate_media(color_scheme="dark", media="print")
    wait_until_drawn(page)
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator(".controls.bar").is_visible()
    text = page.locator(".numbers").inner_text()
    assert f"{leaking.peak.bytes:,}" in text and "train.py:40" in text and "Steps on cpu" in text


def test_tables_fit_into_a_narrow_window(opened: Open, browser_page: Any, tmp_path: Path) -> None:
    report = cuptimem.open(traces.training(12, leak=True, file=f"{'long_' * 12}.py").write(tmp_path / "long.cmem"))
    browser_page.set_viewport_size({"width": 800, "height": 900})
    page = opened(report)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 800
    wide = "() => [...document.querySelectorAll('.numbers table')].map(one => one.getBoundingClientRect().right)"
    assert all(right <= 800 for right in page.evaluate(wide))


def test_without_javascript_the_tables_are_there(browser_process: Any, leaking: Report, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(timeline.page(leaking), encoding="utf-8")
    context = browser_process.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert f"{leaking.peak.bytes:,}" in page.locator(".numbers").inner_text()
    assert "needs JavaScript" in page.locator("body").inner_text()
    context.close()


def test_devices_are_tabs(opened: Open, tmp_path: Path) -> None:
    report = cuptimem.open(traces.device().write(tmp_path / "cuda.cmem"))
    page = opened(report)
    assert page.locator("[role=tab]").all_inner_texts()[0].startswith("cuda:0")
    assert sum(rows(page).values()) == report.devices[0].peak.bytes
    assert page.locator(".mark.oom").count() == 1
    page.locator(".mark.oom").click()
    wait_until_drawn(page)
    assert title(page) == "When the device refused"
    page.locator("[role=tab]").nth(1).click()
    wait_until_drawn(page)
    assert sum(rows(page).values()) == report.devices[1].peak.bytes
    assert page.locator("[role=tab][aria-selected=true]").inner_text().startswith("cpu")


def test_it_works_within_a_frame(browser_page: Any, tmp_path: Path, synthetic: Report) -> None:
    (tmp_path / "page.html").write_text(timeline.page(synthetic), encoding="utf-8")
    (tmp_path / "frame.html").write_text('<iframe src="page.html" width="900" height="700"></iframe>')
    browser_page.goto((tmp_path / "frame.html").as_uri())
    frame = browser_page.frame_locator("iframe")
    frame.locator(".mark.peak").wait_for()
    assert frame.locator(".side-title").inner_text() == "At the peak"


def test_two_on_one_page_do_not_meet(browser_page: Any, tmp_path: Path, synthetic: Report) -> None:
    """As in a notebook: the script keeps nothing outside of its root."""
    (tmp_path / "page.html").write_text(timeline.page(synthetic), encoding="utf-8")
    browser_page.goto((tmp_path / "page.html").as_uri())
    browser_page.wait_for_selector(".mark.peak")
    browser_page.evaluate(
        """async () => {
            const second = document.createElement("div");
            second.id = "second";
            document.body.append(second);
            cuptimemTimeline(second, await cuptimem.data());
        }"""
    )
    browser_page.locator(f"#second {BY}").select_option("phase")
    wait_until_drawn(browser_page)
    names = {
        row: browser_page.locator(f"{row} .contributors th").first.inner_text() for row in ("#timeline", "#second")
    }
    assert names == {"#timeline": "category", "#second": "phase"}


def test_a_folded_stretch_is_said(opened: Open, tmp_path: Path) -> None:
    with cuptimem.profile(tmp_path / "compacted.cmem", max_size=20_000) as prof:
        for _ in range(40):
            _core.capture_emit(1, 5000)
            _core.capture_sync()
            prof.step()
    report = prof.report
    assert report.compacted is not None
    page = opened(report)
    assert "events of steps" in page.locator("header").inner_text()
    data = timeline.data(report)
    ends = {step.index: step.end_ns for step in report.steps}
    assert data["compacted"]["end"] == ends[report.compacted.to_step]
    assert data["compacted"]["events"] == report.compacted.events
    assert sum(rows(page).values()) == report.peak.bytes


BAD = {
    "hostile names": lambda: (traces.hostile(), {}),
    "no steps": lambda: (traces.training(3, ticks=False), {}),
    "one event": lambda: (traces.one_event(), {}),
    "no event": lambda: (traces.no_event(), {}),
    "events lost": lambda: (traces.training(), {"lost": 7}),
    "a crashed run": lambda: (traces.training(), {"end": None, "per_batch": 20}),
}
SAID = {
    "no event": "Nothing was allocated by PyTorch",
    "events lost": "7 events found no room",
    "a crashed run": "the end of the recording is missing",
}


@pytest.mark.scaled
def test_many_lines_open(opened: Open, tmp_path: Path, many_lines: int) -> None:
    report = cuptimem.open(traces.many_lines(many_lines).write(tmp_path / "many.cmem"))
    assert size(report.peak.bytes) in opened(report).locator("body").inner_text()


@pytest.mark.parametrize("name", BAD)
def test_bad_input_opens_and_says_what_is_missing(opened: Open, tmp_path: Path, name: str) -> None:
    trace, options = BAD[name]()
    report = cuptimem.open(trace.write(tmp_path / "bad.cmem", **options))
    page = opened(report)
    assert SAID.get(name, "") in page.locator("body").inner_text()
    assert page.locator("img").count() == 0
    if report.devices and report.peak.bytes:
        assert sum(rows(page).values()) == report.peak.bytes
        page.keyboard.press("p")
        page.keyboard.press("l")
        wait_until_drawn(page)
        assert sum(rows(page).values()) == report.peak.bytes


JOINED = """async () => {
  const { beside } = await cuptimem.data(), roots = document.querySelectorAll(".timeline");
  const [one, other] = cuptimemTimelines(roots, beside);
  const label = (app, id) => app.model.raw.groups.line[id][0];
  const colours = (app) => Object.fromEntries([...app.model._slots.line].map(([id, slot]) => [label(app, id), slot]));
  const found = { later: beside[1].later, opened: [one.view, other.view], colours: [one, other].map(colours) };
  found.scales = [one.highest(), other.highest()];
  one.look(one.stepTime(20), one.stepTime(24));
  found.views = [one.view, other.view];
  one.selectMoment(one.stepTime(22, true));
  found.steps = [one, other].map((app) => app.device.stepIndex(app.selection.time));
  other.setGrouping("function");
  other.setSearch("keep");
  found.same = [one, other].map((app) => [app.grouping, app.by.value, app.search.value]);
  other.reset();
  found.whole = [one.view, other.view];
  return found;
}"""


def test_two_ranks_above_each_other(browser_page: Any, tmp_path: Path, leaking: Report) -> None:
    other = cuptimem.open(traces.training(60).write(tmp_path / "other.cmem"))
    path = tmp_path / "page.html"
    path.write_text(timeline.beside(leaking, other), encoding="utf-8")
    browser_page.goto(path.as_uri())
    browser_page.wait_for_selector(".contributors tbody tr", state="attached")
    assert browser_page.locator(".plot").count() == 2
    found = browser_page.evaluate(JOINED)
    apart = sorted(a.begin_ns - b.begin_ns for a, b in zip(leaking.steps, other.steps, strict=True))
    assert found["later"] == apart[(len(apart) - 1) // 2] > 0
    for views in (found["opened"], found["views"], found["whole"]):
        assert all(views[0][at] == views[1][at] + found["later"] for at in ("min", "max"))
    assert found["scales"][0] == found["scales"][1] > leaking.peaks[0].bytes > other.peaks[0].bytes
    assert found["steps"] == [22, 22]
    assert found["same"] == [["function", "function", "keep"]] * 2
    assert found["whole"][0] == {"min": 0, "max": max(leaking.duration_ns, other.duration_ns + found["later"])}
    mine, its = found["colours"]
    assert len(mine) > len(its) > 3 and its.items() <= mine.items()
