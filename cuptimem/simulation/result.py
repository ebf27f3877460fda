"""The answer of a simulation, as plain frozen data. All sizes are bytes."""

from dataclasses import dataclass
from typing import Literal

from cuptimem.displayed import Displayed
from cuptimem.report.advice import Advice
from cuptimem.report.brief import Brief, name
from cuptimem.report.model import Contributor, HostRead, Peak, Report
from cuptimem.report.stacks import Frame
from cuptimem.words import size

VerdictKind = Literal["fits", "fits with settings", "does not fit", "undecided", "script failed"]

EXIT_CODES: dict[VerdictKind, int] = {
    "fits": 0,
    "fits with settings": 3,
    "does not fit": 3,
    "undecided": 4,
    "script failed": 5,
}


@dataclass(frozen=True, slots=True)
class Interval:
    """From the size where every modelled part is at its low end to the one where it is at its high end.

    Equal where nothing was modelled. `high` None: the program did not get through at the high end, so it is at least
    `low`, without a known bound.
    """

    low: int
    high: int | None

    @property
    def exact(self) -> bool:
        """Whether nothing was modelled that could have changed it."""
        return self.low == self.high


@dataclass(frozen=True, slots=True, repr=False)
class DeviceUse(Brief):
    """The peaks of one simulated device."""

    device: str  # "cuda:0"
    total: int  # what the device has
    context: int  # of it, taken by the CUDA context before the first tensor in the first run: a stated constant
    context_range: Interval  # what the context may take: the card's published interval, or what the user gave
    allocated: Interval  # in tensors, as torch.cuda.max_memory_allocated counts
    reserved: Interval | None  # by PyTorch's allocator; None where it keeps no segments (cudaMallocAsync)
    used: Interval  # of the device, libraries and the context at both of its ends included
    refused: int  # requests that the device could not serve, those included that PyTorch then served from its cache


@dataclass(frozen=True, slots=True, repr=False)
class Modelled(Brief):
    """A part with a size that comes from a model and not from PyTorch."""

    name: str
    bytes: int  # at the low end, the largest live sum
    high_bytes: int | None  # at the high end; None where that was not run
    count: int


@dataclass(frozen=True, slots=True, repr=False)
class UnknownRead(Brief):
    """A line that read values which no kernel has computed, through PyTorch: as zeros, unless a note differs."""

    # "integer", "flag"; "float", where comparisons are seen, and "unfollowed float", where they are not; "branch": a
    # float, or what Python made of one, was compared; "storage": bytes that are saved
    kind: str
    dtype: str  # of the tensor: "int64"; "float" for a branch
    count: int
    elements: int  # of the largest read
    frame: Frame | None  # the user's line
    library: Frame | None  # the innermost line: a library's where the user's line has called one

    @property
    def is_open(self) -> bool:
        """Whether a size or a branch may hang on it: on a float only where one was seen to decide a branch."""
        return self.kind in ("integer", "flag", "branch")


@dataclass(frozen=True, slots=True, repr=False)
class Assumption(Brief):
    """An operator with an output size that depends on values, and the assumed share of the largest size."""

    operator: str
    fraction: float
    given: bool  # by the user; else it is the default, and the high end takes 1
    count: int
    file: str  # "" with line 0: no Python line, as in backward, which runs in threads of its own
    line: int
    function: str
    text: str = ""  # the whole line, as it was then; "" unknown
    elements: int = 0  # of the largest output: rows of indices for nonzero
    bytes: int = 0  # of that output
    library: Frame | None = None  # the innermost line: a library's where the user's line has called one

    @property
    def frame(self) -> Frame:
        """The user's line."""
        return Frame(self.file, self.function, self.line, text=self.text)


@dataclass(frozen=True, slots=True, repr=False)
class Entry(Brief):
    """Something that the program asked for by name."""

    name: str
    count: int


@dataclass(frozen=True, slots=True, repr=False)
class Need(Brief):
    """What the program takes when there is room enough, per fullest device."""

    device: str
    low: int  # its tensors at their peak, the context and the libraries: below this it cannot run
    high: int  # used at most in a run without a limit: with this it ran
    takes_everything: bool  # it sizes itself by what is free, so high has no meaning


@dataclass(frozen=True, slots=True, repr=False)
class Smallest(Brief):
    """The smallest memory of the fullest device in which the program still fits, with everything at its high end."""

    device: str
    low: int  # it needs more than this, or no less: its tensors, the context and the libraries, or a run that failed
    high: int  # it ran with this, or with more and used no more; equal to low where the two are so near

    @property
    def exact(self) -> bool:
        """Whether it is one number, good to 64 MiB or 2 % of the device."""
        return self.low == self.high


@dataclass(frozen=True, slots=True, repr=False)
class Attempt(Brief):
    """Another run of the program, and how it went."""

    what: str  # "PYTORCH_ALLOC_CONF=expandable_segments:True", "high end", "no limit", "on l4", "in 12.0 GiB"
    outcome: str  # "ran", "out of memory", "failed: ...", "stopped after 600 s"
    used: int | None  # bytes of the fullest device at its peak
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class Simulation(Displayed, Brief):
    """The answer of one `cuptimem simulate`, with the report of the run that it rests on."""

    verdict: VerdictKind
    reason: str  # one line: what the verdict rests on, or why there is none
    card: str  # "H100"
    memory: int  # of each device
    devices: tuple[DeviceUse, ...]  # that were used
    peak: Peak | None  # of the fullest device, with contributors; of the run without a limit where it did not fit
    need: Need | None  # where it did not fit
    advised: Advice | None  # what would lower that peak, where it did not fit and this takes little time
    smallest_memory: Smallest | None  # where it fits
    setting: str | None  # "PYTORCH_ALLOC_CONF=backend:cudaMallocAsync", "gc.collect() every 9 steps"
    smallest_card: str | None  # on which it ran
    modelled: tuple[Modelled, ...]
    host_reads: tuple[HostRead, ...]  # as recorded, with their stacks
    reads: tuple[UnknownRead, ...]  # of what no kernel has computed, by type and line
    assumptions: tuple[Assumption, ...]
    undescribed: tuple[Entry, ...]  # entry points without a description: their memory is not counted
    refused: tuple[Entry, ...]  # what is not simulated: NCCL, CUDA IPC, ...
    notes: tuple[str, ...]  # everything else that a reader must know, a line each
    hints: tuple[str, ...]  # what to do next, a line each
    attempts: tuple[Attempt, ...]
    caught_ooms: int  # OutOfMemoryErrors that the program caught
    retries: int  # requests that PyTorch could serve only after it had emptied its cache
    exit_code: int | None  # of the program; None: killed by a signal
    signal: int | None
    seconds: float  # of the main run
    torch: str
    cuda: str
    output: str = ""  # the end of what the program printed, where cuptimem.simulate() ran it
    name: str = ""  # of the script, module or function
    report: Report | None = None  # None only where the program left no recording

    def _summary(self) -> str:
        room = f"{self.card} with {size(self.memory)}"
        fullest = max(self.devices, key=lambda device: device.used.low, default=None)
        used = "" if fullest is None else f", {size(fullest.used.low)} used"
        return f"{name(self.name or 'program')}: {self.verdict} on {room}{used}"

    def __str__(self) -> str:
        """As the command line shows it, the verdict first."""
        from cuptimem.output.text import terminal, text
        from cuptimem.simulation import views

        return text.render(views.simulation(self), terminal.width_of_output())

    @property
    def fits(self) -> bool | None:
        """True, False, or None where that is not decided."""
        return {"fits": True, "fits with settings": False, "does not fit": False}.get(self.verdict)

    @property
    def collects(self) -> bool:
        """Whether it fits where the program collects its garbage."""
        return self.setting is not None and self.setting.startswith("gc.collect()")

    @property
    def code(self) -> int:
        """The exit code of `cuptimem simulate`: 0 fits, 3 does not fit as it is, 4 undecided, 5 the program failed."""
        return EXIT_CODES[self.verdict]

    @property
    def contributors(self) -> tuple[Contributor, ...]:
        """What the peak was made of."""
        return () if self.peak is None else self.peak.contributors

    @property
    def host_read_count(self) -> int:
        """Reads of what only a kernel would have computed."""
        return sum(read.count for read in self.host_reads if not read.written)
