"""States of this process's own recording, for a callback, from one thread."""

import threading
import time
from collections.abc import Callable

from cuptimem.errors import Error
from cuptimem.live.following import Follower
from cuptimem.live.state import LiveState

LEAST = 0.1  # seconds between two calls
SHARE = 20  # the thread works a 20th of the time at most: it waits longer where a call takes long
FIRST_VERDICT = 16  # steps


class Watch:
    """Calls `callback` with a state every so many seconds, until the recording ends or stop() is called; once more at
    the end. What goes wrong in it is said in one line, and ends the watch, not the program.

    sync: writes what was recorded to the trace. say: prints one line.
    """

    def __init__(
        self,
        path: str,
        callback: Callable[[LiveState], object],
        every: float,
        *,
        sync: Callable[[], object],
        say: Callable[[str], object],
    ) -> None:
        self._path = path
        self._callback = callback
        self._every = max(LEAST, every)
        self._sync = sync
        self._say = say
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cuptimem watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No call comes after this, unless it is called in the callback itself."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            follower = Follower(self._path, first_verdict=FIRST_VERDICT)
            wait = 0.0
            while not self._stopped.wait(wait):
                began = time.thread_time()
                self._sync()
                follower.poll()
                state = follower.state()
                try:
                    self._callback(state)
                except Error as error:
                    raise RuntimeError(str(error)) from error  # the function's own
                if state.ended:
                    break
                wait = max(self._every, SHARE * (time.thread_time() - began))
            follower.close()
        except Error:  # the recording has ended, and its temporary trace is gone
            return
        except Exception as error:
            name = getattr(self._callback, "__qualname__", type(self._callback).__name__)
            text = " ".join(str(error).split())
            self._say(f"no more calls of {name}: {type(error).__name__}{': ' if text else ''}{text}")
