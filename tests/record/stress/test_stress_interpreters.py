"""Subinterpreters: an error that says so, or it works; and the main one is recorded on."""

import sys

import pytest

PROGRAM = """
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
def create(isolated):
    if sys.version_info >= (3, 13): return interpreters.create("isolated" if isolated else "legacy")
    return interpreters.create(isolated=isolated)
TRY = '''
import sys, os
sys.path.insert(0, %r)
try:
    import cuptimem
    try:
        with cuptimem.profile(): pass
        said = "recorded"
    except Exception as error: said = f"{type(error).__name__}: {error}"
except Exception as error: said = f"import {type(error).__name__}: {error}"
open("said", "w").write(said)
'''
WORK = "x = [bytearray(1000) for _ in range(1000)]; import json, re; re.compile('a+b')"
said = {}
with cuptimem.profile("run.cmem") as prof:
    n = 0
    for isolated in (False, True):
        for _ in range(int(sys.argv[1])):
            one = create(isolated)
            try:
                execute = interpreters.run_string if sys.version_info < (3, 13) else interpreters.exec
                for text in (WORK, TRY % os.environ["PYTHONPATH"]):
                    found = execute(one, text)
                    assert found is None, found
            finally: interpreters.destroy(one)
            said["isolated" if isolated else "legacy"] = open("said").read()
            n += core.capture_emit(1, 5, first=n + 1)
found = heap("run.cmem")
say(said=said, n=n, found=found["allocations"] + found["frees"], active=core.capture_active(), lost=found["lost"])
"""


def test_import_in_a_subinterpreter(child, scale, keep):
    if sys.version_info >= (3, 14):
        pytest.skip("the interpreters module of this Python is another one")
    count = scale(5, 200)
    answer = child(PROGRAM, count)
    assert answer["n"] == answer["found"] == 20 * count and answer["lost"] == 0 and answer["active"] is False
    for said in answer["said"].values():
        assert "\n" not in said
        assert "interpreter" in said, said
    keep(interpreters=2 * count, lost=answer["lost"])
