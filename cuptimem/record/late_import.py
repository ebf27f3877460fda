"""Calls back right after chosen modules have been imported, now or later, and leaves no trace on them.

A finder at the front of `sys.meta_path` lets the other finders find a watched module and gives the loader that they
return one instance attribute, `exec_module`, which takes itself away again before the module runs. `__spec__`,
`__loader__`, reloading, pickling and `inspect` see what they would have seen without us; tracebacks and profiles of an
import do too (`_core.hidden`). It imports nothing of Python's: it may be used before the program imports anything.
"""

import sys

from cuptimem import _core
from cuptimem.errors import own

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Callback = Callable[[ModuleType], None]


class ImportWatch:
    """Watches for the modules named in `callbacks`, from `start` to `stop` or until all of them have come.

    A callback gets the module once, right after it has run, in the thread that imports it, with that module's import
    lock held; for a module that is there already it is called by `start`. `arriving`: called before the
    first search for such a module. Neither must raise: what they raise goes to `failed` and not into the
    program's import.
    """

    def __init__(
        self,
        callbacks: "dict[str, Callback]",
        failed: "Callable[[str, Exception], None]",
        arriving: "dict[str, Callable[[], None]] | None" = None,
    ) -> None:
        self._callbacks = dict(callbacks)
        self._arriving = dict(arriving or {})
        self._failed = failed
        self._unfinished: set[str] = set()
        self._listeners: dict[str, Callable[[ModuleType], None]] = {}  # put on a loader last, by module
        self._active = False
        self.find_spec = _core.hidden(self._find_spec)  # part of the import system's protocol

    def start(self) -> None:
        if self._active:
            return
        self._active = True
        sys.meta_path.insert(0, self)
        for name in list(self._callbacks):
            module = sys.modules.get(name)
            if module is None:
                continue
            if _is_running(module):  # another thread is in the middle of importing it: `poke` sees it through
                self._unfinished.add(name)
            else:
                self._call(name, module)

    def stop(self) -> None:
        self._active = False
        self._unfinished.clear()
        self._listeners.clear()
        if self in (sys.meta_path or ()):  # None once Python tears itself down
            sys.meta_path.remove(self)

    def poke(self) -> None:
        """Checks modules again that were being imported when the watch began."""
        for name in list(self._unfinished):
            module = sys.modules.get(name)
            if module is None or not _is_running(module):
                self._unfinished.discard(name)
                if module is not None:
                    self._call(name, module)

    def _find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Returns what the other finders find."""
        if not self._active or (name not in self._callbacks and name not in self._arriving):
            return None
        before = list(sys.meta_path)
        arriving = self._arriving.pop(name, None)
        if arriving is not None:
            self._try(name, arriving)
            self._stop_when_done()
        # Those behind us, for the ones in front have found nothing; and those that `arriving` has put in front of us.
        behind = before[before.index(self) + 1 :] if self in before else before
        for finder in [*(one for one in sys.meta_path if one not in before), *behind]:
            find = getattr(finder, "find_spec", None)
            if find is None:
                continue
            spec: ModuleSpec | None = _core.shown(find, name, path, target)
            if spec is not None:
                if name in self._callbacks:
                    self._listen(name, spec)
                return spec
        return None

    def _listen(self, name: str, spec: "ModuleSpec") -> None:
        loader = spec.loader
        original = getattr(loader, "exec_module", None)
        if original is not None and original is self._listeners.get(name):  # found before, and not loaded since
            return
        if original is None or isinstance(loader, type):
            self._failed(name, TypeError(f"its loader cannot be watched: {loader!r}"))
            return

        # A loader may serve many modules (zipimport has one for the archive), and another one of them may come first:
        # it is let through, and we stay.
        def is_it(module: "ModuleType") -> bool:
            found: str = getattr(getattr(module, "__spec__", None), "name", module.__name__)
            return found == name

        def before(module: "ModuleType") -> None:
            if is_it(module) and loader.__dict__.get("exec_module") is listener:
                del loader.__dict__["exec_module"]

        def after(module: "ModuleType") -> None:
            if is_it(module) and self._active:
                self._call(name, module)

        listener = _core.hidden(before, original, after)
        try:
            loader.__dict__["exec_module"] = listener
        except own(AttributeError) as error:  # a loader without instance attributes
            self._failed(name, error)
        else:
            self._listeners[name] = listener

    def _call(self, name: str, module: "ModuleType") -> None:
        callback = self._callbacks.pop(name, None)
        if callback is not None:
            self._try(name, lambda: callback(module))
            self._stop_when_done()

    def _stop_when_done(self) -> None:
        if not self._callbacks and not self._arriving:
            self.stop()

    def _try(self, name: str, call: "Callable[[], None]") -> None:
        try:
            call()
        except Exception as error:  # reported, never raised into the program's own import
            self._failed(name, error)
            if _core.of_program(error):  # it has cut ours short
                raise


def _is_running(module: "ModuleType") -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
