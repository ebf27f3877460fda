"""The picture of a device's memory without script: live bytes over time, stacked by line, as an SVG.

It is drawn with attributes alone, in colours that are legible on light and on dark ground.
"""

import base64
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from cuptimem.notebook.markup import escaped
from cuptimem.output.text.words import count, duration, size
from cuptimem.report.model import Step

# Those of cuptimem/output/pages/assets/pages.js; the last is for everything that has no place of its own.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8a8f98")
LAYERS = len(COLOURS) - 1
COLUMNS = 240  # at most, of the area
_INK, _MARK = "#7b818a", "#d55e00"
_WIDTH, _PLOT = 900, 220
_LEFT, _RIGHT, _TOP = 74, 16, 26
_BAND = 16  # below the axis: the steps
_ROW = 19
_MOST_MARKS = 120  # steps that are drawn one by one
_CHARACTERS = 44  # of a name in the legend


@dataclass(frozen=True, slots=True)
class Layer:
    """Bytes of one line in each column; at_peak: at the device's peak."""

    name: str
    values: Sequence[int]
    at_peak: int


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn. times_ns: where each column begins; the last one goes to end_ns."""

    device: str
    begin_ns: int
    end_ns: int
    times_ns: Sequence[int]
    total: Sequence[int]  # the most live bytes in each column
    layers: Sequence[Layer]  # at each column they sum to `total`; the first one lies at the bottom
    reserved: Sequence[int]  # -1: unknown
    peak_bytes: int
    peak_ns: int
    peak_step: int | None
    steps: Sequence[Step]


def image(picture: Picture) -> str:
    """An <img>, for HTML that is sanitised where it is shown: <svg> itself would be left as loose words."""
    data = base64.b64encode(draw(picture).encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" width="{_WIDTH}" alt="{escaped(described(picture))}">'


def described(picture: Picture) -> str:
    """The picture in a sentence."""
    last = picture.total[-1] if picture.total else 0
    step = f" in step {picture.peak_step}" if picture.peak_step is not None else ""
    return (
        f"Live bytes on {picture.device} over {duration(picture.end_ns - picture.begin_ns)}: "
        f"at most {size(picture.peak_bytes)}{step}, {size(last)} in the last interval"
    )


def draw(picture: Picture) -> str:
    """The SVG document."""
    legend_rows = (len(picture.layers) + 1) // 2 if len(picture.layers) > 1 else 0
    height = _TOP + _PLOT + _BAND + 30 + legend_rows * _ROW
    top = max([picture.peak_bytes, 1, *picture.total, *picture.reserved])
    unit = _tick(top)
    scale = _Scale(picture.begin_ns, max(picture.end_ns, picture.begin_ns + 1), max(top * 1.04, 1))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12">',
        f"<title>{escaped(described(picture))}</title>",
        *_grid(scale, unit, top),
        *_areas(picture, scale),
        *_reserved(picture, scale),
        *_times(scale),
        *_steps(picture, scale),
        *_peak(picture, scale),
        *(_legend(picture) if legend_rows else ()),
        "</svg>",
    ]
    return "\n".join(parts)


class _Scale:
    """From nanoseconds and bytes to the plot's points."""

    def __init__(self, begin: int, end: int, most: float) -> None:
        self.begin, self.end, self.most = begin, end, most

    def x(self, ns: int) -> float:
        inside = min(max(ns, self.begin), self.end)
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (inside - self.begin) / (self.end - self.begin)

    def y(self, value: float) -> float:
        return _TOP + _PLOT * (1 - value / self.most)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _line(x1: float, y1: float, x2: float, y2: float, more: str) -> str:
    return f'<line x1="{_number(x1)}" y1="{_number(y1)}" x2="{_number(x2)}" y2="{_number(y2)}" {more}/>'


def _text(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    fill = "" if "fill=" in more else f' fill="{_INK}"'
    return f'<text x="{_number(x)}" y="{_number(y)}" text-anchor="{anchor}"{fill} {more}>{text}</text>'


def _tick(top: int) -> int:
    """Bytes between two lines of the grid: a power of two, so that labels are whole numbers."""
    unit = 1
    while top / unit > 5:
        unit *= 2
    return unit


def _grid(scale: _Scale, unit: int, top: int) -> list[str]:
    lines = []
    for value in range(0, top + 1, unit):
        y = scale.y(value)
        strength = "0.55" if value == 0 else "0.25"
        lines.append(_line(_LEFT, y, _WIDTH - _RIGHT, y, f'stroke="{_INK}" stroke-opacity="{strength}"'))
        lines.append(_text(_LEFT - 8, y + 4, size(value).replace(".0 ", " "), "end"))
    return lines


def _outline(values: Sequence[float], times: Sequence[int], scale: _Scale, forward: bool) -> list[str]:
    """Corners of a curve that is constant in each column."""
    xs = [scale.x(ns) for ns in (*times, scale.end)]
    columns = range(len(values)) if forward else reversed(range(len(values)))
    corners = []
    for i in columns:
        y = _number(scale.y(values[i]))
        pair = (xs[i], xs[i + 1]) if forward else (xs[i + 1], xs[i])
        corners += [f"{_number(x)} {y}" for x in pair]
    return corners


def _areas(picture: Picture, scale: _Scale) -> list[str]:
    parts = []
    base = [0] * len(picture.total)
    for number, layer in enumerate(picture.layers):
        if not any(layer.values):
            continue
        upper = [low + value for low, value in zip(base, layer.values, strict=True)]
        corners = _outline(upper, picture.times_ns, scale, True) + _outline(base, picture.times_ns, scale, False)
        parts.append(f'<path d="M{" ".join(corners)}Z" fill="{_colour(picture, number)}" fill-opacity="0.88"/>')
        base = upper
    if picture.total:
        corners = _outline(picture.total, picture.times_ns, scale, True)
        parts.append(f'<path d="M{" ".join(corners)}" fill="none" stroke="{_INK}" stroke-width="1"/>')
    return parts


def _colour(picture: Picture, number: int) -> str:
    """The rest, which is the last of several, is grey."""
    is_rest = len(picture.layers) > 1 and number == len(picture.layers) - 1 and picture.layers[number].name == REST
    return COLOURS[-1] if is_rest else COLOURS[number % LAYERS]


REST = "everything else"


def _reserved(picture: Picture, scale: _Scale) -> list[str]:
    if not any(value >= 0 for value in picture.reserved):
        return []
    known = [max(value, 0) for value in picture.reserved]
    corners = _outline(known, picture.times_ns, scale, True)
    y = scale.y(known[-1])
    return [
        f'<path d="M{" ".join(corners)}" fill="none" stroke="{_INK}" stroke-width="1.5" stroke-dasharray="5 4"/>',
        _text(_WIDTH - _RIGHT - 4, y - 5, "reserved by the allocator", "end"),
    ]


def _times(scale: _Scale) -> list[str]:
    y = _TOP + _PLOT + _BAND + 16
    every = _round_time((scale.end - scale.begin) / 6)
    first = -(-scale.begin // every) * every
    parts = []
    for ns in range(first, scale.end + 1, every):
        x = scale.x(ns)
        parts.append(_line(x, _TOP + _PLOT + _BAND, x, _TOP + _PLOT + _BAND + 4, f'stroke="{_INK}"'))
        parts.append(_text(x, y, "0" if ns == 0 else duration(ns).replace(".0 s", " s"), "middle"))
    return parts


def _round_time(least: float) -> int:
    """Nanoseconds between two times of the axis: 1, 2 or 5 with zeros; of minutes, whole ones."""
    minute = 60_000_000_000
    if least > minute:
        return minute * math.ceil(least / minute)
    unit = 1
    while True:
        for times in (1, 2, 5):
            if unit * times >= least:
                return unit * times
        unit *= 10


def _steps(picture: Picture, scale: _Scale) -> list[str]:
    """A band below the axis, a field a step, in two shades; of many steps only where each loop begins and ends."""
    y = _TOP + _PLOT + 1
    steps = [step for step in picture.steps if step.device == picture.device]
    if not steps:
        return [_text(_LEFT, y + 12, "no steps were seen", more='font-size="11"')]
    parts = []
    if len(steps) <= _MOST_MARKS:
        room = (_WIDTH - _LEFT - _RIGHT) / max(1, len(steps))
        every = max(1, round(26 / max(room, 1)))
        for step in steps:
            left, right = scale.x(step.begin_ns), scale.x(step.end_ns)
            shade = "0.34" if step.index % 2 else "0.16"
            parts.append(_field(left, right, y, shade))
            if step.index % every == 0 and right - left > 7 * len(str(step.index)):
                parts.append(_text((left + right) / 2, y + 12, str(step.index), "middle", 'font-size="11"'))
    else:
        parts.append(_field(scale.x(steps[0].begin_ns), scale.x(steps[-1].end_ns), y, "0.22"))
        said = f"{count(len(steps))} steps, {steps[0].index} to {steps[-1].index}"
        parts.append(_text(scale.x(steps[0].begin_ns) + 6, y + 12, said, more='font-size="11"'))
    return [*parts, _text(_LEFT - 8, y + 12, "step", "end", 'font-size="11"')]


def _field(left: float, right: float, y: float, shade: str) -> str:
    width = max(right - left, 0.4)
    return (
        f'<rect x="{_number(left)}" y="{_number(y)}" width="{_number(width)}" height="{_BAND - 2}" fill="{_INK}" '
        f'fill-opacity="{shade}"/>'
    )


def _peak(picture: Picture, scale: _Scale) -> list[str]:
    if not picture.peak_bytes:
        return []
    x, y = scale.x(picture.peak_ns), scale.y(picture.peak_bytes)
    step = f" in step {picture.peak_step}" if picture.peak_step is not None else ""
    anchor, dx = ("end", -9) if x > _WIDTH * 0.7 else ("start", 9)
    return [
        _line(x, y, x, _TOP + _PLOT, f'stroke="{_MARK}" stroke-dasharray="2 3"'),
        f'<circle cx="{_number(x)}" cy="{_number(y)}" r="4" fill="{_MARK}"/>',
        _text(
            x + dx,
            max(y - 6, 13),
            html.escape(f"peak {size(picture.peak_bytes)}{step}"),
            anchor,
            f'fill="{_MARK}" font-weight="600"',
        ),
    ]


def _legend(picture: Picture) -> list[str]:
    top = _TOP + _PLOT + _BAND + 36
    rows = (len(picture.layers) + 1) // 2
    parts = []
    for number, layer in enumerate(picture.layers):
        x = _LEFT + (number // rows) * (_WIDTH - _LEFT - _RIGHT) / 2
        y = top + (number % rows) * _ROW
        parts.append(
            f'<rect x="{_number(x)}" y="{y - 9}" width="11" height="11" rx="2" fill="{_colour(picture, number)}"/>'
        )
        parts.append(_text(x + 78, y + 1, size(layer.at_peak), "end", 'font-weight="600"'))
        parts.append(_text(x + 86, y + 1, escaped(layer.name, _CHARACTERS)))
    return parts
