"""What a run says at its end, in the process that has all reports: the controller of a distributed run."""

from __future__ import annotations

import copy
import types
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cuptimem.errors import Error
from cuptimem.output.text.words import plural
from cuptimem.printable import printable
from cuptimem.pytest_plugin import baselines, comparison, measuring, outputs
from cuptimem.pytest_plugin.limits import LEAKS, MEMORY
from cuptimem.pytest_plugin.settings import Settings, is_worker

_NOTES = 10  # shown
UNMEASURED = "unmeasured"
_STATUS = {  # of a test with a limit: what pytest's last line counts it as, its letter, its word
    MEMORY: ("over memory limit", "M", "MEMORY"),
    LEAKS: ("over leak limit", "L", "LEAK"),
    UNMEASURED: ("not measured", "U", "UNMEASURED"),
}


class Summary:
    """Gathers the records, and says at the end what they amount to."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self.records: list[dict[str, Any]] = []
        self.failed: list[pytest.TestReport] = []  # of tests over a limit
        self.lines: list[str] = []
        self._short_summary = _ShortSummary()
        config.pluginmanager.register(self._short_summary, "cuptimem-short-summary")
        self._failed_calls: set[str] = set()
        self._unmeasured: list[str] = []  # why, of tests without a limit
        self._notes: dict[str, list[str]] = {}  # on tests that passed: of which tests

    @pytest.hookimpl(hookwrapper=True)  # behind the terminal's, where a test fails for its subtests
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        self.begin(report)
        yield
        self.take(report)

    def begin(self, report: pytest.TestReport) -> None:
        """Before the terminal counts it."""
        if _is_over(report):
            self._end_red()

    def take(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            self._failed_calls.discard(report.nodeid)
        elif report.when == "call" and report.failed:
            self._failed_calls.add(report.nodeid)
        record = getattr(report, "cuptimem", None)
        if hasattr(report, "cuptimem_unmeasured"):
            self._unmeasured.append(report.cuptimem_unmeasured)
        for note in getattr(report, "cuptimem_notes", ()):
            self._notes.setdefault(note, []).append(report.nodeid)
        if record is not None:
            if report.nodeid in self._failed_calls:
                record["outcome"] = "failed"
            self.records.append(record)
        if _is_over(report):
            self.failed.append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if _is_over(report):
            return _STATUS[report.cuptimem_failed]
        held = getattr(report, "cuptimem_held", None)
        if held == "call":
            return "", "", ""
        return ("failed", "F", "FAILED") if held is not None and report.failed else None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if is_worker(self.config) or self.config.option.collectonly:
            return
        environment = self._environment()
        settings = self.settings
        root = self.config.rootpath
        try:
            if settings.json is not None:
                outputs.write_json(settings.json, map(_without_environment, self.records), environment)
            if settings.against is not None and self._compare(root, environment) and session.exitstatus == 0:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
                self._end_red()
            if settings.save is not None:
                for saved in baselines.save(root, settings.save, self.records, environment):
                    self.lines.append(f"{saved.path.relative_to(root)}: {saved.written} written, {saved.kept} kept")
        except Error as error:
            self.lines.append(str(error))
            if session.exitstatus == 0:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
                self._end_red()

    def _compare(self, root: Path, environment: Mapping[str, Any]) -> bool:
        """Whether the run fails for it."""
        assert self.settings.against is not None
        baseline = baselines.load(root, self.settings.against)
        found = comparison.compare(self.records, environment, baseline, self.settings.rules)
        self.lines += comparison.report(found, self._width())
        if found.failures:
            self.lines.append(f"FAILED: {plural(len(found.failures), 'test')} over the baseline")
        idle = () if self.settings.lenient else found.idle_rules
        if idle:
            rules = ", ".join(rule.text for rule in idle)
            self.lines.append(f"FAILED: {rules} compared nothing; --cuptimem-compare-lenient lets that pass")
        return bool(found.failures or idle)

    def _environment(self) -> dict[str, Any]:
        """Of all workers together."""
        return baselines.merged(record["environment"] for record in self.records) or measuring.environment()

    def _terminal(self) -> Any:
        """pytest's reporter; None with -p no:terminal."""
        return self.config.pluginmanager.get_plugin("terminalreporter")

    def _width(self) -> int:
        terminal = self._terminal()
        return int(terminal._tw.fullwidth) if terminal is not None else 80

    def _end_red(self) -> None:
        """The colour of pytest's last line: an entry for failures makes it red, also an empty one."""
        terminal = self._terminal()
        if terminal is not None:
            terminal.stats.setdefault("failed", [])

    @pytest.hookimpl(trylast=True)  # _ShortSummary follows
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter
        if self.failed:
            write.write_sep("=", "tensor memory", bold=True, red=True)
            for report in self.failed:
                write.write_sep("_", printable(report.nodeid), bold=True, red=True)
                for line in str(report.longrepr).split("\n"):
                    write.write_line(printable(line))
        sections: list[tuple[str, Iterable[str]]] = [
            ("not measured", (f"{plural(number, 'test')}: {why}" for why, number in Counter(self._unmeasured).items())),
            ("notes", _noted(self._notes)),
            ("baseline", self.lines),
        ]
        if self.settings.table and not self.config.option.collectonly:
            peaks = outputs.table(self.records, self._width(), self.settings.most)
            sections.insert(0, (f"the {self.settings.most} highest peaks", peaks))
        for name, lines in sections:
            for number, line in enumerate(lines):
                if number == 0:
                    write.write_sep("=", f"tensor memory: {name}")
                write.write_line(printable(line))
        self._short_summary.add(write, self.failed)


def _noted(notes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for note, tests in list(notes.items())[:_NOTES]:
        yield f"{tests[0] if len(tests) == 1 else plural(len(tests), 'test')}: {note}"
    if len(notes) > _NOTES:
        yield f"and {plural(len(notes) - _NOTES, 'more note')}"


def _is_over(report: pytest.TestReport) -> bool:
    """Whether the test fails for a limit; not where it is run again."""
    return report.failed and hasattr(report, "cuptimem_failed")


class _ShortSummary:
    """Has tests over a limit listed in pytest's "short test summary info", with its options and in its form.

    It lists tests of known categories alone: ours are failures for as long as it writes that section.
    """

    def __init__(self) -> None:
        self._added: list[pytest.TestReport] = []

    def add(self, terminal: Any, reports: Iterable[pytest.TestReport]) -> None:
        """Behind everything else of the summary."""
        for report in reports:
            listed = copy.copy(report)
            first, _, _ = str(report.longrepr).partition("\n")
            listed.longrepr = types.SimpleNamespace(reprcrash=types.SimpleNamespace(message=first))  # type: ignore[assignment]
            self._added.append(listed)
        if self._added:
            terminal.stats.setdefault("failed", []).extend(self._added)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
        yield
        for report in self._added:
            terminalreporter.stats["failed"].remove(report)
        self._added.clear()


def _without_environment(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "environment"}
