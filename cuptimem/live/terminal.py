"""The view in a terminal: the text of a frame, again and again, and keys. Needs Textual."""

from typing import TYPE_CHECKING, Any, ClassVar

from cuptimem.errors import Error
from cuptimem.live import view
from cuptimem.live.following import Follower
from cuptimem.live.state import LiveState
from cuptimem.output.text import terminal, text
from cuptimem.output.text.blocks import Block, Text

if TYPE_CHECKING:
    App: Any
    Binding: Any
    Static: Any
    Footer: Any
    VerticalScroll: Any
else:
    from textual.app import App
    from textual.binding import Binding
    from textual.containers import VerticalScroll
    from textual.widgets import Footer, Static

KEYS = (
    ("q, Esc", "leave; the program goes on"),
    ("Space", "pause: the frame stays, recording goes on"),
    ("s", "next order: bytes, blocks, line"),
    ("t or o, a, l", "order by bytes, by blocks, by line"),
    (">, ., →", "next device"),
    ("<, ,, ←", "device before it"),
    ("m", "all devices"),
    ("↑ ↓ PgUp PgDn", "scroll"),
    ("h, ?", "these keys, and back"),
)
_LEAST_ROWS = 3


class View(App):  # type: ignore[misc]
    """Shows what a follower knows, until the user leaves it."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "#frame { height: auto; } VerticalScroll { background: transparent; }"
    BINDINGS: ClassVar[list[Any]] = [
        Binding("q", "quit", "leave"),
        Binding("escape,ctrl+c", "quit", show=False, priority=True),
        Binding("space", "pause", "pause"),
        Binding("s", "order('')", "sort"),
        Binding("t,o", "order('bytes')", show=False),
        Binding("a", "order('blocks')", show=False),
        Binding("l", "order('line')", show=False),
        Binding("greater_than_sign,full_stop,right", "device(1)", "device", key_display="<>"),
        Binding("less_than_sign,comma,left", "device(-1)", show=False),
        Binding("m", "merge", "all devices"),
        Binding("h,question_mark", "help", "keys"),
    ]

    def __init__(self, follower: Follower, every: float) -> None:
        super().__init__()
        self._follower = follower
        self._every = every
        self._state: LiveState | None = None
        self._problem = ""
        self._read = 0
        self.shown = terminal.joined(())  # on the screen
        self._device: str | None = None
        self._order = view.ORDERS[0]
        self._paused = self._helps = self._busy = False

    def compose(self) -> Any:
        with VerticalScroll():
            yield Static(id="frame", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self._look()
        self.set_interval(self._every, self._look)

    def on_resize(self) -> None:
        self._draw()

    # -- reading, in a thread of its own --------------------------------------------------------------------------

    def _look(self) -> None:
        if not self._busy and not self._problem:
            self._busy = True
            self.run_worker(self._poll, thread=True, exit_on_error=False)

    def _poll(self) -> None:
        try:
            changed = self._follower.poll(self._count)
            state = self._state
            if changed or state is None or not state.ended:
                state = self._follower.state()
        except Error as error:
            self.call_from_thread(self._end, str(error))
            return
        self.call_from_thread(self._take, state)

    def _count(self, records: int) -> None:
        """The first reading of a long trace takes its time."""
        self._read = records
        if self._state is None:
            self.call_from_thread(self._draw)

    def _take(self, state: LiveState) -> None:
        self._busy = False
        if not self._paused and state is not self._state:
            self._state = state
            self._draw()

    def _end(self, problem: str) -> None:
        self._problem = problem
        self._draw()

    # -- the frame ------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        width, height = max(40, self.size.width - 2), self.size.height - 1
        frame = self.query_one("#frame", Static)
        self.shown = terminal.joined(terminal.styled(self._blocks(width, height), width))
        frame.update(self.shown)

    def _blocks(self, width: int, height: int) -> list[Block]:
        if self._helps:
            return [view.keys(KEYS)]
        state = self._state
        if self._problem or state is None:
            said = f"! {self._problem}" if self._problem else f"Reading the trace: {self._read:,} events"
            return [Text(said)]
        if self._device not in {one.device for one in state.devices}:
            self._device = None
        shown = view.Shown(self._device, self._order, 0, width, self._paused)
        devices = 1 if self._device is not None else max(1, len(state.devices))
        used = len(text.render(view.blocks(state, shown), width).splitlines())
        rows = max(_LEAST_ROWS, (height - used) // devices)
        return view.blocks(state, view.Shown(self._device, self._order, rows, width, self._paused))

    # -- keys -----------------------------------------------------------------------------------------------------

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._draw()

    def action_order(self, order: str) -> None:
        at = view.ORDERS.index(self._order)
        self._order = order or view.ORDERS[(at + 1) % len(view.ORDERS)]
        self._draw()

    def action_device(self, by: int) -> None:
        names: list[str | None] = [None]
        if self._state is not None:
            names += (one.device for one in self._state.devices)
        self._device = names[(names.index(self._device) + by) % len(names)]
        self._draw()

    def action_merge(self) -> None:
        self._device = None
        self._draw()

    def action_help(self) -> None:
        self._helps = not self._helps
        self._draw()
