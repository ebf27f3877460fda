"""Watching for imports: called back at the right moment, and no trace left on the modules."""

import importlib
import importlib.util
import inspect
import pickle
import subprocess
import sys
import textwrap
import threading
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from cuptimem.record.late_import import ImportWatch


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package `lateish` with a submodule; gone from sys.modules afterwards."""
    folder = tmp_path / "lateish"
    folder.mkdir()
    (folder / "__init__.py").write_text("VALUE = 1\n")
    (folder / "part.py").write_text("class Thing:\n    pass\n\nDONE = True\n")
    (folder / "broken.py").write_text("raise ValueError('its own mistake')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [n for n in sys.modules if n.startswith("lateish")]:
        del sys.modules[name]


class Seen:
    def __init__(self, *names: str) -> None:
        self.calls: list[tuple[str, bool]] = []
        self.failures: list[tuple[str, Exception]] = []
        self.watch = ImportWatch(
            dict.fromkeys(names, self.call), lambda name, error: self.failures.append((name, error))
        )

    def call(self, module: ModuleType) -> None:
        self.calls.append((module.__name__, getattr(module, "DONE", getattr(module, "VALUE", None)) is not None))


def test_called_once_right_after_the_module_has_run(package):
    seen = Seen("lateish", "lateish.part")
    seen.watch.start()
    importlib.import_module("lateish.part")
    importlib.import_module("lateish.part")
    seen.watch.stop()
    assert seen.calls == [("lateish", True), ("lateish.part", True)] and seen.failures == []


def test_modules_that_are_there_already_are_reported_at_once(package):
    importlib.import_module("lateish")
    seen = Seen("lateish", "lateish.part")
    seen.watch.start()
    assert seen.calls == [("lateish", True)]
    seen.watch.stop()


def test_no_trace_on_module_spec_or_loader(package):
    importlib.import_module("lateish")
    bare_spec = importlib.util.find_spec("lateish.part")
    seen = Seen("lateish.part")
    seen.watch.start()
    part = importlib.import_module("lateish.part")
    assert type(part.__loader__) is SourceFileLoader and part.__spec__.loader is part.__loader__
    assert vars(part.__loader__) == vars(bare_spec.loader) and part.__spec__ == bare_spec
    assert pickle.loads(pickle.dumps(part.Thing())).__class__ is part.Thing
    assert inspect.getsource(part.Thing) == "class Thing:\n    pass\n"
    assert seen.watch not in sys.meta_path  # all that it waited for has come
    assert importlib.reload(part) is part and len(seen.calls) == 1 and seen.failures == []
    assert vars(part.__loader__) == vars(bare_spec.loader)


def test_a_failing_import_fails_as_it_would_and_can_be_tried_again(package):
    seen = Seen("lateish.broken")
    seen.watch.start()
    for _ in range(2):
        with pytest.raises(ValueError, match="its own mistake"):
            importlib.import_module("lateish.broken")
    (package / "broken.py").write_text("DONE = True  # repaired\n")
    importlib.invalidate_caches()
    importlib.import_module("lateish.broken")
    seen.watch.stop()
    assert seen.calls == [("lateish.broken", True)]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("lateish.missing")


def test_a_callback_that_raises_does_not_break_the_import(package):
    seen = Seen("lateish")
    seen.watch._callbacks["lateish"] = lambda module: 1 / 0
    seen.watch.start()
    assert importlib.import_module("lateish").VALUE == 1
    seen.watch.stop()
    assert [(name, type(error)) for name, error in seen.failures] == [("lateish", ZeroDivisionError)]


def test_a_module_that_another_thread_is_importing_is_seen_through(package):
    (package / "slow.py").write_text("import lateish\nlateish.started.set(); lateish.go_on.wait(10); DONE = True\n")
    lateish = importlib.import_module("lateish")
    lateish.started, lateish.go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=importlib.import_module, args=("lateish.slow",))
    thread.start()
    assert lateish.started.wait(10)
    seen = Seen("lateish.slow")
    seen.watch.start()
    seen.watch.poke()
    assert seen.calls == []
    lateish.go_on.set()
    thread.join()
    seen.watch.poke()
    seen.watch.poke()
    seen.watch.stop()
    assert seen.calls == [("lateish.slow", True)]


def test_torch_after_start_is_hooked_completely(run):
    answer = run(
        """
from cuptimem.record import torch_events
torch_events.install()
core.capture_record(True)
import torch
spec = torch.__spec__
binary = torch._C.__spec__
layer = torch.nn.Linear(3, 3); optimizer = torch.optim.SGD(layer.parameters(), lr=.1)
layer(torch.ones(1, 3)).sum().backward(); optimizer.step()
core.capture_record(False)
made = [e.origin for e in events(OBJECT_NEW)]
report(made=made, ticks=[e.size for e in events(TICK)], runs=len(events(NODE_RUN)), problems=torch_events.problems(),
       clean=[vars(s.loader) == {"name": s.name, "path": s.origin} for s in (spec, binary)],
       line=[f[0] for f in next(e for e in events(ALLOC) if e.size == 36).frames()][-1] == __file__)
""",
        afresh=True,
    )
    assert answer["problems"] == [] and answer["clean"] == [True, True] and answer["line"]
    assert answer["made"] == ["Linear", "SGD"] and answer["ticks"] == [4, 5, 2] and answer["runs"] > 0


def test_nothing_but_the_standard_library_is_imported():
    code = """
        import sys
        import cuptimem.record.late_import, cuptimem.record.torch_events, cuptimem.objects.seed
        ours = {"cuptimem", "_cuptimem_start", "__main__"}
        foreign = [n for n in sys.modules if n.split(".")[0] not in {*sys.stdlib_module_names, *ours}
                   and not n.startswith(("_virtualenv", "_distutils_hack", "sitecustomize", "__editable__"))]
        print(foreign)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[3],
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_a_forked_child_waits_for_torch_only_while_it_records(tmp_path: Path) -> None:
    program = """
        import os, sys
        sys.path.insert(0, sys.argv[1])
        import cuptimem

        def waiting():
            return sum(type(finder).__name__ == "ImportWatch" for finder in sys.meta_path)

        seen = []
        with cuptimem.profile(sys.argv[2] + "/parent.cmem"):
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                seen.append(waiting())
                with cuptimem.profile(sys.argv[2] + "/child.cmem"):
                    seen.append(waiting())
                seen.append(waiting())
                os.write(write, repr(seen).encode())
                os._exit(0)
            os.waitpid(child, 0)
            seen.append(waiting())
        print(os.read(read, 100).decode(), seen, waiting())
    """
    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), root, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "[0, 1, 0] [1] 0\n", done.stderr
