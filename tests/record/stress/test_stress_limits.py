"""Little memory, no descriptors, short files: recording does not start, or goes on; the program always does."""

import subprocess

import pytest


@pytest.mark.parametrize("more", [1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64])
def test_little_address_space(child, more):
    """RLIMIT_AS that leaves so many MiB: either one line says why there is no recording, or there is one."""
    answer = child(
        """
import resource
core.frames_init()
here = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (here + (int(sys.argv[1]) << 20),) * 2)
why, published = "", -1
try:
    with cuptimem.profile("run.cmem"):
        published = core.capture_emit(1, 100)
except (cuptimem.Error, MemoryError, OSError) as error: why = f"{type(error).__name__}: {error}"
say(why=why, published=published, active=core.capture_active(), tasks=tasks().count("cuptimem"))
""",
        more,
    )
    assert answer["active"] is False and answer["tasks"] == 0
    assert (answer["why"] == "") == (answer["published"] >= 0), answer
    assert "\n" not in answer["why"] and "Traceback" not in answer["stderr"]


def test_address_space(child):
    """What docs/limits.md says that a capture takes, and that so much is enough under a limit."""
    answer = child(
        """
import resource
core.frames_init()
def size(): return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
before = size()
resource.setrlimit(resource.RLIMIT_AS, (before + (int(sys.argv[1]) << 20),) * 2)
core.capture_start("run.cmem", {})
core.capture_record(True)
published = core.capture_emit(1, 10_000)
core.capture_sync()
taken = size() - before
core.capture_stop()
say(published=published, taken=taken, place=core.trace_meta("run.cmem")["ring.place"],
    kept=sum(e[0] in ("alloc", "free") for e in core.trace_dump("run.cmem")))
""",
        LIMIT_MIB,
    )
    assert (answer["published"], answer["kept"], answer["place"]) == (20_000, 20_000, "chosen")
    assert answer["taken"] <= LIMIT_MIB << 20


LIMIT_MIB = 40  # 24 of our own, a thread's stack of the test's own, and what malloc takes

FAIL_MAPS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
static int left = -1;
void fail_map_after(int n) { left = n; }
static int fails(void) { return left >= 0 && left-- == 0; }
void *mmap(void *a, size_t n, int p, int f, int fd, off_t o)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "mmap");
    if (fails()) { errno = ENOMEM; return MAP_FAILED; }
    return real(a, n, p, f, fd, o);
}
void *mmap64(void *a, size_t n, int p, int f, int fd, off_t o) { return mmap(a, n, p, f, fd, o); }
"""


def test_every_mapping_may_fail(child, tmp_path):
    """The n-th mmap of a start fails, for every n: an error or a recording, and the next start works."""
    (tmp_path / "maps.c").write_text(FAIL_MAPS)
    library = tmp_path / "maps.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "maps.c", "-ldl"], check=True)
    answer = child(
        """
import ctypes
fail = ctypes.CDLL(os.environ["LD_PRELOAD"]).fail_map_after
core.frames_init()
bad, refused, started = [], 0, 0
for n in range(40):
    fail(n)
    try:
        core.capture_start("run.cmem", {}, overwrite=True)
        started += 1
    except (core.Error, MemoryError): refused += 1
    fail(-1)
    if core.capture_active():
        core.capture_record(True)
        if core.capture_emit(2, 10) != 40: bad.append((n, "events"))
        core.capture_record(False); core.capture_stop()
    if tasks().count("cuptimem"): bad.append((n, "thread"))
    with cuptimem.profile("after.cmem", overwrite=True): published = core.capture_emit(1, 10)
    if published != 20 or heap("after.cmem")["allocations"] != 10: bad.append((n, published))
say(bad=bad, refused=refused, started=started)
""",
        LD_PRELOAD=str(library),
    )
    assert answer["bad"] == [] and answer["refused"] >= 2 and answer["started"] >= 10
    assert list((tmp_path / "rings").iterdir()) == []


def test_no_descriptors_left(child):
    answer = child(
        """
import resource
core.frames_init()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held, results = [], []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
for free in range(7):
    try:
        with cuptimem.profile("run.cmem", overwrite=True): n = core.capture_emit(1, 50)
        results.append(n)
    except (cuptimem.Error, OSError) as error: results.append(str(error))
    if core.capture_active(): results.append("left over")
    os.close(held.pop())
say(results=results)
"""
    )
    assert "left over" not in answer["results"]
    assert isinstance(answer["results"][0], str) and "\n" not in answer["results"][0]
    assert answer["results"][-1] == 100 and "Traceback" not in answer["stderr"]


def test_descriptors_run_out_while_recording(child):
    answer = child(
        """
import resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
with cuptimem.profile("run.cmem") as prof:
    try:
        while True: held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError: pass
    n = core.capture_emit(4, 500)
    time.sleep(0.6)
    n += core.capture_emit(4, 500, first=10)
    for fd in held: os.close(fd)
found = heap("run.cmem")
say(n=n, found=found["allocations"] + found["frees"], lost=found["lost"], complete=prof.report.complete)
"""
    )
    assert answer["n"] == answer["found"] == 8000 and answer["lost"] == 0 and answer["complete"]


@pytest.mark.parametrize("kib", [0, 4, 64, 1024, 17 * 1024])
def test_short_files(child, kib):
    """RLIMIT_FSIZE: recording ends with one warning, or does not begin; no SIGXFSZ kills the program."""
    answer = child(
        """
import resource, signal
core.frames_init()
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)        # Python ignores it; a program may not
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]) << 10, resource.RLIM_INFINITY))
why, n = "", 0
try:
    with cuptimem.profile("run.cmem") as prof:
        for i in range(60): n += core.capture_emit(2, 2000, first=2 * i)
except cuptimem.Error as error: why = str(error)
alive = True
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
say(why=why, n=n, active=core.capture_active(), alive=alive, size=os.path.getsize("run.cmem") if not why else 0)
""",
        kib,
    )
    assert answer["alive"] and not answer["active"] and "\n" not in answer["why"]
    assert answer["size"] <= kib << 10
    said = [line for line in answer["stderr"].splitlines() if line.startswith("cuptimem:")]
    # Where the ring file came to lie is one thing, that the recording has ended another.
    assert len([line for line in said if "another place" not in line]) <= 1, said
    assert len(said) <= 2, said
    if kib <= 64:
        assert answer["why"] or said, "it ended, and nobody said so"
