"""Figures of tests, kept in files that later runs are compared with: `.cuptimem/<key>/<name>.json`.

A key names what figures depend on: the device, and PyTorch's minor release. Figures of a simulated run have keys of
their own. Works on records alone, in the process that has them all.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuptimem import regular_files
from cuptimem.errors import Error
from cuptimem.whole_files import replacing

FOLDER = ".cuptimem"
NAME = "baseline"
SCHEMA = 1
CONTRIBUTORS = 10  # of a row
_LARGEST = 256 << 20  # bytes of a file: that of 100,000 tests is half as large

Record = Mapping[str, Any]
Row = dict[str, Any]
Tests = dict[str, dict[str, Row]]  # of a file: by test and device; a device without a row had no allocation

NOTHING: Row = {"peak": 0, "allocated": 0, "allocations": 0, "leaked": 0, "contributors": []}
_FIGURES = ("peak", "allocated", "allocations", "leaked")


@dataclass(frozen=True, slots=True)
class Baseline:
    """All files of one name, by key."""

    name: str
    files: Mapping[str, Tests]

    def row(self, key: str, nodeid: str, device: str) -> Row | None:
        """What the test had on the device; None: it is not in the file, or there is no file."""
        devices = self.files.get(key, {}).get(nodeid)
        return None if devices is None else devices.get(device, NOTHING)


@dataclass(frozen=True, slots=True)
class Saved:
    """One file that was written."""

    path: Path
    written: int  # tests of this run
    kept: int  # tests that this run did not have


def cpu_description() -> str:
    """The machine and the instruction set that PyTorch dispatches on; the former alone where it was not imported.

    To be called in the process that ran the tests.
    """
    machine = os.uname().machine
    backend = sys.modules.get("torch.backends.cpu")
    capability = getattr(backend, "get_cpu_capability", None)
    return f"{machine} {capability().lower()}" if capability is not None else machine


def minor_release(torch: str) -> str:
    """2.13 of 2.13.0+cpu."""
    found = re.match(r"(\d+\.\d+)(?!\d)", torch)
    return found[1] if found is not None else _slug(torch)


def keys_of(environment: Mapping[str, Any], records: Iterable[Record]) -> dict[str, str]:
    """The key of each device of a run. Several devices of one kind share theirs; one without a description has its
    own name in it."""
    torch = environment.get("torch")
    simulated = environment.get("simulated")
    descriptions = {device: "" for record in records for device in record["devices"]}
    descriptions.update(environment.get("devices") or {})
    keys = {}
    for device, description in descriptions.items():
        parts = [f"simulated-{_slug(simulated)}"] if simulated else []
        if device == "cpu":
            # What a program does on the CPU may depend on the device beside it: the key of a simulated run says both.
            parts += ["cpu", _slug(description)]
        elif not simulated:
            parts.append(_slug(description) or _slug(device))
        parts.append(f"torch-{minor_release(torch) if torch else 'unknown'}")
        keys[device] = "-".join(part for part in parts if part)
    return keys


def _slug(text: str) -> str:
    """As a part of a folder's name: "l4, 22.0 GiB" is l4-22.0GiB."""
    joined = re.sub(r"(\d) ([KMGTP]iB)\b", r"\1\2", text)
    return re.sub(r"[^A-Za-z0-9._]+", "-", joined).strip("-.")


def merged(environments: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Of several processes, or moments: what one of them did not know yet, another one says."""
    all_of_it: dict[str, Any] = {}
    for one in environments:
        devices = all_of_it.get("devices", {})
        for device, description in one["devices"].items():  # before PyTorch is imported it is the beginning alone
            if not devices.get(device, "").startswith(description):
                devices[device] = description
        all_of_it |= {name: value for name, value in one.items() if value is not None or name not in all_of_it}
        all_of_it["devices"] = devices
    return all_of_it


def checked_name(name: str) -> str:
    """The name of a baseline. Raises ValueError, one line, for what cannot be a file's name."""
    if (
        not name.strip()
        or ".." in name
        or name.startswith(".")
        or any(character in "/\\" or not character.isprintable() for character in name)
        or len(os.fsencode(name)) > 200
    ):
        raise ValueError(f"the name of a baseline is one of a file, without a folder, such as main; not {name!r}")
    return name


def last_of_each(records: Iterable[Record]) -> list[Record]:
    """One record a test: one that was run again counts as it ended."""
    return list({record["nodeid"]: record for record in records}.values())


def row_of(figures: Mapping[str, Any]) -> Row:
    """What a file keeps of a record's figures on one device."""
    row = {name: figures.get(name) for name in _FIGURES}
    contributors = figures.get("contributors") or []
    row["contributors"] = [_contributor(one) for one in contributors[:CONTRIBUTORS]]
    return row


def _contributor(one: Sequence[Any]) -> list[Any]:
    """Bytes, blocks, place, phase, text of the line; "" where the record has no text."""
    size, count, place, phase, *text = one
    return [size, count, place, phase, text[0] if text else ""]


def save(root: Path, name: str, records: Iterable[Record], environment: Mapping[str, Any]) -> list[Saved]:
    """Writes what passed into the file of each device's key; rows of tests that are not among them stay.

    Each file is replaced as a whole. Raises Error, one line, where a file is there and cannot be read, or written.
    """
    if not environment.get("torch"):  # no test used PyTorch: what its figures would depend on is unknown
        return []
    passed = [record for record in last_of_each(records) if record["outcome"] == "passed"]
    by_key: dict[str, list[str]] = {}
    for device, key in keys_of(environment, passed).items():
        by_key.setdefault(key, []).append(device)
    saved = []
    for key, devices in sorted(by_key.items()):
        path = root / FOLDER / key / f"{name}.json"
        old = _read(root, path) or {}
        new = {
            record["nodeid"]: {
                device: row_of(record["devices"][device]) for device in devices if device in record["devices"]
            }
            for record in passed
        }
        if new:
            replace_file(path, "".join(_lines({**old, **new})))
            saved.append(Saved(path, len(new), len(old.keys() - new.keys())))
    return saved


def load(root: Path, name: str) -> Baseline:
    """The baseline of that name, of all devices. Raises Error, one line, where there is none or a file is damaged."""
    found = find(root, name)
    if found is None:
        others = ", ".join(sorted({path.stem for path in (root / FOLDER).glob("*/*.json")}))
        there = f"the baselines there are: {others}" if others else "no baseline was ever saved there"
        raise Error(f"{FOLDER}/*/{name}.json: not in {root}; {there}. Save one with --cuptimem-save={name}")
    return found


def find(root: Path, name: str) -> Baseline | None:
    """The same, None where there is none. Raises Error, one line, where a file is damaged."""
    files = _all(root, name)
    return Baseline(name, files) if files else None


def check(root: Path, name: str) -> None:
    """Before a run that ends with `save`: raises Error, one line, where that would fail for what a file holds."""
    _all(root, name)


def _all(root: Path, name: str) -> dict[str, Tests]:
    try:
        folders = sorted((root / FOLDER).iterdir())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Error(f"{root / FOLDER}: {error.strerror}; this folder is where baselines are kept") from None
    found = {folder.name: _read(root, folder / f"{name}.json") for folder in folders}
    return {key: tests for key, tests in found.items() if tests is not None}


def _read(root: Path, path: Path) -> Tests | None:
    """None: there is no such file. Raises Error, one line, for one that is damaged."""
    try:
        return _tests(json.loads(regular_files.content(path, _LARGEST)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        wrong = str(error.strerror)
    except _OtherSchema as error:
        raise Error(f"{path.relative_to(root)}: {error}; use the version of cuptimem that wrote it") from None
    except RecursionError:
        wrong = "nested too deeply"
    except json.JSONDecodeError as error:
        wrong = f"not JSON in line {error.lineno}, column {error.colno}"
    except UnicodeDecodeError:
        wrong = "not UTF-8"
    except ValueError as error:
        wrong = str(error)
    raise Error(
        f"{path.relative_to(root)}: {wrong}; restore the file, or remove it and save again "
        f"with --cuptimem-save={path.stem}"
    )


class _OtherSchema(Exception):
    """The file is one of another version of cuptimem."""


def _tests(document: object) -> Tests:
    """The tests of a file, every value checked. Raises ValueError with what is wrong."""
    if not isinstance(document, dict) or type(document.get("schema")) is not int:
        raise ValueError("not a baseline of cuptimem")
    if document["schema"] != SCHEMA:
        raise _OtherSchema(f"its schema is {document['schema']}, and this cuptimem reads {SCHEMA}")
    tests = document.get("tests")
    if not isinstance(tests, dict):
        raise ValueError("there are no tests in it")
    for nodeid, devices in tests.items():
        if not isinstance(devices, dict):
            raise ValueError(f"{_brief(nodeid)} has no devices")
        for device, row in devices.items():
            if not isinstance(row, dict):
                raise ValueError(f"{_brief(nodeid)} has no figures for {_brief(device)}")
            for wrong in _wrong(row):
                raise ValueError(f"{_brief(nodeid)}, {_brief(device)}: {wrong}")
    return tests


def _wrong(row: Mapping[str, Any]) -> Iterator[str]:
    for name in _FIGURES:
        if not (_is_count(row.get(name)) or (name == "leaked" and row.get(name, 0) is None)):
            yield f"{name} is {_brief(row.get(name, 'missing'))}"
    contributors = row.get("contributors")
    if isinstance(contributors, list) and len(contributors) > CONTRIBUTORS:
        yield f"it has {len(contributors)} contributors, and a row has at most {CONTRIBUTORS}"
    for one in contributors if isinstance(contributors, list) else [contributors]:
        if not (
            isinstance(one, list)
            and len(one) == 5
            and all(map(_is_count, one[:2]))
            and all(isinstance(text, str) for text in one[2:])
        ):
            yield f"a contributor is {_brief(one)}"


def _brief(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _lines(tests: Tests) -> Iterator[str]:
    """JSON with a contributor a line, in an order that only depends on what is in it: made for diffs of two saves."""
    yield f'{{\n "schema": {SCHEMA},\n "tests": {{'
    for i, (nodeid, devices) in enumerate(sorted(tests.items())):
        yield f"{',' * (i > 0)}\n  {json_text(nodeid)}: {{"
        for j, (device, row) in enumerate(sorted(devices.items())):
            yield f"{',' * (j > 0)}\n   {json_text(device)}: {{\n"
            for name in sorted(_FIGURES):
                yield f'    "{name}": {json_text(row[name])},\n'
            yield '    "contributors": ['
            yield ",".join(f"\n     {json_text(one)}" for one in row["contributors"])
            yield "\n    ]\n   }" if row["contributors"] else "]\n   }"
        yield "\n  }" if devices else "}"
    yield "\n }\n}\n" if tests else "}\n}\n"


def json_text(value: object, indent: int | None = None) -> str:
    """Readable in a diff, and safe on a terminal: with a character that cannot be seen, it is ASCII."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return text if text.replace("\n", "").isprintable() else json.dumps(value, indent=indent)


def encoded(text: str) -> bytes:
    """JSON as UTF-8. A lone surrogate, which a test's id may have, is written as the escape that JSON has for it."""
    return text.encode("utf-8", "backslashreplace")


def replace_file(path: Path, text: str) -> None:
    """A file that has all of the text or is as it was before. Raises Error, one line, where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(encoded(text))
    except OSError as error:
        raise Error(f"{path}: {error.strerror}; it was not written") from None
