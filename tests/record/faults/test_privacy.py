"""Who may read a trace, and what of the command line is in it."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Result

Run = Callable[..., Result]

# Ticks are events, too: no torch.
MODES = """
import json, os, cuptimem
from cuptimem import _core
os.umask({umask})
def modes():
    found = {{}}
    for folder in (os.getcwd(), os.environ["TMPDIR"], os.environ["CUPTIMEM_RING_DIR"]):
        for file in os.listdir(folder):
            kind = "ring" if file.startswith(".cuptimem-ring-") else "side" if file.endswith(".tail") else "trace"
            if ".cuptimem-" in file or ".cmem" in file:
                found[kind] = oct(os.stat(os.path.join(folder, file)).st_mode & 0o7777)
    return found
with cuptimem.profile({path}, max_size=1 << 16) as prof:
    _core.capture_share()
    for _ in range(40):
        for _ in range(4000):
            _core.tick(1, prof)
        _core.capture_sync()
    print(json.dumps(modes()))
"""


def test_a_temporary_trace_is_its_users_alone(run: Run, tmp_path: Path) -> None:
    """Whatever the umask says; its side file and its ring as well. A trace that was named follows the umask."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "rings").mkdir()
    places = {"TMPDIR": str(tmp_path / "tmp"), "CUPTIMEM_RING_DIR": str(tmp_path / "rings")}
    for path, umask, mode in (("None", 0, "0o600"), ("'a.cmem'", 0o027, "0o640"), ("'b.cmem'", 0, "0o666")):
        done = run("-c", MODES.format(path=path, umask=umask), env=places)
        assert (done.code, done.err) == (0, "")
        assert json.loads(done.out) == {"trace": mode, "side": mode, "ring": "0o600"}
        for left in tmp_path.glob("*.cmem"):
            left.unlink()
    assert not list((tmp_path / "tmp").iterdir())


def test_no_argv(run: Run, tmp_path: Path) -> None:
    """The script's name stays, as what the report is called by."""
    (tmp_path / "train.py").write_text("")
    for options, there in (((), True), (("--no-argv",), False)):
        done = run("-m", "cuptimem", "run", "-q", "-f", *options, "-o", "run.cmem", "train.py", "--token", "hunter2")
        assert (done.code, done.err) == (0, "")
        content = (tmp_path / "run.cmem").read_bytes()
        assert (b"hunter2" in content, b"--token" in content, b"train.py" in content) == (there, there, True)
    program = "import cuptimem\nwith cuptimem.profile('inner.cmem', argv=False): pass\n"
    assert run("-c", program, "hunter2").code == 0
    assert b"hunter2" not in (tmp_path / "inner.cmem").read_bytes()


def test_a_trace_that_is_being_recorded_is_not_scrubbed(run: Run, tmp_path: Path) -> None:
    program = (
        "import cuptimem.cli\nwith cuptimem.profile('a.cmem'): print(cuptimem.cli.main(['scrub', 'a.cmem', 'b.cmem']))"
    )
    done = run("-c", program)
    assert done.out == "1\n" and done.err == "cuptimem: a.cmem: it is being recorded: wait for the end of its program\n"
    assert not (tmp_path / "b.cmem").exists()
