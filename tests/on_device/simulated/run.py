"""python -m tests.on_device.simulated.run NAME TRACE [KIND ...]: that program under cuptimem and PyTorch's own history,
checked as it goes. Prints one JSON object with what was compared.

KIND spoils what is read of the recording: one event of that kind is left out, to see that the checks notice. Then the
object has what they said first of each.
"""

import importlib
import json
import sys
from pathlib import Path

import torch

import cuptimem
from tests.on_device.simulated import checks
from tests.on_device.simulated.ending import leave
from tests.on_device.simulated.programs import PROGRAMS


def main() -> None:
    program, trace = PROGRAMS[sys.argv[1]], Path(sys.argv[2])
    module = importlib.import_module(f"tests.on_device.simulated.programs.{program.name}")
    if program.back_end in ("native", "expandable"):
        torch.cuda.memory._record_memory_history("all", context=None)
    log, report = checks.files()
    checker, kinds = checks.Checker(program, trace, log, report), sys.argv[3:]
    with cuptimem.profile(trace) as prof:
        if kinds:
            noticed: dict[str, str] = {}
            module.main(
                lambda label, *, quiet=False, held=0: checker.misses(kinds, noticed, label, quiet=quiet, held=held)
            )
            print(json.dumps(noticed))
            return
        module.main(checker)
    peaks = {}
    for index in range(program.devices):
        device = prof.report.device(f"cuda:{index}")
        peaks[device.name] = device.peak.bytes
        if program.back_end in ("native", "expandable"):
            checks.same(f"{program.name}: the report's peak", device.peak.bytes, torch.cuda.max_memory_allocated(index))
    print(json.dumps({"counts": checker.counts, "peaks": peaks, "lost": prof.report.lost.events}))


if __name__ == "__main__":
    main()
    leave()
