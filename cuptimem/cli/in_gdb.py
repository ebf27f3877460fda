"""Runs inside gdb, attached to a Python: asks its main thread to run a text of Python between two instructions.

Two functions are called in the process. Both take no lock that the calling thread can hold, because it is one that
sleeps in the kernel: mmap, for a page with the text, and Py_AddPendingCall, whose lock is never held across a system
call. Other threads go on meanwhile, so a lock that one of them holds is released. Neither allocates with malloc nor
needs the interpreter's lock. The text runs where a signal's handler in Python would.
"""

import os

import gdb  # type: ignore[import-untyped]  # in gdb alone

_SYSCALL = b"\x0f\x05"  # the instruction before the one where a thread in the kernel goes on
_PAGE = 4096


def _sleeping() -> bool:
    """Chooses a thread that is in a system call."""
    inferior = gdb.selected_inferior()
    for thread in sorted(inferior.threads(), key=lambda thread: -thread.num):  # the main thread last
        thread.switch()
        try:
            before = bytes(inferior.read_memory(int(gdb.parse_and_eval("(long)$pc")) - len(_SYSCALL), len(_SYSCALL)))
        except gdb.MemoryError:
            continue
        if before == _SYSCALL:
            return True
    return False


def _main() -> None:
    text = os.environ["CUPTIMEM_TEXT"].encode() + b"\0"
    for name in ("Py_AddPendingCall", "PyRun_SimpleString", "mmap"):
        if gdb.lookup_static_symbol(name) is None:
            try:
                gdb.parse_and_eval(f"(long)&{name}")
            except gdb.error:
                print(f"cuptimem-refused: it has no symbol {name} (a static or stripped build)")
                return
    if len(text) > _PAGE:
        print("cuptimem-refused: the text is too long")
        return
    if not _sleeping():
        print("cuptimem-refused: none of its threads sleeps at this moment; ask again")
        return
    map_page = "((long (*)(long, long, int, int, int, long))mmap)"
    page = int(gdb.parse_and_eval(f"{map_page}(0, {_PAGE}, 3, 0x22, -1, 0)"))
    if page <= 0:
        print("cuptimem-refused: it has no memory for a page")
        return
    gdb.selected_inferior().write_memory(page, text)
    call = f"((int (*)(long, long))Py_AddPendingCall)((long)&PyRun_SimpleString, {page})"
    if int(gdb.parse_and_eval(call)) != 0:
        print("cuptimem-refused: too many calls wait for its main thread")
    else:
        print("cuptimem-done")


_main()
