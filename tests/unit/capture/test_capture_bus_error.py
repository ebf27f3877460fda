"""Ring files that others take away, and the program's own SIGBUS."""

import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from capture_support import Program

from cuptimem import _core

# What others do to the file at `ring`, and what the line to the user then says.
pytestmark = pytest.mark.costly
HARMS = {
    "emptied": ("os.truncate(ring, 0)", "was truncated"),
    "cut": ("os.truncate(ring, os.path.getsize(ring) // 2)", "was truncated"),
    "header": ("os.truncate(ring, 4096)", "was truncated"),
    "descriptors": ("truncate_descriptors()", "was truncated"),
    "emptied_and_filled": (
        "size = os.path.getsize(ring); os.truncate(ring, 0); os.truncate(ring, size)",
        "was truncated|has lost",
    ),
    "hole": ("subprocess.run(['fallocate', '-p', '-o', '0', '-l', '8M', ring], check=True)", "has lost"),
}

PRELUDE = """
    import faulthandler, mmap, resource, subprocess, warnings
    # Of forks beside a thread: the recorder, which is not here, ends ours before.
    warnings.simplefilter("ignore", DeprecationWarning)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def truncate_descriptors():
        for number in range(3, 1024):
            try:
                os.stat(number)
                if not os.readlink(f"/proc/self/fd/{number}") == path:
                    os.ftruncate(number, 0)
            except OSError:
                continue

    def wait_for(what):
        end = time.monotonic() + 60
        while not what():
            assert time.monotonic() < end
            time.sleep(0.01)

    def caught():
        '''Whether a handler stands before what the program sees.'''
        fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
        return bool(int(fields["SigCgt"], 16) >> (signal.SIGBUS - 1) & 1)

    def looks(times):
        '''The collector has looked at least so often since: it does once a second.'''
        wakes = c.capture_counts()["wakes"]
        end = time.monotonic() + 1.2 * times
        wait_for(lambda: time.monotonic() > end and c.capture_counts()["wakes"] > wakes + 2 * times)
"""


def recorded(program: Program, text: str, *words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    return program(textwrap.dedent(PRELUDE) + text, *words, check=check)


def counted(trace: Path) -> tuple[int, int, tuple[Any, ...]]:
    """Events in the file, the collector's own, and the end."""
    events = _core.trace_dump(str(trace))
    samples = sum(event[0] == "sample" for event in events)
    assert events[-1][0] == "end"
    return len(events) - samples - 1, samples, events[-1]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("when", ["quiet", "busy"])
def test_a_ring_file_that_is_taken_away_ends_the_recording(
    program: Program, tmp_path: Path, harm: str, when: str
) -> None:
    """The process goes on, one line says why, and what the rings held is counted as lost, exactly."""
    act, reason = HARMS[harm]
    done = recorded(
        program,
        f"""
c.capture_start(path, {{}}, ring_bytes=16 << 20)
[ring] = [os.path.join(rings, name) for name in os.listdir(rings)]
c.capture_record(True)
emitted, threads = c.capture_emit(2, 500), 2
c.capture_sync()
kept = emitted + threads
if {when == "busy"}:
    found = []
    counters = bytearray(8 * 4)
    emitter = threading.Thread(target=lambda: found.append(c.capture_emit(4, 20_000, 2, counters, 50)))
    emitter.start()
    wait_for(lambda: any(counters))
    {act}
    emitter.join()  # all four went to their end
    emitted, threads = emitted + found[0], threads + 4
else:
    {act}
    emitted, threads = emitted + c.capture_emit(2, 500), threads + 2  # at once: recorded, or not any more
warning = []
wait_for(lambda: warning.append(c.capture_warning()) or warning[-1])
print(warning[-1])
assert c.capture_emit(1, 1) == 0
counts = c.capture_counts()
assert c.capture_warning() is None and c.capture_stop() == ""
print(kept, emitted, threads, counts["events"] + counts["lost_events"])
""",
    )
    warning, numbers = done.stdout.splitlines()
    kept, emitted, threads, published = map(int, numbers.split())
    assert re.match(f"recording ended: its ring file ({reason})", warning), warning
    events, samples, end = counted(tmp_path / "t.cmem")
    assert end[1:3] == ("complete", warning)
    assert events >= kept
    # A thread that came too late has recorded nothing, not its own event either.
    assert emitted <= events + end[4] <= emitted + threads
    assert published == events + samples + end[4]
    assert list((tmp_path / "rings").iterdir()) == []


def test_the_next_capture_records_again(program: Program, tmp_path: Path) -> None:
    """Many of them: each stands before the program's handler anew. In private memory nothing counts as taken away."""
    done = recorded(
        program,
        """
for i in range(40):
    c.capture_start(path, {}, overwrite=True, ring_bytes=1 << 20)
    [ring] = [os.path.join(rings, name) for name in os.listdir(rings)]
    c.capture_record(True)
    assert c.capture_emit(1, 10) == 20
    os.truncate(ring, 0)
    c.capture_emit(1, 10_000)  # touches what is gone
    assert "was truncated" in c.capture_stop()
    assert not caught()
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))  # no ring file
c.capture_start(path, {}, overwrite=True)
c.capture_record(True)
assert c.capture_emit(1, 10) == 20
looks(1)
print(c.capture_stop())
""",
    )
    assert done.stdout == f"no ring file can be made in {tmp_path}/rings (File too large): another place was taken\n"
    assert _core.trace_meta(str(tmp_path / "t.cmem"))["ring.place"] == "private"
    assert counted(tmp_path / "t.cmem")[0] == 21


# The program's own SIGBUS: each runs bare and recorded. start() records from there on, look() lets the collector look.
OWN_FAULT = """
file = open(path + ".own", "w+b"); file.truncate(8192)
own = mmap.mmap(file.fileno(), 8192)
os.truncate(path + ".own", 0)
"""
SIGBUS = {
    "fault": f"start(); look()\n{OWN_FAULT}\nown[5000]",
    "fault, faulthandler before": f"faulthandler.enable(); start(); look()\n{OWN_FAULT}\nown[5000]",
    "fault, faulthandler after": f"start(); faulthandler.enable()\n{OWN_FAULT}\nown[5000]",
    "fault, faulthandler seen": f"start(); faulthandler.enable(); look()\n{OWN_FAULT}\nown[5000]",
    "fault, faulthandler off and on": (
        "start(); faulthandler.enable(); look(); faulthandler.disable(); look(); faulthandler.enable(); look()\n"
        f"{OWN_FAULT}\nown[5000]"
    ),
    "fault in a forked child": f"start(); look()\n{OWN_FAULT}\npid = os.fork()\nif pid == 0: own[5000]\n"
    "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    "kill": "start(); look(); os.kill(os.getpid(), signal.SIGBUS); time.sleep(60)",
    "kill from outside": "start(); look(); subprocess.run(['sh', '-c', 'kill -BUS $PPID']); time.sleep(60)",
    "raise": "start(); look(); signal.raise_signal(signal.SIGBUS)",
    "raise, faulthandler": "start(); faulthandler.enable(); look(); signal.raise_signal(signal.SIGBUS)",
    "kill, handled": """
def handle(number, frame): print("handled", number, flush=True)
signal.signal(signal.SIGBUS, handle)
start(); look()
for _ in range(3): os.kill(os.getpid(), signal.SIGBUS)
look(); os.kill(os.getpid(), signal.SIGBUS)
print(signal.getsignal(signal.SIGBUS) is handle)
""",
    "kill, handled later": """
start(); look()
print(signal.getsignal(signal.SIGBUS))
for i in range(20):
    def handle(number, frame, i=i): print("handled", i, flush=True)
    print(signal.signal(signal.SIGBUS, handle) is not None)
    if i % 10 == 0: look()
    os.kill(os.getpid(), signal.SIGBUS)
print(signal.signal(signal.SIGBUS, signal.SIG_DFL) is handle)
look(); os.kill(os.getpid(), signal.SIGBUS); time.sleep(60)
""",
    "from outside, handled": """
signal.signal(signal.SIGBUS, lambda number, frame: print("handled", flush=True))
start(); look()
for _ in range(5): subprocess.run(["sh", "-c", "kill -BUS $PPID"], check=True)
""",
    "ignored": """
signal.signal(signal.SIGBUS, signal.SIG_IGN)
start(); look()
os.kill(os.getpid(), signal.SIGBUS)
print(signal.getsignal(signal.SIGBUS), caught())
ignored = subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True).stdout.split()[1]
print(int(ignored, 16) & (1 << 31) - 1)  # above are signals of glibc's own, which depend on whether there was a thread
""",
    "waited for": """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGBUS])
start(); look()
for _ in range(5):
    subprocess.run(["sh", "-c", "kill -BUS $PPID"], check=True)
    print(signal.sigwait([signal.SIGBUS]))
""",
    "of a program that is started": "start(); look()\n"
    "print(subprocess.run(['grep', 'SigCgt', '/proc/self/status'], capture_output=True, text=True).stdout)",
}


@pytest.mark.parametrize("case", SIGBUS)
def test_sigbus_of_the_program(program: Program, tmp_path: Path, case: str) -> None:
    """Ends, output and tracebacks are those of the same program without a recording."""
    text = """
def start():
    if sys.argv[1] == "recorded":
        c.capture_start(path, {}, ring_bytes=1 << 20)
        c.capture_record(True)
def look():
    if sys.argv[1] == "recorded":
        looks(1)
""" + SIGBUS[case]  # fmt: skip

    def run(how: str) -> tuple[int, str, str]:
        done = recorded(program, text, how, check=False)
        (tmp_path / "t.cmem.own").unlink(missing_ok=True)
        # From 3.14 on faulthandler adds the C stack: addresses that differ between two runs, and our handler's frames.
        python_only = re.sub(r"\nCurrent thread's C stack trace .*", "", done.stderr, flags=re.DOTALL)
        return done.returncode, done.stdout, re.sub(r"0x[0-9a-f]{16}", "0xTHREAD", python_only)

    bare, ours = run("bare"), run("recorded")
    assert bare == ours
    fatal = case.startswith(("fault", "kill", "raise")) and "handled" not in case and "forked" not in case
    assert (bare[0] == -7) is (fatal or case == "kill, handled later"), bare
    assert (tmp_path / "t.cmem").exists()


def test_what_stood_there_is_put_back(program: Program) -> None:
    """At stop, and in a forked child at once."""
    recorded(
        program,
        """
assert not caught()
c.capture_start(path, {})
assert caught()
pid = os.fork()
if pid == 0:
    os._exit(int(caught()))
assert os.waitpid(pid, 0)[1] == 0 and caught()
c.capture_stop()
assert not caught()
""",
    )


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "just now"])
def test_a_ring_is_taken_away_under_faulthandler(program: Program, tmp_path: Path, seen: bool) -> None:
    """Installed after us: until the collector's next look the fault comes to it first, which then raises it to us."""
    done = recorded(
        program,
        f"""
c.capture_start(path, {{}}, ring_bytes=1 << 20)
[ring] = [os.path.join(rings, name) for name in os.listdir(rings)]
c.capture_record(True)
faulthandler.enable()
if {seen}:
    looks(1)
for _ in range(20):
    os.truncate(ring, 0)
    c.capture_emit(2, 5000)
print(c.capture_stop())
""",
        check=seen,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("recording ended: its ring file was truncated")
