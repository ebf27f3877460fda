"""The largest batch of a program on one device: predicted from one recording, proven by runs of it and of the next.

Each run is a fork of one process (tries.py), with every modelled part at its high end: the context at the highest that
is published for the card, workspaces and communicators at their allowance. So a size that fits has that margin, and
the next one may fit on a card that takes less. No out-of-memory handling of the program is touched: a size with a
refused request does not fit, whether the program went on after it or not.
"""

import math
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cuptimem import sizes
from cuptimem.errors import Error
from cuptimem.simulation import facts, try_imports
from cuptimem.simulation.changes import LOADERS
from cuptimem.simulation.launch import Setup
from cuptimem.simulation.tries import STEPS, TIMEOUT, Server, Tried

FIRST = 8  # the size that is recorded where none is given
MOST = 1 << 20  # no larger size is tried
_WITHOUT_CACHE = 88  # percent
_TRIES = 16  # a search that has come to no end by then has none
_ASKED, _FREE = r"Tried to allocate (\S+ \S+)\.", r"of which (\S+ \S+) is free"  # in PyTorch's message
_LEAST_GROWTH = 0.001  # of the peak for each doubling: below it the size is not what the peak hangs on

Answer = Literal["found", "none fits", "undecided", "script failed"]
EXIT_CODES: dict[Answer, int] = {"found": 0, "none fits": 3, "undecided": 4, "script failed": 5}
Predict = Callable[[str, int], Callable[[int], int]]  # of a trace and the size in it: the peak in tensors with a size


@dataclass(frozen=True, slots=True)
class Way:
    """How the program is told its batch size: an option, a variable, or by the DataLoaders that it makes."""

    option: str = ""  # "--batch-size"; with "=" at its end the size stands behind that
    variable: str = ""

    def words(self, words: Sequence[str], size: int) -> list[str]:
        if not self.option:
            return list(words)
        head, rest = (2, list(words)) if words[0] in ("-m", "-c") else (1, list(words))
        kept, arguments = rest[:head], rest[head:]
        name = self.option.removesuffix("=")
        while arguments:
            word = arguments.pop(0)
            if word == name and not self.option.endswith("="):
                arguments[:1] = []
            elif not word.startswith(f"{name}="):
                kept.append(word)
        return [*kept, f"{self.option}{size}"] if self.option.endswith("=") else [*kept, self.option, str(size)]

    def given(self, words: Sequence[str]) -> int | None:
        """The size in the program's arguments."""
        name = self.option.removesuffix("=")
        for at, word in enumerate(words):
            value = words[at + 1] if word == name and at + 1 < len(words) else word.removeprefix(f"{name}=")
            if self.option and value != word and value.isdecimal() and int(value):
                return int(value)
        return None

    def environment(self, size: int) -> dict[str, str]:
        return {self.variable: str(size)} if self.variable else {}

    @property
    def change(self) -> str:
        return "" if self.option or self.variable else "batch="

    def __str__(self) -> str:
        return self.option or self.variable or "DataLoader(batch_size)"


@dataclass(frozen=True, slots=True)
class SizeTried:
    """One size, and how its run went."""

    size: int
    tried: Tried
    whole: bool  # to the program's end, not a few steps

    @property
    def fits(self) -> bool:
        return self.tried.is_answer and not self.tried.ooms


@dataclass(frozen=True, slots=True)
class Largest:
    """The answer: the largest size of which a run fitted, beside the next one of which none did."""

    answer: Answer
    reason: str
    size: int | None
    next: int | None
    predicted: int | None  # from the recording of the first size alone
    context: int  # bytes, at its highest
    whole: bool | None  # whether the size ran to the program's end; None: it was not over in time
    tries: tuple[SizeTried, ...]

    @property
    def code(self) -> int:
        return EXIT_CODES[self.answer]


class _Search:
    def __init__(self, server: Server, words: Sequence[str], way: Way, memory: int, step: int, timeout: float) -> None:
        self._server, self._words, self._way, self._timeout = server, words, way, timeout
        self.memory, self.step = memory, step
        self.tries: list[SizeTried] = []
        self.only_whole = False  # what comes behind the first steps takes more than they do
        self.leap = 0  # the next one, 0: none was made
        self.growth = 0.0  # bytes by which the reserved peak is predicted to grow with each

    def run(self, size: int, steps: int | None, trace: str = "") -> SizeTried:
        change = f"{self._way.change}{size}" if self._way.change else ""
        words, variables = self._way.words(self._words, size), self._way.environment(size)
        values = {"batch": f"{size}{LOADERS}*"} if change else {}  # the batch of an evaluation has to fit, too
        found = self._server.run(words, change, steps, self._timeout, trace=trace, environment=variables, values=values)
        self.tries.append(SizeTried(size, found, steps is None or (found.is_answer and not found.steps)))
        return self.tries[-1]

    @property
    def fitting(self) -> list[SizeTried]:
        """By size, those of which no run did not fit."""
        failed = {one.size for one in self.tries if not one.fits and not one.tried.timed_out}
        fitting = (one for one in self.tries if one.fits and (one.whole or not self.only_whole))
        return sorted((one for one in fitting if one.size not in failed), key=lambda one: one.size)

    @property
    def too_large(self) -> SizeTried | None:
        """The smallest of them."""
        failed = (one for one in self.tries if not one.fits and not one.tried.timed_out)
        return min(failed, key=lambda one: one.size, default=None)

    def rounded(self, size: int) -> int:
        return max(self.step, min(size, MOST) // self.step * self.step)

    def guess(self) -> int:
        """By a line through the two largest that fit. A cache that fills the device gives way, so where that leaves no
        room, by leaps that double."""
        *_, before, last = self.fitting
        growth = (_peak(last) - _peak(before)) / (last.size - before.size)
        if growth <= 0:
            return MOST
        room = self.memory - last.tried.beside_bytes - (last.tried.reserved_bytes or 0)
        more, leap = int(room / growth), self.leap or max(self.step, last.size // 50)
        if more <= leap:
            more, self.leap = leap, 2 * leap
        return last.size + more


def _peak(one: SizeTried) -> int:
    return one.tried.peak_bytes or 0


def find(
    words: Sequence[str],
    way: Way,
    setup: Setup,
    *,
    first: int | None = None,
    step: int = 1,
    steps: int = STEPS,
    timeout: float = TIMEOUT,
    trust_reads: bool = False,
    predict: Predict,
    progress: Callable[[int], None] = lambda number: None,
) -> Largest:
    """The largest multiple of `step`. words: the script, -m or -c, and what follows; steps: of its optimizer, in all
    runs but that which proves the size; progress is called with each size before it is run.

    Raises Error where nothing can be run.
    """
    setup = replace(setup, context=setup.context_range.high, high_end=True)
    assert setup.context is not None
    with Server(setup, try_imports.of_program(words)) as server, tempfile.TemporaryDirectory() as folder:
        search = _Search(server, words, way, setup.memory, step, timeout)

        def answer(kind: Answer, reason: str, size: int | None = None, whole: bool | None = None) -> Largest:
            too_large = search.too_large
            after = None if too_large is None else too_large.size
            return Largest(kind, reason, size, after, predicted, setup.context or 0, whole, tuple(search.tries))

        predicted: int | None = None
        size = search.rounded(first or way.given(words) or FIRST)
        progress(size)
        start = search.run(size, steps, trace := os.path.join(folder, f"{size}.cmem"))
        if not start.fits and not _ran_out(start):
            return answer("script failed", start.tried.error or start.tried.why_not)
        server.import_what_was_used()
        while not start.fits and size > step:
            size = search.rounded(size // 4)
            progress(size)
            # A recording of its own: a run writes into no file that another has begun.
            start = search.run(size, steps, trace := os.path.join(folder, f"{size}.cmem"))
            if not start.fits and not _ran_out(start):
                return answer("script failed", start.tried.error or start.tried.why_not)
        if not start.fits:
            return answer("none fits", f"{size} does not fit: {_lacked(start)}")
        try:
            predicted = _predicted(predict(trace, size), search, start)
        except Error:  # of a program without steps nothing is predicted: sizes double
            predicted = None
        candidate = predicted if predicted is not None and predicted > size else size + max(step, size)
        if search.too_large is not None:
            candidate = min(candidate, search.too_large.size - step)
        if candidate > size:
            _narrow(search, candidate, steps, progress)
        if search.too_large is None:
            return answer(
                "undecided", f"no size up to {search.fitting[-1].size} that was run was too large: {_grows(search)}"
            )
        proven = _prove(search, steps, progress)
        if proven is None:
            return answer("undecided", f"no end was found in {len(search.tries)} runs")
        best, whole = proven
        stopped = next(
            (one for one in search.tries if not one.fits and not _ran_out(one) and not one.tried.timed_out), None
        )
        if stopped is not None:
            return answer(
                "undecided", f"{stopped.size} failed, but not for want of memory: {stopped.tried.error}", best
            )
        reads = () if trust_reads else tuple(one for one in facts.unknown_reads(server.notes()) if one.is_open)
        if reads:
            at = reads[0].frame
            line = "a line that is not known" if at is None else f"{os.path.basename(at.file)}:{at.line}"
            why = f"a size or a branch may hang on what {line} reads from the device, where it is unknown"
            return answer("undecided", f"{why}; --trust-reads says that none does", best, whole)
        assert search.too_large is not None
        return answer("found", f"{search.too_large.size} does not fit: {_lacked(search.too_large)}", best, whole)


def _predicted(peak: Callable[[int], int], search: _Search, start: SizeTried) -> int:
    """The largest size whose tensors would find room beside a cache as large, in proportion, as the start has."""
    cached = max(1.0, (start.tried.reserved_bytes or 0) / (_peak(start) or 1))
    room = int((search.memory - start.tried.beside_bytes) / cached)
    search.growth = cached * (peak(2 * start.size) - peak(start.size)) / start.size
    low, high = start.size // search.step, 2 * start.size // search.step
    while high * search.step <= MOST and peak(high * search.step) <= room:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if peak(middle * search.step) <= room else (low, middle)
    return search.rounded(low * search.step)


def _narrow(search: _Search, candidate: int, steps: int | None, progress: Callable[[int], None]) -> None:
    """Runs sizes until one that fits stands beside one that does not."""
    failures = 0
    while len(search.tries) < _TRIES:
        progress(candidate)
        tried = search.run(candidate, None if search.only_whole else steps)
        failures = 0 if tried.fits else failures + 1
        fitting, too_large = search.fitting, search.too_large
        if not fitting or (too_large is not None and too_large.size - fitting[-1].size <= search.step):
            return
        last, end = fitting[-1].size, MOST + search.step if too_large is None else too_large.size
        if last >= MOST or (too_large is None and not _grows_at_all(search)):
            return
        missing = 0 if tried.fits else _missing(tried.tried)
        if failures > 2 or (failures > 1 and not missing):
            guess = (last + end) // 2
        elif missing and search.growth > 0:
            guess = tried.size - math.ceil(missing / search.growth)
        elif len(fitting) > 1:
            guess = search.guess()
        else:
            guess = last + (end - last) * _WITHOUT_CACHE // 100  # what the cache cannot give out is not predicted
        if guess >= end:  # what did not fit was no part of the peak
            guess = (last + end) // 2
        candidate = max(last + search.step, min(search.rounded(guess), end - search.step))


def _prove(search: _Search, steps: int, progress: Callable[[int], None]) -> tuple[int, bool | None] | None:
    """The size that fits to the program's end; None in place of True: it was not over in time."""
    while len(search.tries) < _TRIES and search.fitting:
        best, too_large = search.fitting[-1], search.too_large
        if too_large is not None and too_large.size - best.size > search.step:
            _narrow(search, best.size + search.step, steps, progress)
            continue
        if best.whole:
            return best.size, True
        progress(best.size)
        whole = search.run(best.size, None)
        if whole.fits or whole.tried.timed_out:
            return best.size, True if whole.fits else None
        if not search.only_whole:
            search.only_whole = True
            least = min(one.size for one in search.tries if one.fits)
            progress(least)
            search.run(least, None)
    return None


def _grows_at_all(search: _Search) -> bool:
    *others, last = search.fitting
    if not others or last.size < 2 * others[0].size:
        return True
    return _peak(last) - _peak(others[0]) > _LEAST_GROWTH * _peak(last)


def _grows(search: _Search) -> str:
    if _grows_at_all(search):
        return (
            f"larger ones than {MOST} are not tried" if search.fitting[-1].size >= MOST else "the search was too long"
        )
    return "the peak does not grow with it, so it is not the batch size"


def _ran_out(one: SizeTried) -> bool:
    return (one.tried.ooms > 0 or facts.says_full(one.tried.error or "")) and not one.tried.timed_out


def _lacked(one: SizeTried) -> str:
    return refusal(one.tried) or f"the program caught {one.tried.ooms} OutOfMemoryErrors"


def _missing(tried: Tried) -> int:
    """At least so many bytes more it would have taken; 0: not known."""
    asked, free = (re.search(one, tried.error or "") for one in (_ASKED, _FREE))
    if asked is None or free is None:
        return 0
    wanted, left = (sizes.parse(one[1].removesuffix(" bytes")) for one in (asked, free))
    return max(0, wanted - left)


def refusal(tried: Tried) -> str:
    """How a run ended that was refused memory: what it asked for, and where; else its error."""
    error = tried.error or ""
    asked, free, at = (re.search(one, error) for one in (_ASKED, _FREE, r" at \S+:\d+$"))
    if asked is None or free is None:
        return error
    return f"it asked for {asked[1]} where {free[1]} were free{at[0] if at else ''}"
