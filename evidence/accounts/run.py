"""python -m evidence.accounts.run NAME DEVICE WAY FOLDER: a program, accounted for by itself and by cuptimem.

WAY is "inside": the model is made within one profile; or "windows": it was there before, and more profiles end behind
the last forward and backward pass, one of which begins only before that forward. Prints one JSON object.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import cuptimem
from cuptimem.report.model import Contents, Peak
from evidence.accounts import independent
from evidence.accounts.independent import Account
from evidence.accounts.programs import PROGRAMS, Training, steps
from tests.on_device.simulated.ending import leave

STEPS = 4


def account(training: Training, batch: tuple[torch.Tensor, ...], made: independent.Made) -> Account:
    found = independent.of_objects(training.models, training.optimizers, [*batch, *training.inputs()])
    independent.add_living(found, next(training.models[0].parameters()).device, made, training.kept)
    return found


def own(found: Account) -> dict[str, Any]:
    return {"bytes": found.bytes, "modules": found.modules, "tensors": found.tensors}


def by_cuptimem(contents: Contents) -> dict[str, Any]:
    found: Counter[str] = Counter()
    modules: dict[str, Counter[str]] = {}
    for one in contents.contributors:
        found[one.category] += one.bytes
        modules.setdefault(one.category, Counter())[one.qualified or ""] += one.bytes
    said = {"bytes": found, "modules": modules, "total": contents.bytes}
    if isinstance(contents, Peak):
        said["tensors"] = [(t.category, t.name, t.dtype, t.shape, t.bytes) for t in contents.tensors]
    return said


def recorded(name: str, device: torch.device, way: str, folder: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    training = PROGRAMS[name](device) if way == "windows" else None
    said: dict[str, Any] = {"torch": torch.__version__}

    def window(file: str) -> Any:
        return cuptimem.profile(folder / f"{file}.cmem", overwrite=True)

    def read(moment: str, profile: Any) -> None:
        said[moment]["cuptimem"] = by_cuptimem(profile.report.contents("end", str(device)))

    with window("whole") as whole:
        outer = {moment: window(moment) for moment in ("after forward", "after backward") if training is not None}
        for one in outer.values():
            one.start()
        inner = None
        training = training or PROGRAMS[name](device)
        left = STEPS * training.micro_batches
        course = steps(training, STEPS)  # by a name, so that what it has is alive to the end
        for moment, batch in course:
            left -= moment == "before forward"
            if left > 0:
                continue
            if moment == "before forward":
                if outer:
                    inner = window("forward alone")
                    inner.start()
                continue
            said[moment] = {"independent": own(account(training, batch, independent.Made()))}
            if moment == "end":
                break
            if moment in outer:
                if inner is not None and moment == "after forward":
                    inner.stop()
                outer[moment].stop()
    read("end", whole)
    for moment, one in outer.items():
        read(moment, one)
    if inner is not None:
        said["forward alone"] = {"independent": said["after forward"]["independent"]}
        read("forward alone", inner)
    report = whole.report
    said["peak"] = {
        "independent": said["end"]["independent"],
        "cuptimem": by_cuptimem(report.contents("peak", str(device))),
    }
    del course, batch
    watched = independent.Watched(training.models, training.forward)
    for moment, batch in steps(training, 1, watched):
        if moment == "after forward":
            saved = own(account(training, batch, watched.made))
    for moment in ("after forward", "forward alone"):
        if moment in said:
            for key, category in itertools.product(("bytes", "modules"), (training.kept, "autocast cache")):
                if category in saved[key]:
                    said[moment]["independent"][key][category] = saved[key][category]
    return said


def main() -> None:
    name, device, way, folder = sys.argv[1:]
    torch.set_num_threads(1)
    at = torch.device(device, 0) if device == "cuda" else torch.device(device)
    try:
        said = recorded(name, at, way, Path(folder))
    except ModuleNotFoundError as error:
        said = {"missing": f"{error.name} is not installed"}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
    leave()
