"""Programs of tests that end at once are noticed."""

import os
import sys
from pathlib import Path

from tests.forkserver import ForkServer

# Both answers in one write, as they lie in the pipe where the program ends before its number is read.
AT_ONCE = """#!{python} -IS
import json, sys
print('{{"ready": true}}', flush=True)
for line in sys.stdin:
    request = json.loads(line)
    for name in ("out", "err"):
        open(request[name], "w").write(request["arguments"][0])
    print('{{"pid": 4194305}}\\n{{"status": 0}}', flush=True)
"""


def test_a_program_that_has_ended_before_its_number_is_read(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(AT_ONCE.format(python=sys.executable))
    python.chmod(0o755)
    environment = dict(os.environ)
    server = ForkServer(str(python), environment)
    try:
        for word in ("first", "second"):
            done = server.run(tmp_path / "p.py", word, environment=environment, cwd=tmp_path, timeout=20)
            assert (done.code, done.out) == (0, word)
    finally:
        server.close()
