"""python -m evidence.advice.ask FOLDER [NAME ...] [--try]

Records each unchanged program on the simulated device and asks cuptimem what to change: FOLDER/NAME.json. This process
reads no truth: no NAME.json beside a program, no changed program.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cuptimem.advice.catalogue import TECHNIQUES
from evidence.advice import suite

TIMEOUT = 900
READ = frozenset(one.name for one in TECHNIQUES if one.reads)  # which are foretold of readers where these are known


def cuptimem(arguments: list[str | Path], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [suite.PYTHON, "-m", "cuptimem", *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=TIMEOUT)


def answer(arguments: list[str | Path], folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    """The JSON of a verb, or {"error": ...}."""
    return _json(cuptimem(arguments, folder, variables))


def _json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return {"error": (done.stderr or done.stdout).strip()[-500:] or f"ended with status {done.returncode}"}
    return dict(found)


def script(code: str, given: object, folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    """What a script of its own process answers to this JSON, or {"error": ...}."""
    command = [suite.PYTHON, "-c", code]
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


WHAT_IF = """\
import json, sys
from cuptimem import advice
from cuptimem.errors import Error
from cuptimem.report import load
from cuptimem.simulation import changes

trace, wanted = json.load(sys.stdin)
report, answers = load.analyze(trace, with_lives=True), {}
for key, text in wanted.items():
    name, _, value = text.partition("=")
    try:
        answers[key] = {"bytes": advice.estimate(report, **{name: value or True}).bytes}
    except Error as error:
        answers[key] = {"error": str(error)}
json.dump(answers, sys.stdout)
"""
TRY = """\
import contextlib, dataclasses, json, os, sys, tempfile
from cuptimem import advice
from cuptimem.cli import advice_try
from cuptimem.errors import Error
from cuptimem.output import json as output
from cuptimem.report import load
from cuptimem.simulation import api, changes, tries

path, arguments, wanted, foretold = json.load(sys.stdin)
answers = {}
for key, text in wanted.items():
    try:
        changes.parse(text)
    except Error as error:
        answers[key] = {"error": str(error)}
able = {key: text for key, text in wanted.items() if key not in answers}
# Workspaces of convolutions as the truth has them.
device = dataclasses.replace(api.make_setup("h100", tries.NO_LIMIT, 1, None, None, None), high_end=True)
made = tempfile.TemporaryDirectory()
folder = made.name
trace, readers = os.path.join(folder, "run.cmem"), os.path.join(folder, "readers.json")
asked = list(dict.fromkeys(able.values()))
options = {"steps": None, "device": device, "trace": trace, "readers": readers}
several = tries.run(
    path,
    arguments,
    asked,
    operators=lambda: advice_try.operators_in_place(trace, readers),
    released=lambda: advice_try.released(readers),
    **options,
)
released = json.loads(advice_try.released(readers)) if not several[0].unread else {}
found = {tried.change: tried for tried in several}
answers |= {key: dataclasses.asdict(found.get(text, found[""])) for key, text in able.items()}
read = "" if several[0].unread else readers
advised, _ = advice_try.predict(trace, read, [])
report, lives, what_if = load.analyze(trace, with_lives=True), advice_try.read(read), {}
for key, text in foretold.items():
    name, _, value = text.partition("=")
    with contextlib.suppress(Error):
        what_if[key] = {"bytes": advice.estimate(report, None, lives, **{name: value or True}).bytes}
said = output.advice(load.analyze(trace), advised)
found = {"tried": answers, "advice": said, "what_if": what_if, "unread": several[0].unread}
json.dump({**found, "unchanged": several[0].peak_bytes, "released": released.get(path, [])}, sys.stdout)
"""


def tried(program: suite.Program, folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    """What each change put into the unchanged program answers, by key, and what a run with readers foretells."""
    foretold = {change.key: what_if(change) for change in program.changes} | {"release": "release"}
    asked = {key: text.partition(":")[0] for key, text in foretold.items()}
    found = script(TRY, [str(program.path), program.arguments, asked, foretold], folder, variables)
    return found if "error" not in found else {"tried": {key: {"error": found["error"]} for key in asked}}


def ask(program: suite.Program, folder: Path, tries: bool) -> dict[str, Any]:
    variables = suite.environment() | {"PYTHONPATH": str(suite.ROOT)}
    simulated = {**variables, "PYTHONPATH": str(suite.STAND_INS)}
    trace = folder / f"{program.name}.cmem"
    trace.unlink(missing_ok=True)
    recorded = cuptimem(["run", "-o", trace, program.path, *program.arguments], folder, simulated)
    if recorded.returncode or not trace.exists():
        return {"error": recorded.stderr.strip()[-500:]}
    plain = {name: value for name, value in variables.items() if name != "LD_PRELOAD"}
    begin = time.monotonic()
    said = {"advice": answer(["advice", "--json", trace], folder, plain), "seconds": time.monotonic() - begin}
    wanted = {change.key: what_if(change) for change in program.changes}
    said["what_if"] = script(WHAT_IF, [str(trace), wanted], folder, plain)
    if tries:
        again = tried(program, folder, plain)
        said["tried"], said["unchanged"] = again["tried"], again.get("unchanged")
        if again.get("unread") == "":
            said["advice"] = again["advice"]
            said["released"] = again["released"]
            read = [change.key for change in program.changes if change.technique in READ]
            said["what_if"] |= {key: again["what_if"].get(key, {}) for key in ("release", *read)}
    trace.unlink()
    return said


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.advice.ask")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--try", action="store_true", dest="tries")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for program in suite.programs(options.names, counted=False):
        said = ask(program, options.folder.resolve(), options.tries)
        (options.folder / f"{program.name}.json").write_text(json.dumps(said, indent=1) + "\n")
        print(f"{program.name}: {said.get('error') or len(said['advice'].get('proposals', ()))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
