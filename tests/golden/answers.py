"""What the golden traces are asked, and the answers as they are kept in tests/golden/expected."""

import base64
import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import cuptimem
from cuptimem import _core, cli
from tests.tools.exports import arrow_stream

HERE = Path(__file__).resolve().parent
TRACES, EXPECTED = HERE / "traces", HERE / "expected"

# As text.
SHOWN = (
    "summary",
    "peak",
    "leaks",
    "ledger",
    "fragmentation",
    "kernels",
    "steps",
    "table",
    "account",
    "tree",
    "advice",
)
# Each with --json.
ASKED = (
    "summary",
    "peak",
    "peak --at start",
    "peak --at end",
    "peak --at oom",
    "peak --step -1",
    "leaks",
    "leaks --min-rate 64",
    "ledger",
    "ledger --at end",
    "ledger --at 0.001",
    "fragmentation",
    "fragmentation --at end",
    "kernels",
    "steps",
    "table --by line",
    "table --by library-line --what end",
    "table --by function --what temporary",
    "table --by file",
    "table --by module --what allocated",
    "table --by module --depth 1 --sort name",
    "table --by category",
    "table --by operator --what allocated",
    "table --by phase",
    "table --by stack --step 1",
    "account",
    "account --depth 1 --step -1",
    "tree",
    "tree --inverted --what allocated",
    "advice",
    "holders",
)
MORE = {"code": ("peak --code numpy", "leaks --code numpy"), "leak-closures": ("table --by line --code torch",)}
DIFFS = {
    "train": ("train-wider", "train-no-walks"),
    "train-wider": ("train",),
    "leak-list": ("leak-cache", "suspects"),
    "leak-graph": ("leak-list",),
    "middle": ("windows",),
    "cuda-train": ("cuda-expandable", "cuda-leak"),
    "cuda-kernels": ("cuda-two-devices",),
    "oom-left": ("oom-caught",),
    "killed": ("exec",),
    "hand-leak": ("hand-folded",),
    "hand-devices": ("hand-driver",),
}
WINDOWS = {"windows": (1, 2, 3, 4), "schedule": (2,), "middle": (1,), "hand-windows": (1, 2), "synthetic-cuda": (2, 3)}
ASKED_OF_WINDOWS = ("summary", "peak", "leaks", "steps")
PAGES = ("timeline", "flamegraph")
EXPORTS = ("json", "csv", "chrome", "memory-viz", "speedscope", "collapsed", "firefox", "pprof")
FEW = 24  # different words in one place of an export: then they are kept themselves


@cache
def names() -> tuple[str, ...]:
    """The golden traces."""
    return tuple(sorted(path.stem for path in TRACES.glob("*.cmem")))


def of_trace(name: str) -> dict[str, Any]:
    """All answers of the present code to what is asked of this trace, by question."""
    with _within(TRACES):
        found = {asked: _answer([*asked.split(), f"{name}.cmem", "--json"]) for asked in ASKED + MORE.get(name, ())}
        found |= {f"text of {verb}": _text([verb, f"{name}.cmem"]) for verb in SHOWN}
        found |= {f"page {verb}": _page(verb, f"{name}.cmem") for verb in PAGES}
        for other in DIFFS.get(name, ()):
            found[f"diff {other}"] = _answer(["diff", f"{name}.cmem", f"{other}.cmem", "--json"])
            found[f"text of diff {other}"] = _text(["diff", f"{name}.cmem", f"{other}.cmem"])
        for form in EXPORTS:
            found[f"export {form}"] = _export(form, f"{name}.cmem")
        found["export to_arrow"] = _arrow(f"{name}.cmem")
    for window in WINDOWS.get(name, ()):
        with tempfile.TemporaryDirectory() as folder, _within(Path(folder)):
            _core.extract(str(TRACES / f"{name}.cmem"), "window.cmem", window)
            for asked in ASKED_OF_WINDOWS:
                found[f"window {window}: {asked}"] = _answer([asked, "window.cmem", "--json"])
    return found


@contextlib.contextmanager
def _within(folder: Path) -> Iterator[None]:
    """In the folder of a trace, so that an answer names no other, and without what a user may have set."""
    here, kept = os.getcwd(), dict(os.environ)
    for variable in ("CUPTIMEM_CODE", "COLUMNS"):
        os.environ.pop(variable, None)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(kept)


def _run(words: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(words)
        except Exception as error:  # an answer, too, and another one than that which is kept
            return -1, "", f"{type(error).__name__}: {error}"
        except SystemExit as end:  # of argparse: the question is no longer understood
            return int(end.code or 0), "", err.getvalue()
    return code, out.getvalue(), err.getvalue()


def _answer(words: list[str]) -> Any:
    code, out, err = _run(words)
    return json.loads(out) if code == 0 and out else {"exit code": code, "said": err.splitlines()}


def _text(words: list[str]) -> Any:
    os.environ["COLUMNS"] = "100"
    code, out, err = _run(words)
    del os.environ["COLUMNS"]
    return {"exit code": code, "lines": out.splitlines(), "said": err.splitlines()}


def _page(verb: str, trace: str) -> Any:
    """A digest of the data of a page."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "page.html"
        code, _, err = _run([verb, trace, "-o", str(target)])
        if code:
            return {"exit code": code, "said": err.replace(folder, "").splitlines()}
        found = re.search(r'<script type="text/plain" id="data">([^<]*)</script>', target.read_text())
        assert found is not None
        return {"digest": digest([json.loads(gzip.decompress(base64.b64decode(found[1])))])}


def _export(form: str, trace: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out"
        code, out, err = _run(["export", trace, "--to", form, "-o", str(target)])
        if code:
            return {"exit code": code, "said": err.replace(folder, "").splitlines()}
        notes = [line for line in out.splitlines() if line.startswith("!")]
        return {"notes": notes, "digest": digest([_read(form, target)])}


def _arrow(trace: str) -> Any:
    try:
        return {"digest": digest(list(arrow_stream.batches(cuptimem.open(trace).to_arrow())))}
    except cuptimem.Error as error:
        return {"said": str(error)}


def _read(form: str, target: Path) -> Any:
    if form == "csv":
        return {path.name: list(csv.DictReader(path.open(newline=""))) for path in sorted(target.glob("*.csv"))}
    data = target.read_bytes()
    if form == "memory-viz":
        return pickle.loads(data)
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    if form == "pprof":
        return _fields(data)
    text = data.decode()
    if form == "collapsed":
        return text.splitlines()
    return [json.loads(line) for line in text.splitlines()] if form == "json" else json.loads(text)


def _fields(message: bytes) -> dict[str, list[Any]]:
    """The fields of a protobuf message by number: numbers, or the bytes of texts and messages within."""
    found: dict[str, list[Any]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = varint()
        value: Any = varint()
        if tag & 7 == 2:
            at += value
            value = message[at - value : at].decode("latin-1")
        else:
            assert tag & 7 == 0, "a field that is neither a number nor has a length"
        found.setdefault(str(tag >> 3), []).append(value)
    return found


def digest(documents: list[Any]) -> Any:
    """The keys of these documents, as they are nested, and at each place what stands there in all of them: how many
    values and a hash of them in their order, or the values themselves where they are a few different words."""
    if not documents:
        return None
    if all(isinstance(one, dict) for one in documents):
        keys = dict.fromkeys(key for one in documents for key in one)
        return {str(key): digest([one[key] for one in documents if key in one]) for key in keys}
    if all(isinstance(one, (list, tuple)) for one in documents):
        return {"lists": len(documents), "each": digest([item for one in documents for item in one])}
    words = dict.fromkeys(one for one in documents if isinstance(one, str) and len(one) <= 40)
    if 0 < len(words) <= FEW and all(isinstance(one, str) and one in words for one in documents):
        order = hashlib.sha256(repr([list(words).index(one) for one in documents]).encode()).hexdigest()[:16]
        return {"count": len(documents), "order": order, "words": [{"word": word} for word in words]}
    text = json.dumps(documents, default=repr, sort_keys=True)
    return {"count": len(documents), "sha256": hashlib.sha256(text.encode()).hexdigest()[:16]}


# What is kept. Lists and objects that come again, such as stacks, are kept once: {"$": number} stands for them.
_LONG = 48  # characters of what is worth a number


def packed(answers: dict[str, Any]) -> str:
    """As text, a question's answer in each line."""
    seen: dict[str, int] = {}

    def count(value: Any) -> None:
        text = json.dumps(value)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 1 or len(text) < _LONG:
            for part in value.values() if isinstance(value, dict) else value:
                if isinstance(part, (dict, list)):
                    count(part)

    shared: dict[str, int] = {}
    table: list[str] = []

    def pack(value: Any) -> Any:
        if not isinstance(value, (dict, list)):
            return value
        text = json.dumps(value)
        if text in shared:
            return {"$": shared[text]}
        if isinstance(value, dict):
            made: Any = {key: pack(part) for key, part in value.items()}
        else:
            made = [pack(part) for part in value]
        if seen.get(text, 0) > 1 and len(text) >= _LONG:
            table.append(json.dumps(made))
            shared[text] = len(table) - 1
            return {"$": shared[text]}
        return made

    count(answers)
    lines = [f"{json.dumps(asked)}: {json.dumps(pack(answer))}" for asked, answer in answers.items()]
    return '{"shared": [\n' + ",\n".join(table) + '\n],\n"answers": {\n' + ",\n".join(lines) + "\n}}\n"


def unpacked(text: str) -> dict[str, Any]:
    document = json.loads(text)
    table: list[Any] = []

    def unpack(value: Any) -> Any:
        if isinstance(value, dict):
            return table[value["$"]] if value.keys() == {"$"} else {key: unpack(part) for key, part in value.items()}
        return [unpack(part) for part in value] if isinstance(value, list) else value

    for entry in document["shared"]:
        table.append(unpack(entry))  # noqa: PERF401  it refers to what is there already
    return {asked: unpack(answer) for asked, answer in document["answers"].items()}


def place(name: str) -> Path:
    return EXPECTED / f"{name}.json.gz"


def expected(name: str) -> dict[str, Any]:
    """The answers of the code that recorded this trace."""
    return unpacked(gzip.decompress(place(name).read_bytes()).decode())


def write_expected(*, replace: bool) -> None:
    """Writes the answers that are missing; with replace all."""
    EXPECTED.mkdir(exist_ok=True)
    for name in names():
        if place(name).exists() and not replace:
            print(f"{name}: kept as it is; --replace writes it again")
            continue
        answers = of_trace(name)
        if answers != of_trace(name):
            sys.exit(f"{name}: two answers differ")
        text = packed(answers)
        assert unpacked(text) == answers
        place(name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        print(f"{name}: {len(answers)} answers, {len(text)} characters, {place(name).stat().st_size} bytes", flush=True)
