"""python -m tests.house.json_doc [--write]: the tables of keys in docs/json.md, out of the core's field tables.

A table stands between <!-- fields NAME --> and <!-- end -->, where NAME is one of REGIONS. Its rows are the fields that
the JSON object has, then the keys that it has besides. Without --write, exit code 1: the page is not up to date.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby

from cuptimem import _core
from tests.conftest import ROOT

PAGE = ROOT / "docs/json.md"
TOP = ("schema", "complete", "state", "reason", "lost", "compacted", "code")
OOM = ("device", "time_ns", "requested", "allocated", "step", "stack", "escaped")
STACK = {
    "line": "the user's line of `stack`, a frame; null without one",
    "stack_lost": "true if there was a stack that found no room",
}


@dataclass(frozen=True)
class Region:
    """What JSON has otherwise than the field table.

    places: of the objects, as tests/golden/renames.py has them. without: fields that JSON leaves out. names: JSON's
    names of fields. more: docs of other keys, or in the place of a field's. also: keys that are documented elsewhere.
    """

    places: tuple[str, ...]
    without: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()


REGIONS = {
    "lost": Region(("*/lost",)),
    "compacted": Region(("*/compacted",)),
    "contributor": Region(
        ("*/contributors",),
        more={
            "line": "the frame shown as its line: the innermost one of the user's own code; null without a stack",
            "library_line": "the library's line below `line`: the innermost outside PyTorch and Python, else the "
            "innermost; null where `line` is the innermost",
            "stack_lost": "true if it had a stack that found no room",
        },
    ),
    "tensor": Region(
        ("*/tensors",),
        more={
            "name": '`"h.0.weight"` (of a gradient, too), `"exp_avg of h.0.weight"`, or null',
            "dtype": '`"float32"`; null if unknown',
            "shape": "a list; null if unknown",
        },
    ),
    "device": Region(
        ("*summary/devices",),
        without=("contributors", "ooms", "ooms_total", "timeline", "tables", "tensors"),
        names={"above": "peak_above_start"},
    ),
    "segments": Region(("*summary/devices/segments",)),
    "check": Region(("*/check",)),
    "garbage": Region(
        ("*/garbage",),
        without=("contributors", "freed_contributors"),
        more={
            "line": "the user's line that made most of `at_peak`, else of all of it, a frame; null without one",
            "class": "of the objects that make the cycles (Episode and Env); null where no search for holders has "
            "seen any",
        },
    ),
    "host_read": Region(("*summary/host_reads",)),
    "oom": Region(
        ("peak --at oom/ooms",),
        without=("memory", *OOM),
        more={
            "cached": "of `reserved`, in no block; null if unknown",
            "too_small": "of `cached`, in pieces smaller than the request; null without segments",
            "free_on_device": "null if unknown",
            "lacked": "bytes that the device had too little; 0: enough; null: unknown",
            "rest_bytes": "`allocated` less the contributors",
        },
        also=OOM,
    ),
    "leak": Region(
        ("leaks*/leaks", "holders/lines/leaks", "advice/leaks/leak", "*/suspects", "*/keeps"),
        names={"retained": "retained_at"},
        more={
            "parts": '`[{"bytes", "count", "stack"}]`, a part per stack, the largest first; they sum to `bytes` and '
            "`count`",
            "holders": '`[{"path", "count", "bytes", "step", "put_at"}]`, the most bytes first: how the program refers '
            "to `count` of its blocks (nodes); `step`: in which it was searched, null at the end; `put_at`: the line "
            "that puts them there (`train.py:30 in Trainer.log`), null where that is not known; empty where nothing "
            "was searched, or everything was gone by then",
            "estimated": "true where the bytes are an estimate: of nodes the number is exact, what one takes is "
            "measured by how malloc's bytes grow with them ([leaks.md](leaks.md#the-bytes-of-a-graph))",
            "line": "the frame shown first: of `retained_at`, else of `stack`, the innermost of the user's own code; "
            "else null",
            "stack_lost": STACK["stack_lost"],
            "undecided": 'true for a suspect that may well be a leak: `"few births"`, `"one epoch"`, '
            '`"no collection"`, `"collections unknown"`, `"late garbage"`, `"freed behind the loop"`, '
            '`"one pass"`, `"carried on"`, `"filling"`, `"events lost"`',
        },
    ),
    "held_line": Region(
        ("*/held",),
        without=("stack",),
        more={
            "bytes": "alive then",
            "count": "blocks alive then",
            "line": "the user's line, a frame",
            "holders": '`[{"path", "count", "bytes", "step", "put_at"}]`, the most bytes first; they sum to `bytes`',
        },
    ),
    "ledger": Region(
        ("*/ledgers",),
        more={
            "driver": "allocated from CUDA beside PyTorch's allocator",
            "libraries": "`{name: bytes}`: `driver` by library, in names that people know",
            "lines": "what sums to `used`, see below",
        },
    ),
    "driver": Region(("ledger*/driver",)),
    "record_check": Region(("*/record_check",)),
    "fragmentation": Region(
        ("fragmentation*/fragmentation",),
        more={
            "segments": 'the partly used ones with the most free bytes, at most 20: `[{"address", "size", "allocated", '
            '"largest_free", "expandable", "addresses", "unmapped", "ranges_total", "ranges", "pins"}]`. A pin is '
            '`{"bytes", "count", "pinned", "line", "stack", "stack_lost"}`, pinned being what it keeps of that one. '
            "An expandable segment is all memory mapped into one reservation: `addresses` bytes of addresses (null if "
            'unknown), in `ranges_total` ranges `{"address", "size", "allocated", "largest_free"}`, of which the '
            "lowest 100 are in `ranges`, with `unmapped` bytes of addresses between them",
            "pins": '`[{"bytes", "count", "pinned", "segments", "line", "stack", "stack_lost"}]`, at most 50: blocks '
            "of one stack, and the bytes of the segments (of expandable ones: handles) that they keep",
        },
    ),
    "kernels": Region(
        ("kernels",),
        names={"names": "kernels", "names_total": "kernels_total"},
        more={"kernels": '`[{"name", "short", "count", "ns"}]`, at most 50, the most time first'},
        also=TOP,
    ),
    "waiting_blocks": Region(("kernels/early", "kernels/late"), more=STACK),
    "deferred_frees": Region(("kernels/deferred_frees",), more=STACK),
    "step": Region(("*steps/steps",), without=("contributors", "rest")),
}


def documented(name: str) -> dict[str, str]:
    """The keys of an object, and what is said of each."""
    region, found = REGIONS[name], {}
    for key, kind, doc in _core.fields()[name]:
        if kind.endswith("| None") and "null" not in doc:
            doc += "; null if unknown" if kind.startswith("int") else "; else null"
        elif kind == "stack" and key != "stack":
            doc += "; else `[]`"
        if key not in region.without:
            found[region.names.get(key, key)] = doc
    return found | dict(region.more)


def table(name: str) -> str:
    lines = ["| key | |", "|---|---|"]
    for doc, rows in groupby(documented(name).items(), key=lambda row: row[1]):
        lines.append(f"| {', '.join(f'`{key}`' for key, _ in rows)} | {doc} |")
    return "\n".join(lines)


def filled(page: str) -> str:
    """The page with its tables as they should be."""
    form = r"(?s)<!-- fields (\w+) -->\n.*?<!-- end -->"
    return re.sub(form, lambda at: f"<!-- fields {at[1]} -->\n{table(at[1])}\n<!-- end -->", page)


def main(words: list[str]) -> int:
    old = PAGE.read_text()
    new = filled(old)
    if words == ["--write"]:
        PAGE.write_text(new)
    elif old != new:
        print(f"{PAGE.name} is not up to date: make json-doc")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
