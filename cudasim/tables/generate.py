"""Turns the tables of this directory into C. Run by setup.py at build time; standard library only.

A table, <library>.txt, says of each function that a CUDA library exports what a call does:

    library cuBLAS          what handles are charged to, as the report names it
    refused 15              the library's status for "not supported"

    ok cublasSaxpy_v2 cublasDaxpy_v2
    float@6 cublasSdot_v2
    custom cublasCreate_v2 cublasDestroy_v2
    refuse cublasXtCreate

The words before the names say it; arguments are counted from 0, leaving floating point ones (which travel in
registers of their own) out. Every function returns 0 unless it says otherwise.

    ok              nothing: kernels compute nothing here
    custom          it is written by hand in cudasim/csrc
    refuse          it is not described: names itself in the report and returns the library's "not supported"
    error=N         returns N
    handle@N        *argument N is a new library handle, which takes what config.handle_bytes says of the device
    close@N         argument N, a handle, is destroyed
    object@N        *argument N is a new descriptor (host memory)
    free@N          argument N, a descriptor, is destroyed
    int@N=V         *argument N is V (0 if left out); also size, int64, float, double, complex, zcomplex. Outputs that
                    are NULL or lie in device memory are left alone.

A function that is written by hand wins over any description: what is generated is weak.

A function with facts that CUPTI and cuGetProcAddress report has a line of its own, its name first, in the tables of the
driver and of the runtime:

    cuMemAlloc_v2           custom since=3020 id=243 (uint64_t *dptr, size_t bytesize)

    since=N         the version of CUDA, 1000 * major + 10 * minor, that has the function in this form
    id=N            the number of its callback. Its name is the function's; the runtime's ends in _vSINCE
    (PARAMETERS)    what a callback receives, as the vendor declares it but with our types. A call without parameters
                    has none: its callback receives NULL

And lines of their own name what has no function here:

    callbacks 138 cuD3D10GetDevice cuD3D10CtxCreate     callbacks from this number on
    lookup cuGraphInstantiate 12000 cuGraphInstantiateWithFlags
                                        the form of a version whose symbol is not the name and _vN
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

TYPES = {
    "int": "int",
    "size": "size_t",
    "int64": "int64_t",
    "float": "float",
    "double": "double",
    "complex": "float complex",
    "zcomplex": "double complex",
}
CALLS = {"handle", "close", "object", "free"}
WHOLE = {"ok", "custom", "refuse"}
FACTS = {"since", "id"}
WORD = re.compile(r"(?P<what>[a-z0-9]+)(@(?P<argument>\d+))?(=(?P<value>-?\d+))?")


@dataclass(frozen=True)
class Entry:
    """A function and what it does."""

    name: str
    words: tuple[str, ...]
    facts: dict[str, int]
    parameters: tuple[str, ...]

    @property
    def custom(self) -> bool:
        return self.words == ("custom",)

    @property
    def refused(self) -> bool:
        return self.words == ("refuse",)


@dataclass
class Table:
    """A library's functions by name."""

    library: str = ""
    refused: int = -1
    entries: dict[str, Entry] = field(default_factory=dict)
    callbacks: dict[int, str] = field(default_factory=dict)
    lookups: list[tuple[str, int, str]] = field(default_factory=list)


class Malformed(Exception):
    """What is wrong with a table; the text begins with file and line."""


def read(file: Path) -> Table:
    """Malformed if it says anything that this module does not know, or something twice."""
    table = Table()
    for number, line in enumerate(file.read_text().splitlines(), 1):
        text, _, parameters = line.partition("#")[0].strip().partition("(")
        words = text.split()
        if not words:
            continue
        try:
            _line(table, words, parameters)
        except ValueError as error:
            raise Malformed(f"{file}:{number}: {error}") from None
    if not table.library or table.refused < 0:
        raise Malformed(f"{file}: needs the lines `library NAME` and `refused STATUS`")
    return table


def _line(table: Table, words: list[str], parameters: str) -> None:
    name, *rest = words
    if name == "library" and rest:
        table.library = " ".join(rest)
    elif name == "refused" and len(rest) == 1:
        table.refused = int(rest[0])
    elif name == "callbacks" and len(rest) > 1:
        for number, callback in enumerate(rest[1:], int(rest[0])):
            _callback(table, number, callback)
    elif name == "lookup" and len(rest) == 3:
        table.lookups.append((rest[0], int(rest[1]), rest[2]))
    elif _describes(name):
        does = list(takewhile(_describes, words))
        for function in words[len(does) :]:
            _function_line(table, function, does, "")
        if len(does) == len(words):
            raise ValueError(f"nothing does {' '.join(does)}")
    else:
        _function_line(table, name, rest, parameters)


def _describes(word: str) -> bool:
    """Whether it says what a call does: no function has such a name."""
    what, states, _ = word.partition("=")
    return word in WHOLE or "@" in word or (states == "=" and what not in FACTS)


def _function_line(table: Table, name: str, words: list[str], parameters: str) -> None:
    stated = [word.partition("=") for word in words if word.partition("=")[0] in FACTS]
    facts = {what: int(value) for what, _, value in stated}
    does = [word for word in words if word.partition("=")[0] not in FACTS]
    if name in table.entries:
        raise ValueError(f"{name} is described twice")
    if not does:
        raise ValueError(f"{name} is not described")
    if name in WHOLE or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ValueError(f"{name} is no name of a function")
    for word in does:
        _check(word, alone=len(does) == 1)
    if parameters and ("id" not in facts or parameters[-1] != ")"):
        raise ValueError(f"{name}'s parameters are for a callback, and end with )")
    table.entries[name] = Entry(name, tuple(does), facts, tuple(filter(None, parameters[:-1].split(", "))))
    if "id" in facts:
        _callback(table, facts["id"], name)


def _callback(table: Table, number: int, name: str) -> None:
    if number in table.callbacks:
        raise ValueError(f"callback {number} is {table.callbacks[number]} already")
    table.callbacks[number] = name


def _check(word: str, alone: bool) -> None:
    found = WORD.fullmatch(word)
    if not found:
        raise ValueError(f"{word!r} is no word of a table")
    what, argument, value = found["what"], found["argument"], found["value"]
    if what in WHOLE:
        good = alone and argument is None and value is None
    elif what == "error":
        good = argument is None and value is not None
    else:
        good = argument is not None and (what in TYPES or (what in CALLS and value is None))
    if not good:
        raise ValueError(f"{word!r} cannot be said, or not here")


def tables(folder: Path) -> dict[str, Table]:
    """All tables by the name of their file."""
    return {file.stem: read(file) for file in sorted(folder.glob("*.txt"))}


def generate(folder: Path) -> str:
    """The C source of all that the tables describe."""
    seen: set[str] = set()
    lines = ["/* Generated from cudasim/tables. */", '#include "libraries/entries.h"']
    for stem, table in tables(folder).items():
        lines += ["", f"/* {stem} */"]
        for entry in table.entries.values():
            if entry.name in seen:
                raise Malformed(f"{folder / stem}.txt: {entry.name} is described in another table too")
            seen.add(entry.name)
            if not entry.custom:
                lines.append(_function(table, entry))
    return "\n".join(lines) + "\n"


def headers(folder: Path, cards: Iterable[Any]) -> dict[str, str]:
    """The headers of the tables' facts, by name. cards: CARDS of cudasim/cards.py."""
    found = tables(folder)
    driver, runtime = found["cuda"], found["cudart"]
    return {
        "callbacks.h": "".join(_names(domain, names) for domain, names in callbacks(found).items()),
        "calls.h": "".join(
            ["enum {\n", *_numbers(driver), *_numbers(runtime), "};\n", *_structures(driver), *_structures(runtime)]
        ),
        "cards.h": "".join(map(_card, cards)),
        "lookup.h": "".join(f'{{"{name}", {version}, "{symbol}"}},\n' for name, version, symbol in lookups(driver)),
    }


def callbacks(found: dict[str, Table]) -> dict[str, dict[int, str]]:
    """The names of the driver's and the runtime's callbacks by their numbers, of all tables."""
    driver, runtime = found["cuda"], found["cudart"]
    since = {name: entry.facts.get("since") for name, entry in runtime.entries.items()}
    versioned = {n: f"{name}_v{since[name]}" if name in since else name for n, name in runtime.callbacks.items()}
    return {"driver": driver.callbacks, "runtime": versioned}


def _names(array: str, names: dict[int, str]) -> str:
    rows = "".join(f'[{number}] = "{name}",\n' for number, name in sorted(names.items()))
    return f"static const char *const {array}[] = {{\n{rows}}};\n"


def _numbers(table: Table) -> Iterator[str]:
    for entry in table.entries.values():
        if "id" in entry.facts:
            yield f"CM_CBID_{entry.name} = {entry.facts['id']},\n"


def _structures(table: Table) -> Iterator[str]:
    for entry in table.entries.values():
        if entry.parameters:
            name = f"cm_{entry.name}_params"
            yield f"typedef struct {name} {{ {'; '.join(entry.parameters)}; }} {name};\n"


def lookups(table: Table) -> list[tuple[str, int, str]]:
    """Sorted by name and version, for a binary search."""
    rows = [
        (re.sub(r"_v\d+$", "", entry.name), entry.facts["since"], entry.name)
        for entry in table.entries.values()
        if "since" in entry.facts
    ]
    return sorted(rows + table.lookups)


def _card(card: Any) -> str:
    major, minor = card.capability
    numbers = f"{card.memory}, SM_{major}{minor}, {card.sms}, {card.l2}, {card.clock}, {card.memory_clock}"
    return f'CARD("{card.name}", "{card.key}", {numbers}, {card.bus_width})\n'


def write(target: Path, folder: Path, cards: Iterable[Any]) -> None:
    """Writes entries.c, and the headers into its folder generated."""
    (target / "generated").mkdir(parents=True, exist_ok=True)
    files = {"entries.c": generate(folder)}
    for name, text in headers(folder, cards).items():
        files[f"generated/{name}"] = f"/* Generated from cudasim/tables. */\n{text}"
    for name, text in files.items():
        path = target / name
        if not path.exists() or path.read_text() != text:  # else what is compiled from it is current
            path.write_text(text)


def _function(table: Table, entry: Entry) -> str:
    if entry.refused:
        return f"REFUSE({entry.name}, {table.refused})"
    if entry.words == ("ok",):
        return f"NOTHING({entry.name})"
    words = [found for word in entry.words if (found := WORD.fullmatch(word))]
    count = max((int(word["argument"]) + 1 for word in words if word["argument"]), default=0)
    parameters = ", ".join(f"void *a{i}" for i in range(count)) or "void"
    status = next((word["value"] for word in words if word["what"] == "error"), "0")
    body = "".join(_actions(table, words))
    return f"ENTRY int {entry.name}({parameters})\n{{\n    CM_SIM_ENTRY;\n{body}    return {status};\n}}"


def _actions(table: Table, words: list[re.Match[str]]) -> Iterator[str]:
    for word in words:
        what, argument = word["what"], f"a{word['argument']}"
        if what == "handle":
            yield f'    if (!NEW_HANDLE({argument}, "{table.library}"))\n        return {table.refused};\n'
        elif what == "object":
            yield f"    if (!NEW_OBJECT({argument}))\n        return {table.refused};\n"
        elif what == "close":
            yield f"    cm_sim_handle_free({argument});\n"
        elif what == "free":
            yield f"    free({argument});\n"
        elif what in TYPES:
            yield f"    OUT({TYPES[what]}, {argument}, {word['value'] or 0});\n"
