"""The one JSON object of `cuptimem simulate --json`, as docs/json.md documents it."""

from typing import Any

from cuptimem.output.json import envelope, keys, of
from cuptimem.simulation.result import Assumption, Attempt, Simulation, UnknownRead

keys(
    Simulation,
    "verdict fits exit_code reason hints notes name card memory devices peak need smallest_memory setting "
    "smallest_card modelled host_reads reads assumptions undescribed refused caught_ooms retries attempts program "
    "torch cuda",
    exit_code="code",
    host_reads=lambda one: [of(read, "count bytes device written line stack") for read in one.host_reads],
    program=lambda one: {"exit_code": one.exit_code, "signal": one.signal, "seconds": one.seconds},
)
keys(UnknownRead, "kind dtype count elements line library")
keys(
    Assumption,
    "operator share given count elements bytes file? line function? library",
    share="fraction",
    line=lambda one: one.line if one.file else None,
)
keys(Attempt, "with outcome used", **{"with": "what"})


def simulate(one: Simulation) -> dict[str, Any]:
    assert one.report is not None, "inquire() gives none without"
    return {**envelope(one.report), **of(one)}
