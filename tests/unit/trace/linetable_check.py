"""Run by test_trace_linetable.py under several Pythons: library -> "codes positions wrong"."""

import ctypes
import glob
import os
import sys
import types

lib = ctypes.CDLL(sys.argv[1])
lib.cm_linetable_find.restype = ctypes.c_bool
lib.cm_linetable_find.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p]
out = (ctypes.c_int * 4)()
codes = positions = wrong = 0


def check(code: types.CodeType) -> None:
    global codes, positions, wrong
    codes += 1
    table, first_line = code.co_linetable, code.co_firstlineno
    # Every position of short code, some of long: finding one is linear.
    every = 1 + len(code.co_code) // 2 // 200
    for i, expected in enumerate(code.co_positions()):
        if i % every:
            continue
        positions += 1
        lib.cm_linetable_find(table, len(table), first_line, i, out)
        if list(out) != [-1 if value is None else value for value in expected]:
            wrong += 1
            if wrong < 5:
                print(code, i, list(out), expected, file=sys.stderr)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            check(constant)


for path in sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))[:150]:
    with open(path, "rb") as file:
        check(compile(file.read(), path, "exec"))
print(codes, positions, wrong)
