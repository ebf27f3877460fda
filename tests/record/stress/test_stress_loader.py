"""A library whose constructor takes its time holds the loader's lock, for which the collector may have to wait."""

import subprocess


def test_slow_constructors(child, tmp_path, scale):
    """Starts, stops, forks and snapshots meanwhile come to their end, at the latest when the constructor does."""
    (tmp_path / "slow.c").write_text(
        "#include <unistd.h>\n__attribute__((constructor)) static void slow(void) { usleep(150000); }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "slow.so", tmp_path / "slow.c"], check=True)
    answer = child(
        """
import ctypes, shutil, threading, time
rounds, published, bad = int(sys.argv[1]), 0, []
for i in range(rounds):
    name = os.path.abspath(f"slow{i}.so"); shutil.copy("slow.so", name)      # a new file is loaded anew
    inside = threading.Event()
    def load(): inside.set(); ctypes.CDLL(name)
    t = threading.Thread(target=load)
    if i % 2: t.start(); inside.wait()
    with cuptimem.profile("run.cmem", overwrite=True):
        if not i % 2: t.start(); inside.wait(); time.sleep(0.05)
        n = core.capture_emit(2, 50)
        if i % 3 == 0:
            pid = os.fork()
            if pid == 0: os._exit(0)
            os.waitpid(pid, 0)
        core.capture_sync()
    t.join()
    found = heap("run.cmem")
    if n != 200 or found["allocations"] + found["frees"] != n or found["lost"]: bad.append((i, n, found["lost"]))
    os.unlink(name)
say(bad=bad)
""",
        scale(6, 200),
    )
    assert answer["bad"] == []
