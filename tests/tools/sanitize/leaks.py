"""Everything that the extension allocates for, some times, in an interpreter with LeakSanitizer: what it reports at the
end and nobody refers to any more is a leak (sanitize.py reads the report). One leak is made on purpose, to be found."""

import contextlib
import ctypes
import os
import tempfile
from pathlib import Path

from cuptimem import _core

ROUNDS = 20
ON_PURPOSE = 12345  # bytes


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = str(Path(name, "t.cmem"))
        cut = str(Path(name, "cut.cmem"))
        bad = Path(name, "bad.cmem")
        for round in range(ROUNDS):
            _core.frames_init()
            _core.capture_start(path, {"round": str(round)}, ring_bytes=1 << 20, overwrite=True, ring_dir=name)
            _core.sources_install()
            _core.capture_record(True)
            _core.capture_emit(3, 500)
            _core.mark(1, 1)
            for _ in range(50):
                _core.tick(1, bad)
            _core.mark(2, 1)
            _core.capture_sync()
            _core.fork_before()
            _core.fork_parent()
            _core.capture_stop({"note": str(round)})
            _core.sources_remove()
            _core.analyze(path)
            _core.extract(path, cut, 1)
            _core.analyze(cut)
            os.unlink(cut)
            whole = Path(path).read_bytes()
            for data in (whole[: len(whole) // 2], whole[:40], b"", whole[:200] + b"\xff" * 20 + whole[220:]):
                bad.write_bytes(data)
                with contextlib.suppress(_core.Error):
                    _core.analyze(str(bad))
    library = ctypes.CDLL(None)
    library.malloc.restype = None
    library.malloc(ON_PURPOSE)
    print(f"{ROUNDS} captures, {6 * ROUNDS} analyses, done")


if __name__ == "__main__":
    main()
