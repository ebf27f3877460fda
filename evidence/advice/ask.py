"""python -m evidence.advice.ask FOLDER [NAME ...] [--try | --read | --again]

Records each unchanged program on the simulated device and asks cuptimem what to change: FOLDER/NAME.json. This process
reads no truth: no NAME.json beside a program, no changed program. --try tries each change; --read runs the unchanged
program of the tries alone, for what reads its blocks; --again predicts once more from the recordings that an earlier
call left in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.advice import suite
from tests.pythons import WITH_LIBRARIES

TIMEOUT = 900


def cuptimem(arguments: list[str | Path], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [WITH_LIBRARIES, "-m", "cuptimem", *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=TIMEOUT)


def _json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return {"error": (done.stderr or done.stdout).strip()[-500:] or f"ended with status {done.returncode}"}
    return dict(found)


def script(code: str, given: object, folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    """What a script of its own process answers to this JSON, or {"error": ...}."""
    command = [WITH_LIBRARIES, "-c", code]
    return _json(
        subprocess.run(
            command,
            input=json.dumps(given),
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    )


def what_if(change: suite.Change) -> str:
    """The change in the words of --what-if."""
    return change.technique if change.value is None else f"{change.technique}={change.value}"


PREDICT = """\
import contextlib, json, sys
from cuptimem.cli import advice_try
from cuptimem.errors import Error
from cuptimem.output import json as output
from cuptimem.report import load
from cuptimem.simulation import changes

trace, readers, wanted = json.load(sys.stdin)
adviser, what_if = advice_try.adviser(trace, readers), {}
for key, text in wanted.items():
    name, _, value = text.partition("=")
    try:
        what_if[key] = {"bytes": adviser.estimate(**{name: value or True}).bytes}
    except Error as error:
        what_if[key] = {"error": str(error)}
found = {"advice": output.advice(load.analyze(trace), adviser.advise()), "what_if": what_if}
if readers:
    places = advice_try.places(trace, readers)
    found |= {"released": json.loads(places["release"]), "without_graph": places.get("no_grad", "")}
    found |= {"in_place": advice_try.operators_in_place(trace, readers)}
json.dump(found, sys.stdout)
"""
TRY = """\
import dataclasses, json, sys
from cuptimem.cli import advice_try
from cuptimem.errors import Error
from cuptimem.simulation import api, changes, tries

path, arguments, wanted, trace, readers = json.load(sys.stdin)
answers = {}
for key, text in wanted.items():
    try:
        changes.parse(text)
    except Error as error:
        answers[key] = {"error": str(error)}
able = {key: text for key, text in wanted.items() if key not in answers}
# Workspaces of convolutions as the truth has them.
device = dataclasses.replace(api.make_setup("h100", tries.NO_LIMIT, 1, None, None, None), high_end=True)
several = tries.run(
    path,
    arguments,
    list(dict.fromkeys(able.values())),
    steps=None,
    device=device,
    trace=trace,
    readers=readers,
    operators=lambda: advice_try.operators_in_place(trace, readers),
    places=lambda: advice_try.places(trace, readers),
)
found = {tried.change: tried for tried in several}
answers |= {key: dataclasses.asdict(found.get(text, found[""])) for key, text in able.items()}
json.dump({"tried": answers, "unread": several[0].unread, "unchanged": dataclasses.asdict(several[0])}, sys.stdout)
"""


@dataclass(frozen=True)
class Recordings:
    """Of one program, kept beside its answer."""

    run: Path  # of `cuptimem run`
    unchanged: Path  # of the tries' unchanged run
    readers: Path

    @classmethod
    def of(cls, program: suite.Program, folder: Path) -> Recordings:
        return cls(*(folder / f"{program.name}.{end}" for end in ("cmem", "unchanged.cmem", "readers.json")))

    def remove(self) -> None:
        for path in (self.run, self.unchanged, self.readers, Path(f"{self.readers}.cmem")):
            path.unlink(missing_ok=True)


def foretold(program: suite.Program) -> dict[str, str]:
    return {change.key: what_if(change) for change in program.changes} | {name: name for name in suite.FOLLOWED}


def tried(program: suite.Program, kept: Recordings, every: bool, variables: dict[str, str]) -> dict[str, Any]:
    """What each change put into the unchanged program answers, by key, or its unchanged run alone."""
    asked = foretold(program) if every else {}
    given = [str(program.path), program.arguments, asked, str(kept.unchanged), str(kept.readers)]
    found = script(TRY, given, kept.run.parent, variables)
    return found if "error" not in found else {"tried": {key: {"error": found["error"]} for key in asked}}


def predicted(program: suite.Program, kept: Recordings, read: bool, variables: dict[str, str]) -> dict[str, Any]:
    """What the kept recordings foretell. read: whether readers are known."""
    recordings = [str(kept.unchanged), str(kept.readers)] if read else [str(kept.run), ""]
    found = script(PREDICT, [*recordings, foretold(program)], kept.run.parent, variables)
    if "error" in found:
        return {"advice": found}
    for path, places in found.pop("released", {}).items():
        if Path(path).name == program.path.name:
            found["released"] = places
    return found


def ask(program: suite.Program, folder: Path, tries: bool, read: bool) -> dict[str, Any]:
    variables = suite.environment() | {"PYTHONPATH": str(suite.ROOT)}
    simulated = {**variables, "PYTHONPATH": str(suite.STAND_INS)}
    plain = {name: value for name, value in variables.items() if name != "LD_PRELOAD"}
    kept = Recordings.of(program, folder)
    kept.remove()
    recorded = cuptimem(["run", "-o", kept.run, program.path, *program.arguments], folder, simulated)
    if recorded.returncode or not kept.run.exists():
        return {"error": recorded.stderr.strip()[-500:]}
    found = tried(program, kept, tries, plain) if tries or read else {}
    return found | predicted(program, kept, found.get("unread") == "", plain)


def ask_again(program: suite.Program, folder: Path) -> dict[str, Any]:
    """The earlier answer with what the rules of today say of its recordings. Tries are as they were: raises ValueError
    where a row names other variables or operators than were tried."""
    said: dict[str, Any] = json.loads((folder / f"{program.name}.json").read_text())
    plain = {name: value for name, value in suite.environment().items() if name != "LD_PRELOAD"}
    plain["PYTHONPATH"] = str(suite.ROOT)
    found = predicted(program, Recordings.of(program, folder), said.get("unread") == "", plain)
    for name in ("released", "in_place", "without_graph"):
        if found.get(name) != said.get(name):
            raise ValueError(f"{program.name}: {name} is {found.get(name)} now: to be tried again")
    return said | found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.advice.ask")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--try", action="store_true", dest="tries")
    how.add_argument("--read", action="store_true")
    how.add_argument("--again", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for program in suite.programs(options.names, counted=False):
        folder = options.folder.resolve()
        said = ask_again(program, folder) if options.again else ask(program, folder, options.tries, options.read)
        (options.folder / f"{program.name}.json").write_text(json.dumps(said, indent=1) + "\n")
        print(f"{program.name}: {said.get('error') or len(said['advice'].get('proposals', ()))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
