"""Programs of tests that end at once are noticed, and what they see of what was imported before them."""

import os
import sys
from pathlib import Path

from tests.conftest import clean_environment
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


OBJECTS = """
import collections, gc, sys
tracked = {id(one) for one in gc.get_objects()}
seen = [id(one) in tracked for one in (sys.modules["__main__"], globals(), sys.modules, collections.Counter)]
before = gc.get_freeze_count()
gc.freeze()
print(*seen, before, gc.get_freeze_count() > 0, end=" ")
gc.unfreeze()
print(gc.get_freeze_count())
"""


def test_what_was_imported_is_hidden_where_it_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(OBJECTS)
    environment = clean_environment()
    server = ForkServer(sys.executable, environment, torch=False)
    try:
        for asked, imported in (({}, False), ({"FORKS_SEE_ALL": "1"}, True)):
            done = server.run(tmp_path / "p.py", environment=environment | asked, cwd=tmp_path, timeout=60)
            assert done.out == f"True True True {imported} 0 True 0\n", done.err
    finally:
        server.close()
