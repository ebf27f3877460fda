"""The JSON objects of verbs that run programs on a simulated device, as docs/json.md documents them."""

from collections.abc import Mapping, Sequence
from typing import Any

from cuptimem.output.json import SCHEMA, envelope, keys, of
from cuptimem.report.advice import Advice, Proposal
from cuptimem.simulation import changes
from cuptimem.simulation.fitting import Row
from cuptimem.simulation.largest import Largest
from cuptimem.simulation.launch import Setup
from cuptimem.simulation.ranks import Ranks
from cuptimem.simulation.result import Assumption, Attempt, Simulation, UnknownRead
from cuptimem.simulation.tries import Tried

keys(
    Simulation,
    "verdict fits exit_code reason hints notes name card memory devices peak need leaks proposals "
    "smallest_memory setting "
    "smallest_card modelled host_reads reads assumptions undescribed refused caught_ooms retries attempts program "
    "torch cuda",
    exit_code="code",
    leaks=lambda one: [] if one.advised is None else [of(leak) for leak in one.advised.leaks],
    proposals=lambda one: [] if one.advised is None else [of(row) for row in one.advised.proposals],
    host_reads=lambda one: [of(read, "count bytes device written line stack") for read in one.host_reads],
    program=lambda one: {"exit_code": one.exit_code, "signal": one.signal, "seconds": one.seconds},
)
keys(
    Row,
    "name card memory verdict fits free takes reserved allocated by reason",
    name=lambda one: one.case.name,
    card=lambda one: one.case.setup.card.key,
    memory=lambda one: one.case.setup.memory,
    fits=lambda one: {"fits": True, "undecided": None}.get(one.verdict, False),
    reserved=lambda one: _fullest(one, "reserved"),
    allocated=lambda one: _fullest(one, "allocated"),
)
keys(UnknownRead, "kind dtype count elements line library")
keys(
    Assumption,
    "operator share given count elements bytes file? line function? library",
    share="fraction",
    line=lambda one: one.line if one.file else None,
)
keys(Attempt, "with outcome used seconds", **{"with": "what"})

_TRIED = "peak_bytes reserved_bytes steps cpu_seconds error"


def simulate(one: Simulation) -> dict[str, Any]:
    assert one.report is not None, "inquire() gives none without"
    return {**envelope(one.report), **of(one)}


def fits(rows: Sequence[Row], code: int) -> dict[str, Any]:
    return {"schema": SCHEMA, "exit_code": code, "rows": [of(row) for row in rows]}


def ranks(found: Sequence[Ranks], world_size: int, code: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "exit_code": code,
        "world_size": world_size,
        "rows": [
            {"ranks": list(one.ranks), "run": list(one.run), **({"verdict": None} if one.row is None else of(one.row))}
            for one in found
        ],
    }


def _fullest(row: Row, name: str) -> Any:
    """Of a run that fitted."""
    devices = row.simulation.devices if row.simulation is not None and row.verdict == "fits" else ()
    fullest = max(devices, key=lambda device: device.used.low, default=None)
    found = None if fullest is None else getattr(fullest, name)
    return None if found is None else {"low": found.low, "high": found.high}


def tries(
    device: str,
    found: Sequence[Tried],
    predicted: Mapping[str, int],
    advised: Advice | None,
    untried: Sequence[Proposal] = (),
) -> dict[str, Any]:
    """found: the program as it is first; predicted: the peak with a change; advised: None where nothing is recorded;
    untried: proposals that are none of the found."""
    as_it_is, *tried = found
    return {
        "schema": SCHEMA,
        "device": device,
        "as_it_is": of(as_it_is, _TRIED),
        "output": as_it_is.output,
        "leaks": [] if advised is None else [of(one) for one in advised.leaks],
        "proposals": [of(one) for one in untried],
        "tried": [
            {
                "change": one.change,
                "free": changes.is_free(one.change),
                **of(one, _TRIED),
                "applied": one.applied,
                "why_not": one.why_not or None,
                "predicted_bytes": predicted.get(one.change),
                "frame": of(one.frame),
                "write": one.write or None,
                "proposal": of(advised.proposal(one.change)) if advised is not None else None,
            }
            for one in tried
        ],
    }


def largest(found: Largest, setup: Setup) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "card": setup.card.key,
        "memory": setup.memory,
        "answer": found.answer,
        "exit_code": found.code,
        "reason": found.reason,
        "size": found.size,
        "next": found.next,
        "predicted": found.predicted,
        "context": found.context,
        "whole": found.whole,
        "tried": [
            {"size": one.size, "fits": one.fits, "whole": one.whole, **of(one.tried, _TRIED), "ooms": one.tried.ooms}
            for one in found.tries
        ],
    }
