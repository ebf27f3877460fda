"""What every integration does: a recording of each call of the trainer, its figures, phases and pages."""

import contextlib
import glob
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from cuptimem import environ, interpreter, naming
from cuptimem.errors import own, recording_core
from cuptimem.integrations.figures import TRAIN
from cuptimem.integrations.live import LiveReader
from cuptimem.output.text import oom_views, text, views
from cuptimem.record import recorder, refusals
from cuptimem.record.profiler import Profile
from cuptimem.report import logged
from cuptimem.report.model import OutOfMemory, Report

_PAGE = ".oom.txt"
_PATIENCE = 60  # seconds for what is still to be read when the training has ended


class Recording:
    """Nothing here raises into the trainer: a recording that cannot start is one line, and nothing is logged.

    path: of the trace, with {rank} and {pid} filled in; None: as `cuptimem run` names it. In a process that is recorded
    already there is no trace of its own. summary: at the end, by rank 0. wait: seconds that a log waits for what is
    still to be read (None: a little, docs/trainers.md); what is not read by then is in the next log. options: of
    cuptimem.profile.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        summary: bool = True,
        wait: float | None = None,
        **options: Any,
    ) -> None:
        self._inner = Profile(None, **options)  # raises for what is no option, now
        self._path, self._summary, self._wait, self._options = path, summary, wait, options
        self._outer: Profile | None = None  # of all recordings of this object: their files are numbered
        self._profile: Profile | None = None
        self._live: LiveReader | None = None
        self._phase, self._step = TRAIN, 0
        self._first: int | None = None  # of the steps; None: none yet, or they did not count on by one
        self._pages: set[str] = set()
        self._began = 0.0
        self._folder_changed = 0
        self.report: Report | None = None  # of the last recording that ended

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_profile": None, "_live": None, "_outer": None, "report": None}

    @property
    def is_on(self) -> bool:
        return self._profile is not None

    @property
    def _has_others(self) -> bool:
        return naming.rank_of(environ.obeyed()) is not None

    @property
    def rank(self) -> int:
        return int(naming.rank_of(environ.obeyed()) or 0)

    # -- its beginning and end ------------------------------------------------------------------------------------

    def start(self, phase: str = TRAIN) -> bool:
        """False: it is on already, or cannot be."""
        if self._profile is not None:
            return False
        profile = None
        try:
            if recorder.active():
                profile = self._inner
            else:
                profile = self._outer = self._outer or Profile(self._named(), **self._options)
            profile.start()
            run = profile._current()
            assert run is not None and run.window is not None
            self._began, self._phase, self._first = time.time() - 1, phase, None
            if profile is self._outer and phase != TRAIN:
                recording_core().capture_note({logged.PHASE: phase})
            poll = self._tell_of_others if self._has_others else None
            self._live = LiveReader(run.window, self._wait, self._write_caught, poll)
        except own(Exception) as error:
            if profile is not None and (run := profile._current()) is not None:
                profile._end(run, None)
            recorder.say(f"not recording: {' '.join(str(error).split()) or type(error).__name__}")
            return False
        self._profile = profile
        return True

    def _named(self) -> str:
        rank = naming.rank_of(environ.obeyed())
        if self._path is not None:
            path = naming.expand(os.fspath(self._path), os.getpid(), rank)
            return path if self._options.get("overwrite") else naming.free_name(path)
        return naming.free_name(naming.default_name(interpreter.script_of(sys.orig_argv), os.getpid(), rank))

    def finish(self, error: BaseException | None = None) -> None:
        """Ends it: the trace is whole, rank 0 says what it shows, and a refused request has its page."""
        profile, live = self._profile, self._live
        if profile is None or live is None:
            return
        try:
            live.cut(self._phase, self._step)
            if error is None:
                live.take(_PATIENCE)
            live.stop()
            refused = error is not None and refusals.is_of(error)
            if self._first is not None:
                recording_core().capture_note({logged.STEPS: f"{self._first}-{self._step}"})
            run = profile._current()
            if run is not None:
                profile._end(run, error)
            self._profile = self._live = None
            self.report = profile.report
            self._close(self.report, profile.path, error if refused else None)
            if self._has_others:  # what was written since the last look
                self._tell_of_others()
        except own(Exception) as problem:
            self._profile = self._live = None
            recorder.say(f"no summary: {' '.join(str(problem).split()) or type(problem).__name__}")

    def _close(self, report: Report, path: str | None, refusal: BaseException | None) -> None:
        ooms = report.ooms
        if ooms and (refusal is not None or self._page_path() not in self._pages):
            page = self._write_page(report, report.oom_left or ooms[-1])
            if refusal is not None:
                refusal.add_note(f"cuptimem: what the memory was made of: {page}")
        if self._summary and self.rank == 0 and refusal is None:
            recorder.write("\n" + text.render(views.summary(report), refusals.WIDTH) + "\n")
        if path is not None:
            recorder.say(f"wrote {naming.shown(path)}; see: cuptimem summary {naming.typed(path)}")

    # -- what the trainer says ------------------------------------------------------------------------------------

    def step(self, step: int) -> None:
        """The training step of this number has ended."""
        before, self._step = self._step, step
        if self._live is not None:
            if not self._live.steps:
                self._first = step
            elif step != before + 1:
                self._first = None
            self._live.step(self._phase, step)

    def figures(self, wait: float | None = None) -> dict[str, int]:
        """What was recorded since the last call, by name; {} where nothing is recorded. wait: seconds, if others."""
        if self._live is None:
            return {}
        self._live.cut(self._phase, self._step)
        return self._live.take(wait)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What happens inside counts for this phase: train, evaluate, predict, save, ..."""
        before = self.enter(name)
        try:
            yield
        finally:
            self.enter(before)

    def enter(self, name: str) -> str:
        """From now on the phase is this one. The one before."""
        before, self._phase = self._phase, name
        if self._live is not None and before != name:
            self._live.cut(before, self._step)
        return before

    # -- refused requests -----------------------------------------------------------------------------------------

    def _page_path(self) -> str:
        """Beside the trace; in the current folder where that is temporary."""
        profile = self._profile
        path = profile.path if profile is not None else self.report.path if self.report is not None else None
        rank = naming.rank_of(environ.obeyed())
        path = path or naming.default_name(interpreter.script_of(sys.orig_argv), os.getpid(), rank)
        return os.path.abspath(os.path.splitext(path)[0] + _PAGE)

    def _write_page(self, report: Report, oom: OutOfMemory) -> str:
        path = self._page_path()
        self._pages.add(path)
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            file.write(text.render(oom_views.page(report, oom), refusals.WIDTH) + "\n")
        os.replace(f"{path}.part", path)  # other ranks see a whole page
        recorder.say(f"out of memory on {oom.device}: {naming.shown(path)}")
        return path

    def _write_caught(self) -> None:
        """The page of a refusal that the trainer has caught, for a smaller batch."""
        profile = self._profile
        if profile is None:
            return
        report = profile.report
        if report.ooms:
            self._write_page(report, report.ooms[-1])

    def _tell_of_others(self) -> None:
        """Pages that other ranks have written since this recording began, in the trace's folder."""
        folder = os.path.dirname(self._page_path())
        # A thousand ranks look: the folder is listed only where something has come or gone. Its time is coarse: what
        # came in the same moment as the last look is seen by those of the next two seconds.
        changed = os.stat(folder).st_mtime_ns
        if changed == self._folder_changed and time.time_ns() - changed > 2_000_000_000:
            return
        self._folder_changed = changed
        for path in glob.glob(f"{glob.escape(folder)}/*{_PAGE}"):
            if path not in self._pages and os.stat(path).st_mtime >= self._began:
                self._pages.add(path)
                recorder.say(f"out of memory in another rank: {naming.shown(path)}")
