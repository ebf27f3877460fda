"""What a notebook shows for each of our objects: text, and HTML that holds up where it is not trusted.

The HTML has tables and a picture that need no script. Where the notebook is trusted, an <iframe> with the interactive
page takes the picture's place: a style sheet, which sanitisers remove together with the <iframe>, hides the picture.
"""

import hashlib
import html as escaping
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cuptimem import cell_names
from cuptimem.errors import Error, own
from cuptimem.notebook import held as holders
from cuptimem.notebook import markup, picture, svg
from cuptimem.notebook.held import Held
from cuptimem.output.text import account_views, advice_views, leak_views, peak_views, terminal, text, views
from cuptimem.output.text.blocks import Block, Text
from cuptimem.output.text.words import count, plural, size, where
from cuptimem.record.profiler import Profile
from cuptimem.report.account import Account
from cuptimem.report.advice import Advice, Estimate, Plan
from cuptimem.report.chart import Span
from cuptimem.report.leaks import Leak, Leaks
from cuptimem.report.model import Contents, Report, Steps
from cuptimem.report.stacks import Stack
from cuptimem.simulation import views as simulate_views
from cuptimem.simulation.result import Simulation

MOST = 1_000_000  # bytes that one output may have in the saved notebook
_ENDS = 10  # steps shown from the beginning and from the end
_TOP = 10
_MODULES = 40
_DEVICES = 4  # with a picture
# Of the interactive page, in pixels: both pictures are whole where it is at least 800 wide. Its tables are below.
_HEIGHT = 1120
_AROUND = 4096  # bytes left for what stands around the page
# Intervals, entries and single blocks of the interactive page: the first that fits.
_FINENESS = ((1024, 1 << 14, 1024), (512, 1 << 12, 256), (256, 1 << 10, 64), (128, 1 << 8, 16))


def is_open(shown: object) -> bool:
    """Whether it is a profile inside its block, which has nothing to show yet."""
    return isinstance(shown, Profile) and not shown._is_over


def bundle(shown: Any, include: Any = None, exclude: Any = None) -> dict[str, str]:
    """What IPython asks an object for. HTML only where something shows it: a terminal does not."""
    data = {"text/plain": as_text(shown)}
    if is_open(shown):
        return data
    shell = cell_names.shell()
    formatter = getattr(shell, "display_formatter", None)
    if formatter is not None and "text/html" in formatter.active_types:
        data["text/html"] = markup_of(shown)
    return data


def as_text(shown: Any) -> str:
    """The object as text. Never raises."""
    return repr(shown) if is_open(shown) else _safely(plain, shown)


def markup_of(shown: Any, held: Held | None = None) -> str:
    """The object as HTML. Never raises: what goes wrong here must not hide what the cell gave."""
    try:
        return _html(shown, held)
    except own(Exception) as error:  # whatever it is: the page says which
        why = markup.escaped(f"cuptimem cannot draw this: {type(error).__name__}: {error}")
        said = _safely(plain, shown)[: MOST // 10]
        return f"<p><b>{why}</b></p>\n<pre>{escaping.escape(said.encode(errors='replace').decode())}</pre>"


def _safely(make: Callable[[Any], str], shown: Any) -> str:
    try:
        return make(shown)
    except Error as error:
        return str(error)
    except own(Exception) as error:  # as above
        return f"cuptimem cannot show this: {type(error).__name__}: {error}"


def plain(shown: Any) -> str:
    """The object as text."""
    if isinstance(shown, Profile):
        shown = shown.report
    return (
        str(shown) if isinstance(shown, Report | Simulation) else text.render(blocks(shown), terminal.width_of_output())
    )


def _html(shown: Any, held: Held | None) -> str:
    if isinstance(shown, Profile):
        shown = shown.report
    if isinstance(shown, Report):
        return _report(shown, held)
    if isinstance(shown, Simulation):
        return _joined([markup.render(simulate_views.simulation(shown))])
    return f"<div>\n{markup.render(blocks(shown))}\n</div>"


# -- parts of a report ---------------------------------------------------------------------------------------------


def blocks(shown: Any) -> Sequence[Block]:
    """Peaks and other contents, accounts, advice, steps, leaks."""
    if isinstance(shown, Contents):
        if shown.what in ("above", "kept"):
            moment = "alive at the peak above the start" if shown.what == "above" else "made since the start and kept"
        else:
            moment = peak_views.moment(shown)
        title = f"{shown.device}: {size(shown.bytes)} in {plural(shown.count, 'block')}, {moment}"
        return [Text(title, "title"), *peak_views.lines_table(shown, _TOP)]
    if isinstance(shown, Account):
        return account_views.full([shown], _MODULES)[1:]
    if isinstance(shown, Advice):
        return advice_views.advice(shown)
    if isinstance(shown, Estimate):
        return advice_views.estimate(shown)
    if isinstance(shown, Plan):
        return advice_views.plan(shown)
    if isinstance(shown, Steps):
        return _steps(shown)
    if isinstance(shown, Leak):
        loop_is_said = shown.loop not in ("", "training")
        return leak_views.entry(shown, loop_is_said)[1:]
    if isinstance(shown, Leaks):
        if not shown:
            return [Text("None. How many steps were judged, and what else grew, is in the report: print(prof.report).")]
        rest = len(shown) - _TOP
        more = [Text(f"and {count(rest)} more")] if rest > 0 else []
        return [Text(plural(len(shown), _kind(shown)), "title"), leak_views.table(shown[:_TOP]), *more]
    raise TypeError(f"{type(shown).__name__} is nothing that a notebook shows")


def _kind(leaks: Sequence[Leak]) -> str:
    return "suspect" if all(leak.reason for leak in leaks) else "leak"


def _steps(steps: Sequence[Any]) -> list[Block]:
    if not steps:
        return [Text("No steps were seen.")]
    is_short = len(steps) <= 2 * _ENDS
    rows = steps if is_short else (*steps[:_ENDS], *steps[-_ENDS:])
    said: list[Block] = [views.steps_table(steps, rows)]
    if steps[-1].incomplete:
        said.append(Text("* did not end"))
    if not is_short:
        said.append(Text(f"{count(len(steps) - len(rows))} rows in between are not shown; to_pandas() has all of them"))
    return said


def _report(report: Report, held: Held | None) -> str:
    without_hints = replace(report, path=None)
    parts = [markup.render(views.heading(report))]
    static, notes = _pictures(report)
    rest = views.summary(without_hints)[len(views.heading(without_hints)) :]
    tables = [markup.render(rest)]
    if held is not None:
        tables.append(markup.render([*_leaks_held(report, held), Text(), *holders.blocks(held)]))
    if report.leaks or report.undecided:
        several = len(report.loops) > 1
        shown = (*report.leaks, *report.undecided)[:_TOP]
        entries = [block for leak in shown for block in leak_views.entry(leak, several)]
        tables.append(markup.folded("Leaks, one by one", markup.render(entries)))
    if report.steps:
        tables.append(markup.folded("Steps", markup.render(_steps(report.steps))))
    shorter = [*parts, static, *notes, *tables]
    frame, hidden, said = _interactive(report, MOST - _bytes(_joined(shorter)) - _AROUND)
    notes += [f"<p>{markup.escaped(line)}</p>" for line in said]
    return _joined([*parts, frame, f'<div class="{hidden}">{static}</div>' if hidden else static, *notes, *tables])


def _joined(parts: Sequence[str]) -> str:
    return "<div>\n" + "\n".join(part for part in parts if part) + "\n</div>"


def _bytes(text_: str) -> int:
    """In the saved notebook, which is JSON in UTF-8."""
    return len(json.dumps(text_, ensure_ascii=False).encode())


def _leaks_held(report: Report, held: Held) -> list[Block]:
    """Names that hold what grows."""
    said: list[Block] = []
    for leak in (*report.leaks, *report.undecided):
        made = [one for one in (leak, *leak.keeps) if one.kind == "bytes"]
        lines = {_lines(part.stack) for one in made for part in one.parts}
        names = held.names_of(block for block in report.kept_blocks if _lines(block.stack) in lines)
        if names:
            said.append(Text(f"! The leak of {where(leak)} is held by {holders.text(names)}", "warning"))
    return said


def _lines(stack: Stack) -> tuple[tuple[str, int], ...]:
    """What the verdict takes for one stack: places within a line, and which module, do not tell them apart."""
    return tuple((frame.file, frame.line) for frame in stack)


def _pictures(report: Report) -> tuple[str, list[str]]:
    """Static pictures of the fullest devices, and what is not in them."""
    charts, why = _charts(report)
    images = []
    for device in report.devices[:_DEVICES]:
        if not device.peak.bytes:
            continue
        chart = charts.get(device.name)
        drawn = picture.of_timeline(report, device) if chart is None else picture.of_chart(report, device, chart)
        images.append(f"<p>{svg.image(drawn)}</p>")
    notes = []
    if why and images:
        notes.append(f"<p>{markup.escaped(f'The picture is not divided by line: {why}')}</p>")
    left = len(report.devices) - _DEVICES
    if left > 0:
        notes.append(f"<p>{plural(left, 'more device')} in the tables.</p>")
    return "\n".join(images), notes


def _charts(report: Report) -> tuple[dict[str, Any], str]:
    """By device; or why there are none."""
    try:
        return {chart.device: chart for chart in report.charts([Span(intervals=svg.COLUMNS, blocks=1)])}, ""
    except Error as error:
        return {}, str(error)


def _interactive(report: Report, room: int) -> tuple[str, str, list[str]]:
    """An <iframe> with the timeline's page, of at most so many bytes; the class of what it takes the place of; what is
    to be said about it. Without a page the first two are empty."""
    if not report.devices:
        return "", "", []
    try:
        from cuptimem.output.pages import timeline
    except ImportError as error:
        return "", "", [f"No interactive picture here: {error}"]
    for intervals, entries, single in _FINENESS:
        span = Span(intervals=intervals, entries=entries, blocks=single)
        try:
            page = timeline.page(report, overview=span, fine=span)
        except Error:
            return "", "", []  # the static picture says why there are no charts
        frame, hidden = _frame(page)
        if _bytes(frame) <= room:
            return frame, hidden, []
    why = f"it would have more than {size(room)}; `cuptimem timeline` makes it"
    return "", "", [f"No interactive picture here: {why}"]


def _frame(page: str) -> tuple[str, str]:
    name = "cuptimem-" + hashlib.blake2s(page.encode(), digest_size=6).hexdigest()
    source = escaping.escape(page, quote=True)
    frame = (
        f"<style>.{name} {{ display: none; }}</style>\n"
        f'<iframe srcdoc="{source}" sandbox="allow-scripts" width="100%" height="{_HEIGHT}" frameborder="0" '
        f'title="cuptimem: memory over time"></iframe>'
    )
    return frame, name
