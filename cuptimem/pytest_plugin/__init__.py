"""The hooks of the pytest plugin.

Nothing but pytest is imported here: what a hook needs beyond it is imported where an option asks for it.
"""

import argparse
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cuptimem.pytest_plugin.fixture import TensorMemory

_WRONG = "cuptimem_usage_error"  # what a worker of pytest-xdist hands to its controller
_OFF = ("", "0", "no", "false", "off")
MARKERS = ("limit_tensor_memory", "limit_tensor_leaks")
_MARKER_TEXTS = (
    '(limit, *, device=None, of="tensors"): fail the test if its body has more than limit ("512 MiB") alive at once',
    '(limit, *, device=None, warmup=0, filter_fn=None): fail the test if more than limit ("0 B") is alive behind it',
)
_OPTIONS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("", {"action": "store_true", "default": None}, "measure every test; shows the highest peaks at the end"),
    ("-most", {"metavar": "N"}, "rows of that table (10)"),
    ("-traces", {"metavar": "DIR"}, "keep the trace of every measured test"),
    ("-save", {"nargs": "?", "const": "baseline", "metavar": "NAME"}, "save the figures as a baseline, in .cuptimem/"),
    ("-compare", {"nargs": "?", "const": "baseline", "metavar": "NAME"}, "compare the figures with a baseline"),
    (
        "-compare-fail",
        {"action": "append", "metavar": "RULE"},
        "fail where a test is over its baseline: peak:5%%, peak:512KiB, leak:0B, allocations:10%% (repeatable)",
    ),
    ("-compare-lenient", {"action": "store_true", "default": None}, "do not fail where nothing could be compared"),
    ("-json", {"metavar": "FILE"}, "write the figures of all measured tests to FILE"),
)
_NAMES = {f"--cuptimem{name}": options["const"] for name, options, _ in _OPTIONS if "const" in options}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cuptimem", "tensor memory")
    group.addoption(
        "--cuptimem-simulate",
        nargs="?",
        const="yes",
        metavar="MEMORY",
        help="run pytest on a simulated CUDA device: =24GiB, or a card such as =l4 (default: h100)",
    )
    parser.addini("cuptimem_simulate", "yes, or MEMORY as for --cuptimem-simulate", default="")
    for name, options, text in _OPTIONS:
        group.addoption(f"--cuptimem{name}", **options, help=text)
        parser.addini(_ini_name(name), f"as --cuptimem{name}", default="")
    for marker in MARKERS:
        parser.addini(
            f"cuptimem_{marker}", f"a size: the {marker} of every test that has no marker of its own", default=""
        )


def _ini_name(option: str) -> str:
    return f"cuptimem{option or '_measure'}".replace("-", "_")


def _simulated_memory(config: pytest.Config, options: argparse.Namespace) -> str:
    """What --cuptimem-simulate or its ini twin says; empty where nothing is to be simulated."""
    asked = options.cuptimem_simulate
    text = str(config.getini("cuptimem_simulate") if asked is None else asked).strip()
    return "" if text.lower() in _OFF else text


# A wrapper that comes first: before the one that starts output capture, and before conftests and coverage.
@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    if any(argument in _NAMES for argument in args):
        from cuptimem.pytest_plugin import arguments

        arguments.give_back_paths(early_config, parser, args, _NAMES)
    if _simulated_memory(early_config, early_config.known_args_namespace):
        from cuptimem.pytest_plugin import simulate

        simulate.take_no_path(early_config, parser, args)
        memory = _simulated_memory(early_config, early_config.known_args_namespace)
        simulate.begin(early_config, parser, args, memory)
    yield


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    simulate = sys.modules.get("cuptimem.pytest_plugin.simulate")
    return None if simulate is None else simulate.run_child(config)


def pytest_configure(config: pytest.Config) -> None:
    if _simulated_memory(config, config.option):
        from cuptimem.pytest_plugin import simulate

        simulate.require_device(config)
    for marker, text in zip(MARKERS, _MARKER_TEXTS, strict=True):
        config.addinivalue_line("markers", f"{marker}{text}")
    if any(str(config.getini(f"cuptimem_{marker}")).strip() for marker in MARKERS):
        from cuptimem.pytest_plugin import limits

        limits.check_ini(config)
    if any(_setting(config, name) is not None for name, _, _ in _OPTIONS):
        _start(config)
    if getattr(config.option, "dist", "no") != "no":
        config.pluginmanager.register(_Controller(config), "cuptimem-controller")


class _Controller:
    """With pytest-xdist, the process that collects nothing: its workers report limits and usage errors."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        plugins = self._config.pluginmanager
        if not plugins.has_plugin("cuptimem-summary") and vars(report).keys() & {"cuptimem", "cuptimem_held"}:
            _start(self._config)
            summary: Any = plugins.get_plugin("cuptimem-summary")
            summary.begin(report)  # pytest calls its hook from the next report on
            summary.take(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        wrong = getattr(node, "workeroutput", {}).get(_WRONG)
        if wrong is not None:
            raise pytest.UsageError(wrong)


def _setting(config: pytest.Config, name: str) -> Any:
    """An option, else its ini twin; None: neither."""
    given = config.getoption(f"cuptimem{name}".replace("-", "_"))
    if given is not None:
        return given
    text = str(config.getini(_ini_name(name))).strip()
    return None if text.lower() in _OFF else text


def _start(config: pytest.Config) -> None:
    """From here on tests are measured; what that takes is imported now."""
    from cuptimem.pytest_plugin import session, summary
    from cuptimem.pytest_plugin.settings import settings_of

    settings = settings_of(config, lambda name: _setting(config, name))
    config.pluginmanager.register(summary.Summary(config, settings), "cuptimem-summary")
    config.pluginmanager.register(session.Measuring(config, settings), "cuptimem-measuring")


@pytest.hookimpl(tryfirst=True)  # before a worker of pytest-xdist says what it has collected
def pytest_collection_finish(session: pytest.Session) -> None:
    try:
        _take(session)
    except pytest.UsageError as error:
        output = getattr(session.config, "workeroutput", None)
        if output is None:
            raise
        output[_WRONG] = str(error)
        session.items.clear()


def _take(session: pytest.Session) -> None:
    config = session.config
    measuring = config.pluginmanager.get_plugin("cuptimem-measuring")
    limited = any(str(config.getini(f"cuptimem_{marker}")).strip() for marker in MARKERS)
    if measuring is None and (limited or _uses_markers(session.items)):
        _start(config)
        measuring = config.pluginmanager.get_plugin("cuptimem-measuring")
    if measuring is not None:
        measuring.take(session.items)


def _uses_markers(items: list[pytest.Item]) -> bool:
    """Looks at each class and module once: a large suite without a marker pays for its tests' own ones alone."""
    seen: set[pytest.Collector | pytest.Item] = set()
    for item in items:
        node: Any = item
        while node is not None and node not in seen:
            if node is not item:
                seen.add(node)
            for mark in node.own_markers:
                if mark.name in MARKERS:
                    return True
            node = node.parent
    return False


@pytest.fixture
def tensor_memory(request: pytest.FixtureRequest) -> "Iterator[TensorMemory]":
    """Measures a part of a test: see cuptimem.pytest_plugin.fixture.TensorMemory."""
    from cuptimem.pytest_plugin import bodies, measuring
    from cuptimem.pytest_plugin.fixture import TensorMemory

    # Fixtures that are set up after this one are not the test's.
    memory = TensorMemory(measuring.Capture.of(request.config))
    with memory.measured(), bodies.measured(request.node, memory.from_here):
        yield memory


def pytest_report_header(config: pytest.Config) -> str | None:
    if not _simulated_memory(config, config.option):
        return None
    from cuptimem.pytest_plugin import simulate

    return simulate.header()
