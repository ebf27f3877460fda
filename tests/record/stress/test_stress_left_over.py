"""What killed processes leave beside a trace is removed by the next run there, and nothing else is."""

import os
import time
from pathlib import Path

from cuptimem import naming


def test_files_of_the_dead_go_and_those_of_the_living_stay(child, tmp_path):
    answer = child(
        """
import shutil, time
from cuptimem import tempfiles as aside
pid = os.fork()
if pid == 0:
    open(aside.name(os.getcwd()), "w").close()
    os._exit(0)
os.waitpid(pid, 0)
dead = [f for f in os.listdir(".") if "aside" in f]
living = aside.name(os.getcwd()); open(living, "w").close()
boot, namespace, own, birth, random = os.path.basename(living)[len(".cuptimem-aside-"):-len(".cmem")].split(".")
def put(name, age=0):
    open(name, "w").close(); os.utime(name, (time.time() - age,) * 2); return name
again = put(f".cuptimem-aside-{boot}.{namespace}.{own}.1.aa.cmem")             # the same number, another process
elsewhere = put(f".cuptimem-aside-{'0' * 32}.{namespace}.1.7.aa.cmem")
elsewhere_old = put(f".cuptimem-aside-{'0' * 32}.{namespace}.1.7.bb.cmem", 8 * 86400)
other_space = put(f".cuptimem-aside-{boot}.1.{own}.7.aa.cmem")
odd = put(".cuptimem-aside-what.cmem", 99 * 86400)
with cuptimem.profile("run.cmem"): pass
there = {k: os.path.exists(v) for k, v in dict(dead=dead[0], living=living, again=again, elsewhere=elsewhere,
         elsewhere_old=elsewhere_old, other_space=other_space, odd=odd).items()}
say(there=there)
"""
    )
    assert answer["there"] == {
        "dead": False, "living": True, "again": False, "elsewhere": True, "elsewhere_old": False, "other_space": True,
        "odd": True,
    }  # fmt: skip


def test_temporary_traces_of_killed_processes_go_after_a_week(child, start, tmp_path):
    """A trace of `run` never does, whatever its script is called."""
    process = start(
        """
profile = cuptimem.profile(); profile.start()
core.capture_share()
core.capture_emit(1, 10)
import time
print("up", flush=True); time.sleep(600)
""",
        TMPDIR=str(tmp_path),
    )
    assert process.stdout.readline() == "up\n"
    [trace] = tmp_path.glob(".cuptimem-temporary-*")
    week = 8 * 86400
    old = (time.time() - week,) * 2
    look = """
with cuptimem.profile() as other: pass
del other
say(there=sorted(f for f in os.listdir(".") if f.endswith((".cmem", ".tail"))))
"""
    # What `run` calls the trace of a script with such a name.
    theirs = [naming.default_name(f"temporary-{'0' * 32}.{'1' * 9}.7.8.py", 99, None), "cuptimem-train.7.cmem"]
    for name in theirs:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, old)
    (tmp_path / f"{trace.name}.tail").touch()
    os.utime(trace, old)
    everything = sorted([trace.name, f"{trace.name}.tail", *theirs])
    assert child(look, TMPDIR=str(tmp_path))["there"] == everything  # its process lives
    process.kill()
    process.communicate()
    os.utime(trace)
    # Not a week yet. What it lacked is in it now, and the side file, which was not its own, gone.
    assert child(look, TMPDIR=str(tmp_path))["there"] == sorted([trace.name, *theirs])
    os.utime(trace, old)
    (tmp_path / f"{trace.name}.tail").touch()
    assert child(look, TMPDIR=str(tmp_path))["there"] == sorted(theirs)


def test_names_that_others_may_give_a_file(child, tmp_path):
    """Anybody can put a file into a folder for temporary files."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    machine = f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"
    names = [f".cuptimem-temporary-{machine}.{pid}.7.8.cmem" for pid in ("\u00b2", "-1", "")]
    for name in names:
        (tmp_path / name).touch()
    answer = child("with cuptimem.profile('x.cmem') as p: pass\nsay(ok=p.report.complete)", TMPDIR=str(tmp_path))
    assert answer["ok"] and answer["stderr"] == ""


def test_killed_while_windows_are_cut(start, child, tmp_path):
    """SIGKILL between any two steps of the end: the recording is under a name that nobody sweeps."""
    for at in range(4):
        process = start(
            """
import signal
at, seen = int(sys.argv[1]), 0
def wrap(module, name):
    original = getattr(module, name)
    def call(*args, **kwargs):
        global seen
        if seen == at: os.kill(os.getpid(), signal.SIGKILL)
        seen += 1
        return original(*args, **kwargs)
    setattr(module, name, call)
first = cuptimem.profile("first.cmem", overwrite=True); first.start()
second = cuptimem.profile("second.cmem", overwrite=True); second.start()
core.capture_emit(1, 10)
first.stop()
for name in ("link", "rename", "replace", "unlink"): wrap(os, name)
second.stop()
print("whole")
""",
            at,
        )
        process.communicate(timeout=300)
        answer = child(
            """
with cuptimem.profile("later.cmem", overwrite=True): pass
found = heap("first.cmem")
say(found=found["allocations"], names=[f for f in os.listdir(".") if f.startswith(".cuptimem-aside")])
"""
        )
        assert answer["found"] == 10, at
        assert answer["names"] == [], at


def test_a_loader_that_serves_many_modules(child, tmp_path):
    """zipimport: the watch calls back for the module that it watches, not for the one that happens to come first."""
    answer = child(
        """
import importlib, zipfile
from cuptimem.record.late_import import ImportWatch
with zipfile.ZipFile("many.zip", "w") as file:
    file.writestr("watched.py", "x = 1"); file.writestr("other.py", "y = 2")
sys.path.insert(0, os.path.abspath("many.zip"))
called, failed = [], []
watch = ImportWatch({"watched": lambda m: called.append((m.__name__, hasattr(m, "x")))},
                    lambda n, e: failed.append((n, repr(e))))
watch.start()
import importlib.util
spec = importlib.util.find_spec("watched")           # found, and not loaded yet
import other
before = list(called)
import watched
watch.stop()
say(before=before, called=called, failed=failed, clean="exec_module" not in vars(watched.__loader__))
"""
    )
    assert answer["before"] == [] and answer["called"] == [["watched", True]]
    assert answer["failed"] == [] and answer["clean"]
    assert os.path.exists(tmp_path / "many.zip")
