"""Makes the answer, a Simulation, out of the runs that it rests on."""

import os

from cudasim.report import Note
from cuptimem.output.text import advice_views
from cuptimem.report.advice import Advice
from cuptimem.report.model import Peak
from cuptimem.simulation import cards, margins
from cuptimem.simulation.environment import TorchBuild
from cuptimem.simulation.facts import DeviceFacts, Facts
from cuptimem.simulation.launch import Setup
from cuptimem.simulation.questions import Answer, is_modelled_open
from cuptimem.simulation.result import DeviceUse, Entry, Interval, Modelled, Simulation

_CONTEXT = "CUDA context"  # as the simulator's notes name it, too


def simulation(answer: Answer, setup: Setup, build: TorchBuild, notes: tuple[str, ...]) -> Simulation:
    """The whole answer to one question."""
    main = answer.main
    run = (answer.first or main).run  # the one that had the program's streams
    return Simulation(
        verdict=answer.verdict,
        reason=answer.reason,
        card=setup.card.key,
        memory=setup.memory,
        devices=_devices(answer, setup),
        peak=_peak(answer),
        need=answer.need,
        advised=_advised(answer),
        smallest_memory=answer.smallest_memory,
        setting=answer.setting,
        smallest_card=answer.smallest_card,
        modelled=_modelled(answer, setup),
        host_reads=main.host_reads,
        reads=main.unknown_reads,
        assumptions=main.assumptions,
        undescribed=tuple(Entry(note.name, note.count) for note in main.undescribed),
        refused=tuple(Entry(note.name, note.count) for note in main.unsupported),
        notes=(*notes, *answer.notes, *_said(main), *_of_card(main, setup, build)),
        hints=answer.hints,
        attempts=answer.attempts,
        caught_ooms=main.ooms if main.ended_well else 0,
        retries=main.retries,
        exit_code=run.exit_code,
        signal=run.signal,
        seconds=run.seconds,
        torch=build.version,
        cuda=build.cuda or "",
        output=run.output,
        report=main.report,
        name="" if main.report is None else os.path.basename(main.report.environment.get("script", "")),
    )


def _devices(answer: Answer, setup: Setup) -> tuple[DeviceUse, ...]:
    high = {device.index: device for device in answer.high.devices} if answer.high is not None else {}
    # Where the high end did not get through even without a limit, its height is unknown.
    open_end = answer.high is None and answer.verdict == "undecided" and answer.main.ended_well and _tried_high(answer)
    return tuple(_device(device, high.get(device.index), open_end, answer, setup) for device in answer.main.devices)


def _tried_high(answer: Answer) -> bool:
    return any(attempt.what.startswith("high end") for attempt in answer.attempts)


def _device(device: DeviceFacts, high: DeviceFacts | None, open_end: bool, answer: Answer, setup: Setup) -> DeviceUse:
    def interval(low: int, top: int | None) -> Interval:
        if open_end:
            return Interval(low, None)
        return Interval(low, low if top is None else max(low, top))

    low, top, context = device.used, None if high is None else high.used, setup.context_range
    if answer.main.ended_well:  # a run that was out of memory reached what there was, whatever its context took of it
        at_top = (device, setup) if high is None or answer.high is None else (high, answer.high.run.setup)
        low, top = margins.used(device, setup, context.low), margins.used(*at_top, context.high)
    return DeviceUse(
        device=device.name,
        total=device.total,
        context=device.context,
        context_range=Interval(*(margins.context(device, setup, each) for each in (context.low, context.high))),
        allocated=interval(device.allocated, None if high is None else high.allocated),
        reserved=None
        if device.reserved is None
        else interval(device.reserved, None if high is None else high.reserved),
        used=interval(low, top),
        refused=device.refused,
    )


def _peak(answer: Answer) -> Peak | None:
    """The peak of the fullest device. Where it did not fit, that of the run without a limit."""
    facts = answer.unlimited if answer.unlimited is not None and answer.unlimited.ended_well else answer.main
    fullest = facts.fullest
    if facts.report is None or fullest is None:
        return None
    for device in facts.report.devices:
        if device.name == fullest.name and device.peak.bytes > 0:
            return device.peak
    return None


def _advised(answer: Answer) -> Advice | None:
    facts = answer.unlimited
    report, fullest = (None, None) if facts is None else (facts.report, facts.fullest)
    if answer.need is None or facts is None or fullest is None or report is None or not report.lived:
        return None
    if facts.processes > 1 or all(one.name != fullest.name for one in report.devices):
        return None  # lines are those of the program's own process
    return advice_views.quick(report, fullest.name)


def _modelled(answer: Answer, setup: Setup) -> tuple[Modelled, ...]:
    high = None if answer.high is None else {note.name: note.bytes for note in answer.high.modelled}

    def high_bytes(note: Note) -> int | None:
        given = setup.conv_workspace is not None and note.name.endswith("workspace")
        if given or not is_modelled_open(note.name):
            return note.bytes
        return None if high is None else max(note.bytes, high.get(note.name, 0))

    rows = [
        Modelled(note.name, note.bytes, high_bytes(note), note.count)
        for note in answer.main.modelled
        if note.name != _CONTEXT
    ]
    numbers = [margins.contexts(device, setup) for device in answer.main.devices if device.context]
    if numbers:
        context = setup.context_range
        rows.insert(0, Modelled(_CONTEXT, max(numbers) * context.low, max(numbers) * context.high, sum(numbers)))
    return tuple(rows)


def _of_card(main: Facts, setup: Setup, build: TorchBuild) -> list[str]:
    """Notes where the kind of card matters, and not only its size."""
    card, said = setup.card, []
    if not card.has_kernels:
        said.append(
            f"torch {build.version} has no kernels for {card.key} ({card.architecture}), so nothing runs on a real "
            "one: a build for CUDA 12.6 does, and may take other sizes"
        )
    others = [one for one in cards.of_size(setup.memory) if one.cublas_workspace != card.cublas_workspace]
    multiplied = any(note.name.startswith("cuBLAS") for note in main.modelled)
    if multiplied and others and setup.memory != card.memory and "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
        said.append(
            f"--memory changes the size alone: cuBLAS, which multiplies matrices, gets as much to work in as on "
            f"{card.key}, {cards.text(card.cublas_workspace)} for each handle and stream; it is "
            f"{cards.text(others[0].cublas_workspace)} with --device {_either([one.key for one in others])}"
        )
    return said


def _either(words: list[str]) -> str:
    """l4; a10g, l4 or t4"""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _said(facts: Facts) -> list[str]:
    said = list(facts.problems)
    if facts.report is None:
        said.append(f"there is no recording of the program, so no line is known: {facts.report_problem}")
    if facts.processes > 1:
        said.append(
            f"{facts.processes} processes used the device, each as if it had it for itself: device used is the sum of "
            "their peaks, lines are those of the program's own process"
        )
    if facts.limited or facts.limits:
        said.append("this machine, not the simulated device, refused address space: see ulimit -v")
    if facts.backend is not None and facts.backend != "native":
        said.append(f"PyTorch's allocator was {facts.backend}: it keeps no segments of its own")
    if facts.unknown_reads_dropped:
        said.append(
            f"{facts.unknown_reads_dropped} reads of unknown values are of lines that found no room in the note"
        )
    shown = sum(read.count for read in facts.host_reads if not read.written)
    if facts.reads > shown:
        said.append(
            f"{facts.reads - shown} host reads of simulated values have no Python line (other processes, no recording)"
        )
    return said
