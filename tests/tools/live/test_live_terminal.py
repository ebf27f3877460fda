"""The view in a terminal: through Textual's own driver for tests, and in a real tmux."""

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cuptimem.cli import live as verb
from cuptimem.errors import Error
from cuptimem.live.following import Follower

pytestmark = pytest.mark.torch
needs_textual = pytest.mark.skipif(importlib.util.find_spec("textual") is None, reason="Textual is not installed")
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
SIZES = [(80, 24), (200, 60)]


def test_without_textual_one_line_says_what_to_install(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuptimem.live.terminal", None)
    monkeypatch.delitem(sys.modules, "cuptimem.live.terminal")
    for name in [name for name in sys.modules if name.partition(".")[0] == "textual"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    with pytest.raises(Error, match=r"^the view in a terminal needs Textual: pip install cuptimem\[live\]; "):
        verb.show(str(trained), 1.0, None)


@needs_textual
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_keys(trained: Path, size: tuple[int, int]) -> None:
    from cuptimem.live.terminal import View

    async def use() -> None:
        follower = Follower(str(trained))
        app = View(follower, 3600)
        async with app.run_test(size=size) as pilot:
            await app.workers.wait_for_complete()
            follower.close()
            app._look()
            await app.workers.wait_for_complete()
            await pilot.pause()

            async def after(*keys: str) -> str:
                await pilot.press(*keys)
                await pilot.pause()
                return str(app.shown.plain)

            first = await after()
            lines = first.splitlines()
            assert lines[0].startswith("train.py · pid ") and max(map(len, lines)) <= size[0]
            assert len(lines) <= size[1]
            assert "Alive on cpu now: " in first and "optimizer state" in first and "train.py:10" in first
            assert "Peaks of the last 24 steps on cpu: " in first
            assert "sorted by blocks" in await after("s")
            assert "sorted by line" in await after("s")
            assert "sorted by" not in await after("s")
            assert "sorted by blocks" in await after("a")
            assert "sorted by" not in await after("t")
            assert ", paused" in await after("space") and ", paused" not in await after("space")
            assert await after("greater_than_sign") == await after("m")
            assert "leave; the program goes on" in await after("h")
            assert await after("question_mark") == first
            await pilot.press("q")
        assert app.return_code == 0

    asyncio.run(use())


# --- in tmux ----------------------------------------------------------------------------------


class Tmux:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = str(folder / "tmux")

    def call(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-S", self.socket, "-f", "/dev/null", *words], capture_output=True, text=True, check=True
        ).stdout

    def start(self, size: tuple[int, int], command: str) -> None:
        set_up = f"unset COLUMNS LINES; cd {self.folder}; export NO_COLOR=1 LC_ALL=C.UTF-8"
        run = f"{set_up}; {command}; echo ended with $?; cat"
        self.call("new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), run)

    def until(self, done: Callable[[str], bool]) -> str:
        """The screen, once it is so. A frame is drawn in pieces: all that is expected of it belongs in `done`."""
        end = time.monotonic() + 120
        while True:
            screen = self.call("capture-pane", "-p")
            if done(screen):
                return screen
            assert time.monotonic() < end, screen
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        self.call("send-keys", *keys)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    server = Tmux(tmp_path)
    yield server
    subprocess.run(["tmux", "-S", server.socket, "kill-server"], check=False, capture_output=True)


LIVE = f"{sys.executable} -m cuptimem live"


@needs_textual
@needs_tmux
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_view_in_tmux(trained: Path, tmux: Tmux, size: tuple[int, int]) -> None:
    tmux.start(size, f"{LIVE} --every 0.2 {trained}")

    def drawn(screen: str) -> bool:
        lines = screen.splitlines() or [""]
        return (
            lines[0].startswith("train.py · pid ")
            and "has ended · 24 steps" in lines[0]
            and "Growth suspected" in screen
            and "kept, step" in screen
            and any(line.split()[:1] == ["cpu"] for line in lines)
            and any("train.py:10" in line for line in lines)
            and any("▁" in line and "█" in line for line in lines)
            and ("optimizer.step()" in screen) == (size[0] == 200)  # code where it has room
            and lines[-1].split()[:2] == ["q", "leave"]
        )

    tmux.until(drawn)
    tmux.press("q")
    tmux.until(lambda screen: "ended with 0" in screen)


WAITS = """\
import sys, torch
kept = [torch.zeros(1_000_000)]
sys.stdin.readline()
"""


@needs_textual
@needs_tmux
def test_a_process_that_is_killed_while_it_is_watched(tmux: Tmux, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    with subprocess.Popen(
        [sys.executable, "-m", "cuptimem", "run", "-o", "run.cmem", "waits.py"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        env={**os.environ, "CUPTIMEM_CUDA": "no"},
    ) as process:
        tmux.start((80, 24), f"until [ -s run.cmem ]; do sleep 0.1; done; {LIVE} --every 0.2 {process.pid}")
        tmux.until(lambda screen: f"pid {process.pid} · recording" in screen and "waits.py:2" in screen)
        process.send_signal(signal.SIGSTOP)
        tmux.until(lambda screen: "recording, the process is stopped" in screen)
        process.kill()
    tmux.until(lambda screen: all(word in screen for word in ("was killed", "3.8 MiB", "waits.py:2")))


TALKS = """\
import sys, torch
print("to the output")
print("to the errors", file=sys.stderr)
kept = [torch.zeros(1_000_000)]
sys.stdout.flush()
open("ready", "w").close()
import os, time
while not os.path.exists("go"):
    time.sleep(0.05)
sys.exit(7)
"""


@needs_textual
@needs_tmux
def test_run_live_shows_the_output_behind_the_view(tmux: Tmux, tmp_path: Path) -> None:
    (tmp_path / "talks.py").write_text(TALKS)
    tmux.start((80, 24), f"CUPTIMEM_CUDA=no {sys.executable} -m cuptimem run --live -q -o run.cmem talks.py")
    screen = tmux.until(lambda screen: "talks.py:4" in screen and "recording" in screen)
    assert "to the output" not in screen
    tmux.press("q")
    screen = tmux.until(lambda screen: "to the output" in screen and "to the errors" in screen)
    assert "ended with" not in screen  # it goes on
    (tmp_path / "go").touch()
    tmux.until(lambda screen: "ended with 7" in screen)


@needs_textual
def test_run_live_without_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print(1)")
    run = [sys.executable, "-m", "cuptimem", "run", "--live", "a.py"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "cuptimem: --live needs a terminal; in another one: cuptimem live PID\n"
    assert not list(tmp_path.glob("*.cmem"))
