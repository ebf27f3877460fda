"""Calls back right after chosen modules have been imported, now or later, and leaves no trace on them.

A finder at the front of `sys.meta_path` lets the other finders find a watched module and gives the loader that they
return one instance attribute, `exec_module`, which takes itself away again before the module runs. `__spec__`,
`__loader__`, reloading, pickling and `inspect` see what they would have seen without us. It imports nothing: it may be
used before the program imports anything.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Callback = Callable[[ModuleType], None]


class ImportWatch:
    """Watches for the modules named in `callbacks` from `start` to `stop`.

    A callback gets the module right after it has run, in the thread that imports it, with that module's import lock
    held; for a module that is there already it is called by `start`. Callbacks must not raise: what they raise goes to
    `failed` and not into the program's import.
    """

    def __init__(self, callbacks: dict[str, Callback], failed: Callable[[str, Exception], None]) -> None:
        self._callbacks = dict(callbacks)
        self._failed = failed
        self._unfinished: set[str] = set()
        self._active = False

    def start(self) -> None:
        if self._active:
            return
        self._active = True
        sys.meta_path.insert(0, self)
        for name in self._callbacks:
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
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def poke(self) -> None:
        """Looks again at modules whose import was under way when the watch began."""
        for name in list(self._unfinished):
            module = sys.modules.get(name)
            if module is None or not _is_running(module):
                self._unfinished.discard(name)
                if module is not None:
                    self._call(name, module)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find; part of the import system's protocol."""
        if name not in self._callbacks or not self._active:
            return None
        finders = list(sys.meta_path)
        # Only those behind us: the ones in front have found nothing, and another watch among them would ask us again.
        for finder in finders[finders.index(self) + 1 :] if self in finders else finders:
            find = getattr(finder, "find_spec", None)
            if find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                self._listen(name, spec)
                return spec
        return None

    def _listen(self, name: str, spec: ModuleSpec) -> None:
        loader = spec.loader
        original = getattr(loader, "exec_module", None)
        if getattr(original, "_cuptimem", None) == (self, name):  # found before, and not loaded since
            return
        if original is None or isinstance(loader, type):
            self._failed(name, TypeError(f"its loader cannot be watched: {loader!r}"))
            return

        def exec_module(module: ModuleType) -> None:
            # A loader may serve many modules (zipimport has one for the archive), and another one of them may come
            # first: it is let through, and we stay.
            ours = getattr(getattr(module, "__spec__", None), "name", module.__name__) == name
            if ours and loader.__dict__.get("exec_module") is exec_module:
                del loader.__dict__["exec_module"]
            original(module)
            if ours and self._active:
                self._call(name, module)

        exec_module._cuptimem = (self, name)  # type: ignore[attr-defined]
        try:
            loader.__dict__["exec_module"] = exec_module
        except AttributeError as error:  # a loader without instance attributes
            self._failed(name, error)

    def _call(self, name: str, module: ModuleType) -> None:
        try:
            self._callbacks[name](module)
        except Exception as error:  # reported, never raised into the program's own import
            self._failed(name, error)


def _is_running(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
