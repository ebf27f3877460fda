"""Measures tests: a window of the run's one capture around each body, and what the report says of it.

Every measured test gives one record, a plain dict that JSON and pytest-xdist can carry. It travels on the report of the
phase in which it was complete, so that whoever sees the reports (the controller of a distributed run) has them all:

    {"nodeid": ..., "outcome": "passed",
     "devices": {"cpu": {"peak": bytes, "allocated": bytes, "allocations": n, "leaked": bytes or None, "reserved": None,
                         "contributors": [[bytes, blocks, place, phase, source text], ...]}},
     "trace": path or None, "environment": {...}}

The body is what pytest calls the test's "call": what fixtures allocate before and free after it is not the test's. What
it leaves behind is judged once its function-scoped fixtures are torn down and a collection has been made.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Generator, Iterable, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from cuptimem.errors import Error, own
from cuptimem.printable import printable
from cuptimem.pytest_plugin import baselines, bodies, comparison, holders, judging, measuring, outputs
from cuptimem.pytest_plugin.limits import LEAKS, MEMORY, Limits, limits_of
from cuptimem.pytest_plugin.settings import Settings
from cuptimem.pytest_plugin.summary import UNMEASURED
from cuptimem.record import recorder
from cuptimem.report.model import Report


@dataclass
class _Test:
    """One test that is being measured."""

    limits: Limits
    body: recorder.Window | None = None
    rest: recorder.Window | None = None  # from the body's beginning to its teardown's end, where leaks are limited
    record: dict[str, Any] = field(default_factory=dict)
    failures: list[judging.Failure] = field(default_factory=list)
    passed: bool = False
    notes: list[str] = field(default_factory=list)
    loops: bool = False  # whether steps were seen in its body
    unmeasured: str = ""  # why
    left: bool = False  # whether what it left behind was seen
    attached: bool = False  # the record, to a report
    made: Set[judging.Identity] = frozenset()  # blocks that its body left: not those that a teardown makes
    held: dict[str, Any] = field(default_factory=dict)  # attributes of an xpass report, kept until the leak verdict

    @property
    def unmeasured_limit(self) -> bool:
        return bool(self.unmeasured and self.limits.limits)


class Measuring:
    """In the process that runs the tests."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self.limits: dict[pytest.Item, Limits] = {}
        self.capture = measuring.Capture.of(config)
        self._caches = holders.Caches()
        self._test: dict[pytest.Item, _Test] = {}
        self._environment: dict[str, Any] | None = None
        self._known = (False, False)  # whether PyTorch and CUDA were there when it was made

    # -- before ------------------------------------------------------------------------------------------------------

    def take(self, items: list[pytest.Item]) -> None:
        """The collected tests. Raises pytest.UsageError for invalid limits."""
        for item in items:
            limits = limits_of(item)
            if limits.limits or self.settings.every:
                self.limits[item] = limits

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        limits = self.limits.get(item)
        if limits is None:
            return
        missing = measuring.missing_device(limits.devices)
        if missing:
            raise pytest.skip.Exception(printable(f"its limit is about {missing}"), _use_item_location=True)
        test = self._test[item] = _Test(limits)
        with self._measurable(test):
            self.capture.renew()
            self.capture.start()
        if limits.of(LEAKS):
            measuring.behind_teardown(item, lambda: self._leave(item, test))

    # -- the body ----------------------------------------------------------------------------------------------------

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        test = self._test.get(item)
        if test is None:
            yield
            return
        with bodies.measured(item, lambda: self._window(test)):
            outcome = yield
            if outcome.excinfo is not None or bodies.failed(item):
                return
            if test.body is None or test.unmeasured:
                return
            try:
                self._warmed_up(item, test)
            except BaseException as error:  # of the body, in one of its further calls
                outcome.force_exception(error) if hasattr(outcome, "force_exception") else _raise_later(outcome, error)
                return
        if bodies.failed(item):
            return
        if not test.unmeasured:
            test.passed = True
            with self._measurable(test):
                self._judge_body(item, test)

    @contextmanager
    def _window(self, test: _Test) -> Generator[None, None, None]:
        """Around a call of the body: only the last one counts."""
        if not test.unmeasured:
            with self._measurable(test):
                self._open_windows(test)
        if test.unmeasured or test.body is None:
            yield
            return
        try:
            yield
        finally:
            with self._measurable(test):
                if test.limits.of_device:
                    measuring.ask_devices(test.body)
                measuring.close(test.body, collect=False)

    def _open_windows(self, test: _Test) -> None:
        measuring.release_caches(empty_cache=test.limits.of_device)
        if test.rest is not None:
            recorder.close_window(test.rest, collect=False)
        if test.limits.of(LEAKS):
            test.rest = self.capture.open()
        test.body = self.capture.open()
        if test.limits.of_device:
            measuring.ask_devices(test.body)

    def _warmed_up(self, item: pytest.Item, test: _Test) -> None:
        """Calls a body without a loop again, `warmup` times: the last call is the one that counts."""
        warmup = test.limits.warmup
        if not warmup or test.rest is None or measuring.read(test.rest, again=True).steps:
            return
        for _ in range(warmup):
            item.runtest()

    def _judge_body(self, item: pytest.Item, test: _Test) -> None:
        assert test.body is not None
        may_be_kept = bool(test.limits.of(MEMORY)) or self.settings.traces is not None
        tables = judging.TABLES[LEAKS if test.rest is not None else MEMORY]
        report = measuring.checked(measuring.read(test.body, tables, again=may_be_kept))
        test.made = judging.identities(report.kept_blocks)
        test.loops = bool(report.steps)
        test.record = {
            "nodeid": item.nodeid,
            "outcome": "passed",
            "devices": judging.figures(report, self.config.rootpath),
            "trace": None,
            "environment": self._environment_now(),
        }
        benchmark: Any = getattr(item, "funcargs", {}).get("benchmark")
        if isinstance(getattr(benchmark, "extra_info", None), dict):  # pytest-benchmark's
            benchmark.extra_info.update(outputs.benchmark_info(test.record))
        test.failures = judging.memory_failures(test.limits, report, self.config.rootpath)
        if test.failures or self.settings.traces is not None:
            self._keep_trace(item, test, test.body)

    @contextmanager
    def _measurable(self, test: _Test) -> Generator[None, None, None]:
        """What goes wrong in here is no failure of the test, but one with a limit must not pass unmeasured."""
        try:
            yield
        except own(Error, OSError) as error:
            test.unmeasured = test.unmeasured or str(error)
            self.capture.give_up()

    # -- what it left ------------------------------------------------------------------------------------------------

    def _leave(self, item: pytest.Item, test: _Test) -> None:
        """Fixtures of functions are gone. Wider ones are not, whether or not they end with this test."""
        if test.rest is None:
            return
        # pytest still has the values of fixtures that are gone, and the instance of the test's class.
        (getattr(item, "funcargs", None) or {}).clear()
        if not bodies.is_unittest(item):
            for name in ("_obj", "_instance"):
                vars(item).pop(name, None)
        measuring.release_caches()
        if not (test.passed and test.record):
            recorder.close_window(test.rest, collect=False)
            return
        with self._measurable(test):
            collect = _left_anything(measuring.read(test.rest, judging.TABLES[LEAKS], again=True))
            measuring.close(test.rest, collect=collect, look=test.loops)
            self._judge_rest(item, test)

    def _judge_rest(self, item: pytest.Item, test: _Test) -> None:
        assert test.rest is not None
        report = measuring.checked(measuring.read(test.rest, judging.TABLES[LEAKS], again=True))
        known = self._caches.find(item, report.kept_blocks)
        warmup = test.limits.warmup if report.steps else 0
        test.left = True
        left = judging.left_behind(report, warmup, known.is_harmless, test.made)
        failures = judging.leak_failures(test.limits, report, left, known, self.config.rootpath)
        leaked = {device: one.leaked for device, one in left.items()}
        for device, row in test.record["devices"].items():
            row["leaked"] = leaked.get(device, 0)
        test.notes += known.notes
        if failures:
            test.failures = failures
            self._keep_trace(item, test, test.rest)

    def _keep_trace(self, item: pytest.Item, test: _Test, window: recorder.Window) -> None:
        cache = getattr(self.config, "cache", None)
        try:
            if self.settings.traces is not None:
                folder = self.settings.traces
            elif cache is not None:
                folder = cache.mkdir("cuptimem")
            else:  # -p no:cacheprovider
                test.notes.append("its trace is not kept: there is no folder for it; --cuptimem-traces=DIR names one")
                return
            target = folder / _file_name(item.nodeid)
            measuring.write(window, target, item.nodeid)
            test.record["trace"] = str(target)
        except own(Error, OSError) as error:
            test.notes.append(f"its trace is not written: {error}")

    # -- reports -----------------------------------------------------------------------------------------------------

    # The outermost: other plugins (xfail, reruns, ...) see a test that is over a limit as one that has raised.
    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        test = self._test.get(item)
        if test is None or call.when == "setup":
            yield
            return
        ended_well = call.excinfo is None and not bodies.failed(item)
        if call.when == "call" and ended_well and test.body is None:
            test.unmeasured = test.unmeasured or "its body did not run in this process"
        if call.when == "teardown" and test.passed and test.rest is not None and not test.left:
            test.unmeasured = test.unmeasured or "its teardown did not run in this process"
        judged = call.when == "call" or test.passed  # else the report of its call says all
        over = ended_well and judged and bool(test.failures or test.unmeasured_limit)
        if over:
            call.excinfo = _raised([*_failure_lines(test), *self._baseline_had(test.record), *test.notes])
        outcome = yield
        report: Any = outcome.get_result()
        if over:
            self._over_limit(test, call, report)
        if call.when == "call":
            test.passed = test.passed and (not report.failed or _is_xpass(report))
            if test.record:
                test.record["outcome"] = "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
            if test.rest is not None and test.passed and _is_xpass(report):
                test.held = _hold(report)
        elif test.held and call.excinfo is None and not over:
            _let_go(test.held, report)
            if test.record:
                test.record["outcome"] = report.outcome
        if test.record and (test.rest is None or report.failed or call.when == "teardown"):
            self._attach(test, report)
        if call.when == "teardown":
            if test.unmeasured:
                report.cuptimem_unmeasured = test.unmeasured
            if test.notes and test.passed and not over:  # else they are in its failure
                report.cuptimem_notes = test.notes
            for window in (test.body, test.rest):  # open where its teardown was never called, or no recording began
                if window is not None:
                    recorder.close_window(window, collect=False)
            del self._test[item]

    def _over_limit(self, test: _Test, call: pytest.CallInfo[None], report: Any) -> None:
        kind = test.failures[0].limit.kind if test.failures else UNMEASURED
        test.failures, test.unmeasured = [], ""
        if test.record:
            test.record["outcome"] = "xfailed" if report.skipped else "failed"
        if report.failed:
            assert call.excinfo is not None
            report.longrepr = str(call.excinfo.value)
            report.cuptimem_failed = kind
        call.excinfo = None  # the body has ended: there is no frame of it that --pdb could stop in

    def _baseline_had(self, record: Mapping[str, Any]) -> list[str]:
        """Of the baseline that the run is compared with; else of the default one, if there is one."""
        try:
            found = baselines.find(self.config.rootpath, self.settings.against or baselines.NAME) if record else None
        except own(Error) as error:
            return [str(error)]
        return [] if found is None else comparison.beside(record, found, 120)

    def _attach(self, test: _Test, report: Any) -> None:
        if not test.attached:
            test.attached = True
            report.cuptimem = test.record
        if report.when == "teardown":  # JUnit's XML has the properties of this report
            report.user_properties += outputs.properties(test.record)

    def _environment_now(self) -> dict[str, Any]:
        known = "torch" in sys.modules, measuring.uses_cuda()
        if self._environment is None or known != self._known:
            self._environment, self._known = measuring.environment(), known
        return self._environment


def _file_name(nodeid: str) -> str:
    """Of its trace: readable, and no other test's."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", nodeid)[-150:]
    if readable == nodeid.replace("::", "-"):
        return f"{readable}.cmem"
    return f"{readable}-{zlib.crc32(nodeid.encode('utf-8', 'surrogatepass')):08x}.cmem"


def _left_anything(report: Report) -> bool:
    """Whether a collection can change what is judged. It takes half a second where many modules are loaded."""
    return bool(report.kept_blocks or report.leaks or report.undecided)


def _failure_lines(test: _Test) -> list[str]:
    lines = [f"could not be measured: {test.unmeasured}"] if test.unmeasured else []
    for failure in test.failures:
        lines += [failure.headline(), *failure.lines]
    trace = test.record.get("trace")
    if trace:
        lines.append(f"trace: {trace} (cuptimem summary, peak, tree, leaks)")
    return lines


class LimitExceeded(pytest.fail.Exception):  # type: ignore[misc, name-defined]  # a class that pytest has no name for
    """What other plugins see of a test that is over a limit."""


def _raised(lines: Iterable[str]) -> pytest.ExceptionInfo[LimitExceeded]:
    """What every terminal, report and plugin gets: each line is one, and harmless."""
    try:
        raise LimitExceeded("\n".join(map(printable, lines)), pytrace=False)
    except LimitExceeded as error:
        return pytest.ExceptionInfo.from_exc_info((type(error), error, error.__traceback__))


def _is_xpass(report: pytest.TestReport) -> bool:
    """Whether a test has passed that was expected to fail."""
    if report.failed:
        return str(report.longrepr).startswith("[XPASS(strict)]")
    return report.passed and hasattr(report, "wasxfail")


def _hold(report: Any) -> dict[str, Any]:
    """Makes a report of an unexpected pass one that says nothing yet. What it had said."""
    said: dict[str, Any] = vars(report)
    held: dict[str, Any] = {name: said[name] for name in ("outcome", "longrepr", "wasxfail") if name in said}
    said.pop("wasxfail", None)
    report.outcome, report.longrepr = "passed", None
    report.cuptimem_held = "call"
    return held


def _let_go(held: Mapping[str, Any], report: Any) -> None:
    vars(report).update(held)
    report.cuptimem_held = "teardown"


def _raise_later(outcome: Any, error: BaseException) -> None:
    """What outcome.force_exception does, for pluggy before 1.1."""
    outcome._excinfo = (type(error), error, error.__traceback__)
