"""The capture from Python: what it records, where it puts things, and how it ends."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capture_support import Program

from cuptimem import _core

Event = tuple[Any, ...]


def events(path: Path, *kinds: str) -> list[Event]:
    return [event for event in _core.trace_dump(str(path)) if event[0] in kinds]


def end(path: Path) -> Event:
    last = _core.trace_dump(str(path))[-1]
    assert last[0] == "end"
    return last


def test_what_python_emits(program: Program, tmp_path: Path) -> None:
    done = program("""
        c.frames_init()
        class Thing: pass
        thing = Thing()
        c.capture_start(path, {"key": "välue", "pid": str(os.getpid())})
        c.tick(1, thing)  # not recording yet
        c.capture_record(True)
        def step(): c.tick(2, thing)
        step()
        c.mark(3, 7)
        c.object_new(1, thing)
        c.object_new(2, thing, True)
        c.seed(4096, 100, 1, 3)
        c.capture_record(False)
        c.tick(1, thing)
        print(repr(c.capture_stop()), id(thing), os.getpid())
    """)
    warning, address, pid = done.stdout.split()
    trace = tmp_path / "t.cmem"
    assert warning == "''"
    got = [event for event in _core.trace_dump(str(trace)) if event[0] != "sample"]
    assert [event[0] for event in got] == ["thread", "tick", "mark", "object_new", "object_new", "seed", "end"]
    thread, tick, mark, new, old, seed, _ = got
    assert thread[3] == int(pid)
    assert tick[3:5] == (int(address), 2)
    assert [frame[2] for frame in tick[5]] == ["step", "<module>"]
    assert mark[3:5] == (7, 3)
    assert (new[3:7], old[3:7]) == ((int(address), 1, "Thing", 0), (int(address), 2, "Thing", 4))
    assert (seed[3:5], seed[7:9]) == ((4096, 100), (1, 3))
    meta = _core.trace_meta(str(trace))
    assert meta["key"] == "välue" and meta["ring.place"] == "chosen"
    assert end(trace)[1:3] == ("complete", "")


def test_counts(program: Program, tmp_path: Path) -> None:
    done = program("""
        import json
        c.capture_start(path, {})
        c.capture_record(True)
        emitted = c.capture_emit(3, 1000)
        c.capture_sync()
        running = c.capture_counts()
        c.capture_stop()
        print(json.dumps([emitted, running, c.capture_counts()]))
    """)
    emitted, running, last = json.loads(done.stdout)
    trace = tmp_path / "t.cmem"
    assert emitted == 6000 == len(events(trace, "alloc", "free"))
    assert last["events"] == len(_core.trace_dump(str(trace))) - 1
    assert running["lost_events"] == last["lost_events"] == 0
    assert running["bytes_written"] < last["bytes_written"] == trace.stat().st_size
    assert 16 << 20 < running["profiler_bytes"] < 24 << 20


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("path", "cannot create the trace {path}: File exists (choose another path, or say that it may be replaced)"),
        ("path + '/x'", "cannot create the trace {path}/x: Not a directory (choose another path)"),
        ("rings + '/no/x'", "cannot create the trace {rings}/no/x: No such file or directory (its folder must exist)"),
        ("rings", "cannot create the trace {rings}: File exists (choose another path, or say that it may be replaced)"),
    ],
)
def test_a_refused_start_leaves_nothing(program: Program, tmp_path: Path, arguments: str, message: str) -> None:
    done = program(f"""
        open(path, "w").write("mine")
        try:
            c.capture_start({arguments}, {{}})
        except c.Error as error:
            print(error)
        assert open(path).read() == "mine" and os.listdir(rings) == [] and not c.capture_active()
        c.capture_start(path, {{}}, overwrite=True)
        try:
            c.capture_start(path + "2", {{}})
        except c.Error as error:
            print(error)
        c.capture_stop()
    """)
    expected = message.format(path=tmp_path / "t.cmem", rings=tmp_path / "rings")
    assert done.stdout.splitlines() == [expected, "a capture is already running in this process"]
    assert end(tmp_path / "t.cmem")[1] == "complete"


@pytest.mark.parametrize("size", [1, (1 << 20) - 1, (1 << 30) + 1])
def test_a_ring_size_that_cannot_be(program: Program, size: int) -> None:
    done = program(f"""
        try:
            c.capture_start(path, {{}}, ring_bytes={size})
        except c.Error as error:
            print(error)
        assert not os.path.exists(path)
    """)
    assert done.stdout == "ring_bytes must be from 1048576 to 1073741824\n"


def test_the_size_bound_ends_the_recording_where_nothing_can_be_folded(program: Program, tmp_path: Path) -> None:
    """Its side file cannot be made (test_capture_tail.py has the rest)."""
    (tmp_path / "t.cmem.tail").write_text("somebody's")
    done = program("""
        import json
        c.capture_start(path, {}, max_size=200_000)
        c.capture_record(True)
        emitted = 0
        for i in range(1000):
            emitted += c.capture_emit(1, 5000, i)
            try:
                c.capture_sync()
            except c.Error:
                break
        warnings = [c.capture_warning(), c.capture_warning()]
        c.capture_record(True)  # stays off
        assert c.capture_emit(1, 10) == 0
        print(json.dumps([emitted, warnings, c.capture_stop(), c.capture_counts()]))
    """)
    emitted, warnings, stopped, counts = json.loads(done.stdout)
    trace = tmp_path / "t.cmem"
    bound = "recording ended: the trace has reached its bound of 0.2 MiB (max_size), and its side file (.tail) "
    assert warnings == [bound + "cannot be made: File exists", None]
    assert stopped == ""
    assert 100_000 < trace.stat().st_size <= 220_000  # soft: the batch that passed it is whole
    assert end(trace)[1:3] == ("complete", warnings[0])
    # What was published and found no room in the file is told as lost.
    in_file = len(_core.trace_dump(str(trace))) - 1
    assert counts["events"] - in_file == end(trace)[4] > 0
    assert list((tmp_path / "rings").iterdir()) == []


REFUSALS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

static int refuses(const char *what)
{
    const char *wish = getenv("REFUSED");
    return wish != NULL && strcmp(wish, what) == 0;
}

int madvise(void *memory, size_t length, int advice)
{
    if (advice == MADV_DONTFORK && refuses("madvise")) {
        errno = EPERM;
        return -1;
    }
    return ((int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise"))(memory, length, advice);
}

ssize_t getrandom(void *to, size_t length, unsigned flags)
{
    if (refuses("getrandom")) {
        errno = ENOSYS;
        return -1;
    }
    return ((ssize_t (*)(void *, size_t, unsigned))dlsym(RTLD_NEXT, "getrandom"))(to, length, flags);
}
"""


@pytest.mark.parametrize(
    "call, reason",
    [
        ("madvise", "the rings cannot be kept from forked processes, madvise(MADV_DONTFORK) is refused: Operation not"),
        ("getrandom", "the rings get no number, getrandom is refused: Function not implemented"),
    ],
)
def test_a_system_call_that_is_refused_is_named(program: Program, tmp_path: Path, call: str, reason: str) -> None:
    """As a container's rules may have it."""
    library = tmp_path / "refusals.so"
    (tmp_path / "refusals.c").write_text(REFUSALS)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "refusals.c", "-ldl"], check=True)
    done = program(
        """
        try:
            c.capture_start(path, {})
        except c.Error as error:
            print(error)
        assert not os.path.exists(path) and os.listdir(rings) == [] and c.capture_warning() is None
        """,
        LD_PRELOAD=f"{os.environ.get('LD_PRELOAD', '')}:{library}",  # a sanitizer's library comes first
        REFUSED=call,
    )
    assert done.stdout.startswith(reason) and done.stdout.count("\n") == 1


SECOND = (
    "import sys; from cuptimem import _core as c; c.capture_start(sys.argv[1], {}, overwrite=True); c.capture_stop()"
)

HARMS = {
    "removed": ("os.unlink(path)", "its trace was removed"),
    "replaced": ("open(path + '2', 'w').write('theirs'); os.replace(path + '2', path)", "its trace was replaced"),
    "taken": ("subprocess.run([sys.executable, '-c', SECOND, path])", "its trace was replaced"),
    "truncated": ("os.truncate(path, os.path.getsize(path) // 2)", "its trace was truncated"),
    "emptied": ("open(path, 'w').close()", "its trace was truncated"),
    "appended": ("open(path, 'ab').write(b'theirs')", "another process writes to its trace"),
    "overwritten": ("open(path, 'r+b').write(bytes(1 << 20))", "another process writes to its trace"),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("quiet", [False, True], ids=["busy", "quiet"])
def test_harm_to_the_trace_is_noticed_while_it_is_recorded(
    program: Program, tmp_path: Path, harm: str, quiet: bool
) -> None:
    """Not at the end, and what is theirs stays as they made it."""
    act, reason = HARMS[harm]
    done = program(f"""
        import subprocess
        SECOND = {SECOND!r}
        c.capture_start(path, {{}})
        c.capture_record(True)
        c.capture_emit(1, 500)
        c.capture_sync()
        c.fork_before()  # else a chunk may be on its way between a look at the file and its end
        {act}
        harmed = open(path, "rb").read() if os.path.exists(path) else None
        c.fork_parent()
        warning, end = None, time.monotonic() + 60
        while warning is None and time.monotonic() < end:
            if not {quiet}:
                c.capture_emit(1, 500)
            time.sleep(0.01)
            warning = c.capture_warning()
        print(warning)
        assert c.capture_emit(1, 1) == 0  # nothing records any more
        assert c.capture_warning() is None and c.capture_stop() == ""
        assert (open(path, "rb").read() if os.path.exists(path) else None) == harmed
        assert [name for name in os.listdir(rings)] == []
    """)
    assert done.stdout.startswith(f"recording ended: {reason}") and done.stdout.endswith(f" ({tmp_path}/t.cmem)\n")


def test_what_a_start_drops_is_counted_and_said_once(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20 killed captures whose traces were moved the 16 newest are kept, for readers anywhere."""
    (tmp_path / "state").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    done = program(
        """
        for i in range(20):
            pid = os.fork()
            if pid == 0:
                c.capture_start(f"{path}.{i}", {}, ring_bytes=1 << 20)
                c.capture_record(True)
                c.capture_emit(1, 10)
                os.rename(f"{path}.{i}", f"{path}.moved{i}")
                os.kill(os.getpid(), signal.SIGKILL)
            os.waitpid(pid, 0)
            for name in os.listdir(rings):  # the next one finds none to sweep
                os.rename(f"{rings}/{name}", f"{path}.ring{i}")
        for i in range(20):
            os.rename(f"{path}.ring{i}", f"{rings}/.cuptimem-ring-{i:x}")
        c.capture_start(path, {})
        print(c.capture_warning())
        assert c.capture_warning() is None and c.capture_stop() == ""
        c.capture_start(path, {}, overwrite=True)
        assert c.capture_warning() is None and c.capture_stop() == ""
        """
    )
    assert done.stdout.startswith("the last events of 4 killed programs were removed, ")
    assert done.stdout.endswith(
        f" 16 newest, of at most 256 MiB, are kept for 7 days in {tmp_path}/state/cuptimem/rings\n"
    )
    assert len(list((tmp_path / "state/cuptimem/rings").iterdir())) == 16
    states = [end(path)[1] for path in tmp_path.glob("t.cmem.moved*")]
    assert (states.count("recovered"), states.count("cut")) == (16, 4)


def test_a_trace_that_is_renamed_is_written_on(program: Program, tmp_path: Path) -> None:
    done = program("""
        c.capture_start(path, {})
        c.capture_record(True)
        emitted = c.capture_emit(1, 500)
        os.rename(path, path + "2")
        wakes = c.capture_counts()["wakes"]
        end = time.monotonic() + 60
        while c.capture_counts()["wakes"] < wakes + 15 and time.monotonic() < end:  # more than a second's
            emitted += c.capture_emit(1, 100)
            time.sleep(0.1)
        assert c.capture_warning() is None and c.capture_stop() == ""
        print(emitted)
    """)
    assert len(events(tmp_path / "t.cmem2", "alloc", "free")) == int(done.stdout)
    assert end(tmp_path / "t.cmem2")[1:3] == ("complete", "")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("mounting is refused here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk(program: Program, small_disk: Path, tmp_path: Path) -> None:
    """One warning, a readable file, and what the file lacks is still in the ring."""
    trace = small_disk / "t.cmem"
    done = program(
        """
        import json
        path = sys.argv[1]
        c.capture_start(path, {})
        c.capture_record(True)
        emitted = 0
        for i in range(1000):
            emitted += c.capture_emit(1, 5000, i)
            try:
                c.capture_sync()
            except c.Error:
                break
        warnings = [c.capture_warning(), c.capture_warning()]
        c.capture_stop()
        print(json.dumps([emitted, warnings, c.capture_counts()["events"]]))
        """,
        trace,
    )
    emitted, warnings, published = json.loads(done.stdout)
    assert warnings == ["recording ended: the trace cannot be written (No space left on device)", None]
    last = end(trace)
    if last[1] == "complete":  # the end chunk found room: it says what is not there
        assert last[2] == warnings[0]
        assert published == len(_core.trace_dump(str(trace))) - 1 + last[4]
    else:
        assert last[1] == "recovered"
        assert emitted == len(events(trace, "alloc", "free"))


def test_a_limit_on_file_sizes(program: Program, tmp_path: Path) -> None:
    """RLIMIT_FSIZE: no ring file can be made, the trace ends at the limit, and no SIGXFSZ kills anybody."""
    done = program("""
        import json, resource
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        c.capture_start(path, {}, ring_dir=rings)
        first = c.capture_warning()
        c.capture_record(True)
        for i in range(1000):
            c.capture_emit(1, 5000, i)
            try:
                c.capture_sync()
            except c.Error:
                break
        print(json.dumps([first, c.capture_warning(), c.capture_stop()]))
    """)
    first, second, _ = json.loads(done.stdout)
    assert first == f"no ring file can be made in {tmp_path}/rings (File too large): another place was taken"
    assert second == "recording ended: the trace cannot be written (File too large)"
    trace = tmp_path / "t.cmem"
    assert _core.trace_meta(str(trace))["ring.place"] == "private"
    assert end(trace)[1] in ("complete", "cut")
    assert len(events(trace, "alloc")) > 1000


def test_where_rings_lie(program: Program, tmp_path: Path) -> None:
    program(
        """
        def place(**options):
            c.capture_start(path, {}, overwrite=True, **options)
            meta = c.trace_meta(path)
            warning = c.capture_warning()
            assert c.capture_stop() == ""
            return meta["ring.place"], os.path.dirname(meta["ring.path"]), warning
        other = rings + "/other"
        os.mkdir(other)
        assert place() == ("chosen", rings, None)
        assert place(ring_dir=other) == ("chosen", other, None)
        kind, folder, warning = place(ring_dir=rings + "/none")
        assert (kind, folder) == ("shared", "/dev/shm")
        assert warning.startswith(f"no ring file can be made in {rings}/none (No such file or directory)")
        del os.environ["CUPTIMEM_RING_DIR"]
        """
    )
    done = program(
        "c.capture_start(path + '2', {}); print(c.trace_meta(path + '2')['ring.path']); c.capture_stop()",
        CUPTIMEM_RING_DIR="",
    )
    assert done.stdout.startswith("/dev/shm/")


def test_reading_while_it_is_written(program: Program, tmp_path: Path) -> None:
    program("""
        def read():
            dump = c.trace_dump(path)
            return [event for event in dump if event[0] in ("alloc", "free")], dump[-1][1]
        c.capture_start(path, {})
        c.capture_record(True)
        c.capture_emit(1, 100)
        c.capture_sync()
        assert (len(read()[0]), read()[1]) == (200, "recording")
        # Quiet or not, the file follows by itself.
        c.capture_emit(1, 100, 1)
        deadline = time.monotonic() + 100
        while len(read()[0]) < 400 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(read()[0]) == 400
        # Reading it in its own process has not unlocked the ring for others.
        import subprocess
        reader = "import sys; from cuptimem import _core as c; print(c.trace_dump(sys.argv[1])[-1][1])"
        assert subprocess.check_output([sys.executable, "-c", reader, path], text=True) == "recording\\n"
        c.capture_stop()
        assert (len(read()[0]), read()[1]) == (400, "complete")
    """)


def test_user_code_that_closes_our_descriptors(program: Program) -> None:
    """os.closerange takes the lock with it; it is taken again, and nobody else's descriptor is closed."""
    program("""
        import subprocess
        c.capture_start(path, {})
        c.capture_record(True)
        c.capture_emit(1, 100)
        c.capture_sync()
        ours = [fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")
                and rings in os.readlink(f"/proc/self/fd/{fd}")]
        assert len(ours) == 1
        os.close(int(ours[0]))
        mine = os.open("/dev/null", os.O_RDONLY)
        assert mine <= int(ours[0])
        reader = "import sys; from cuptimem import _core as c; print(c.trace_dump(sys.argv[1])[-1][1])"
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            if subprocess.check_output([sys.executable, "-c", reader, path], text=True) == "recording\\n":
                break
        else:
            raise SystemExit("never locked again")
        c.capture_stop()
        os.fstat(mine)
        assert c.trace_dump(path)[-1][1] == "complete" and os.listdir(rings) == []
    """)


def test_user_code_that_opens_and_closes_the_ring_file(program: Program) -> None:
    """Closing any descriptor of a file drops the process's locks on it: ours is taken again."""
    program("""
        import subprocess
        c.capture_start(path, {})
        (name,) = os.listdir(rings)
        ring = os.path.join(rings, name)
        ask = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        def is_locked():
            return subprocess.run([sys.executable, "-c", ask, ring], stderr=subprocess.DEVNULL).returncode != 0
        assert is_locked()
        open(ring, "rb").close()
        deadline = time.monotonic() + 100
        while not is_locked():
            assert time.monotonic() < deadline, "never locked again"
        c.capture_stop()
    """)


def test_the_collector_blocks_all_signals(program: Program) -> None:
    """A signal sent to the process interrupts the main thread's blocking call, every time."""
    program("""
        c.capture_start(path, {})
        def masks():
            for task in os.listdir("/proc/self/task"):
                fields = dict(line.split(":", 1) for line in open(f"/proc/self/task/{task}/status"))
                yield fields["Name"].strip(), int(fields["SigBlk"], 16)
        while "cuptimem" not in dict(masks()):  # it names itself when it first runs
            time.sleep(0.01)
        # All but SIGKILL and SIGSTOP, SIGBUS for a fault of its own, and the two that the C library keeps for itself.
        while dict(masks())["cuptimem"] >> (signal.SIGBUS - 1) & 1:  # the last thing before its work
            time.sleep(0.01)
        mask = dict(masks())["cuptimem"]
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGBUS}:
            assert mask >> (number - 1) & 1, number
        hits = []
        class Hit(Exception): pass
        def hit(*_): raise Hit
        signal.signal(signal.SIGALRM, hit)
        for _ in range(50):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002)  # to the process, whichever thread takes it
                time.sleep(20)
            except Hit:
                hits.append(1)
        assert len(hits) == 50
        c.capture_stop()
    """)


@pytest.mark.parametrize(
    "last", ["os._exit(0)", "os.execv('/bin/true', ['true'])", "os.abort()", "os.kill(os.getpid(), 9)"]
)
def test_a_process_that_just_ends(program: Program, tmp_path: Path, last: str) -> None:
    program(f"c.capture_start(path, {{}}); c.capture_record(True); c.capture_emit(2, 500); {last}", check=False)
    trace = tmp_path / "t.cmem"
    assert len(list((tmp_path / "rings").iterdir())) == 1
    assert end(trace)[1] == "recovered"
    assert len(events(trace, "alloc", "free")) == 2000
    # The next capture with its rings there brings the tail home.
    program("path += '2'; c.capture_start(path, {}); c.capture_stop()")
    assert list((tmp_path / "rings").iterdir()) == []
    assert end(trace)[1:3] == ("recovered", "recovered")
    assert len(events(trace, "alloc", "free")) == 2000


def test_a_trace_without_its_ring_says_so(program: Program, tmp_path: Path) -> None:
    program("c.capture_start(path, {}); c.capture_record(True); c.capture_emit(1, 50); os._exit(0)", check=False)
    shutil.rmtree(tmp_path / "rings")
    assert end(tmp_path / "t.cmem")[1] == "cut"


def test_no_thread_of_ours_is_left_for_a_fork(program: Program, tmp_path: Path) -> None:
    program("""
        import warnings
        warnings.simplefilter("error")
        def tasks(): return len(os.listdir("/proc/self/task"))
        def become(wanted):  # one that samples processes comes and goes
            end = time.monotonic() + 60
            while tasks() != wanted: assert time.monotonic() < end
        c.capture_start(path, {})
        c.capture_record(True)
        become(2)
        for i in range(30):
            c.fork_before()
            assert tasks() == 1
            c.capture_emit(1, 10, i)
            child = os.fork()
            if child == 0:
                assert not c.capture_active()
                c.fork_parent()
                assert tasks() == 1 and c.capture_emit(1, 10) == 0
                if i % 3 == 0:
                    c.capture_start(f"{path}.{i}", {})
                    c.capture_record(True)
                    assert c.capture_emit(1, 10) == 20
                    assert c.capture_stop() == ""
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            if i % 2:
                c.capture_sync()  # works without the thread too
            c.fork_parent()
            become(2)
        c.fork_before()
        c.capture_emit(1, 10, 30)
        assert c.capture_stop() == ""
    """)
    assert len(events(tmp_path / "t.cmem", "alloc", "free")) == 31 * 20
    assert end(tmp_path / "t.cmem")[1:3] == ("complete", "")
    for i in range(0, 30, 3):
        assert len(events(tmp_path / f"t.cmem.{i}", "alloc", "free")) == 20
    assert list((tmp_path / "rings").iterdir()) == []


def test_the_collector_sleeps_while_nothing_is_published(program: Program) -> None:
    """Then it wakes twice a second at most; what comes afterwards is in the file without being asked for."""
    done = program("""
        def wait_until(condition):
            end = time.monotonic() + 60
            while not condition() and time.monotonic() < end:
                time.sleep(0.05)
        def in_file():
            return sum(row[0] in ("alloc", "free") for row in c.trace_dump(path))
        c.capture_start(path, {})
        c.capture_record(True)
        c.mark(1)  # of a thread that lives on
        c.capture_emit(2, 500)
        def is_quiet():  # when that begins is up to how soon the collector gets its turns
            first, begin = c.capture_counts()["wakes"], time.monotonic()
            time.sleep(3)
            last, end = c.capture_counts()["wakes"], time.monotonic()
            return last - first <= (end - begin) / 0.5 + 1 and c.capture_counts()["ring_blocks_used"] == 0
        assert any(is_quiet() for _ in range(10))
        before = in_file()
        c.capture_emit(1, 10)
        wait_until(lambda: in_file() == before + 20)
        print(before, in_file(), c.capture_stop() == "")
    """)
    assert done.stdout.split() == ["2000", "2020", "True"]


def test_without_cuda_the_collector_is_our_only_thread(program: Program) -> None:
    done = program("""
        import cuptimem
        def threads():
            return sorted(open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task"))
        before = threads()
        with cuptimem.profile(path):
            time.sleep(1)
            during = threads()
        during.remove("cuptimem\\n")
        print(during == before)
    """)
    assert done.stdout == "True\n"


def test_resident_memory_is_sampled(program: Program, tmp_path: Path) -> None:
    program("""
        def wait_for_a_sample(least):  # the collector may have no turn for a while
            end = time.monotonic() + 60
            while time.monotonic() < end:
                time.sleep(0.05)
                c.capture_sync()
                sizes = [row[4] for row in c.trace_dump(path) if row[0] == "sample"]
                if sizes and sizes[-1] - sizes[0] >= least:
                    return
        c.capture_start(path, {})
        c.capture_record(True)
        wait_for_a_sample(0)
        block = bytearray(64 << 20)
        wait_for_a_sample(60 << 20)
        c.capture_stop()
    """)
    samples = events(tmp_path / "t.cmem", "sample")
    sizes = [sample[4] for sample in samples]
    assert {(sample[2], sample[3]) for sample in samples} == {(0, 1)}
    assert max(sizes) - min(sizes) >= 60 << 20


def test_stop_without_start_and_twice(program: Program) -> None:
    program("""
        assert c.capture_stop() == "" and not c.capture_active() and c.capture_warning() is None
        c.capture_sync(); c.capture_record(True); c.mark(1)
        c.capture_start(path, {})
        assert c.capture_active()
        assert c.capture_stop() == c.capture_stop() == ""
    """)
