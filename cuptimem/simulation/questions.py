"""Which runs are needed for an answer, and the answer.

The program runs once as it was asked for. All that follows is only run where it decides something:

- the *other outcomes*, where it read values that no kernel has computed and a size or a branch may hang on one
  (host_reads.py, outcomes.py). For a branch both ways must fit; of an integer the peak must not depend. The way that
  takes more is the program from then on: a loop that stops on such a flag runs to its own bound. So is the way on
  which it runs at all, where it fails with zeros;
- the *high end*, where something was modelled: every modelled part as large as its model allows, assumed fractions at
  1, events late, and the CUDA context at the highest that is published for the card. Only what fits there too is
  reported to fit. For the context alone arithmetic mostly decides (margins.py);
- *no limit*, where the device was too small: what the program really needs, and whether it fails for memory at all;
- the program with collections of Python's garbage, where a collection behind the refusal freed as much as was
  refused: whenever tensors have grown by a sixteenth of the device;
- other settings of PyTorch's allocator, where the tensors alone would find room;
- cards that are large enough, to find the smallest of them;
- the context at its low end, where the program did not fit with the middle, and the tensors alone would find room;
- smaller memory, where it fits by little: how little it could be.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cuptimem.output.text.words import place
from cuptimem.report.model import Device, Report
from cuptimem.simulation import cards, causes, child, margins, outcomes, settings
from cuptimem.simulation.facts import DeviceFacts, Facts
from cuptimem.simulation.launch import Setup
from cuptimem.simulation.result import Assumption, Attempt, Need, Smallest, UnknownRead, VerdictKind

NO_LIMIT = 2 << 40  # bytes of a device on which everything finds room
# The smallest memory that fits is worth runs only where it fits by little: with less free at its peak than this share.
_LITTLE_FREE = 0.15
_SMALLER_TRIED = 4  # runs
_FAILURES_PASSED = 3  # one behind the other, that go back to zeros
_SAME_BYTES, _SAME_SHARE = 64 << 20, 0.02  # of the device: bounds that are so near to each other are one number
# As cudnn_backend.c, nccl.c and objects_event.c of the simulator name them.
_WORKSPACES = ("cuDNN convolution workspace", "cuDNN attention workspace")
_EVENTS = "memory that waits for an event"
_COMMUNICATORS = "NCCL communicators"
_OPEN = {*_WORKSPACES, _COMMUNICATORS, _EVENTS}
_COLLECTS = f"gc.collect() at each {child.COLLECTED_SHARE}th of the memory"
_RUN_THE_HIGH_END = "leave --no-retry away: a run at the high end decides it"
_TRUST = "--trust-reads says that none does: that they are only printed, say"

Ask = Callable[[Setup, str], Facts]  # runs the program on a setup; the name is for the folder and for people


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict, and the runs that it rests on."""

    verdict: VerdictKind
    reason: str
    hints: tuple[str, ...]
    main: Facts
    first: Facts | None = None  # the first run, where the verdict rests on one with other outcomes
    high: Facts | None = None  # the high end, where it was run; with no limit if it did not fit
    high_ran: bool = False  # on the device that was asked for
    unlimited: Facts | None = None
    need: Need | None = None
    setting: str | None = None
    smallest_card: str | None = None
    smallest_memory: Smallest | None = None
    attempts: tuple[Attempt, ...] = ()
    notes: tuple[str, ...] = ()


class Interrupted(Exception):
    """The user ended the program: no more runs, no verdict."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user wants besides the device."""

    retry: bool = True  # run again where it decides something
    allow_oom: bool = False  # the program may catch OutOfMemoryErrors: it means to
    trust_reads: bool = False  # no size and no branch that matters hangs on a value read from the device
    alternatives: bool = True  # where it does not fit, what would; where it does by little, how little would do
    timeout: float | None = None


class Inquiry:
    """One question about one program."""

    def __init__(self, ask: Ask, setup: Setup, wishes: Wishes, variables: Mapping[str, str]) -> None:
        self._ask = ask
        self._setup = setup
        self._wishes = wishes
        self._variables = variables
        self._context = setup.context_range
        self._attempts: list[Attempt] = []
        self._notes: list[str] = []

    def answer(self) -> Answer:
        main = self._ask(self._setup, "as asked")
        if main.interrupted:
            raise Interrupted
        if main.crashed_at_exit and self._wishes.retry:
            self._notes.append("Python crashed while it shut down, after the program had ended: it was run again")
            main = self._run(self._setup, "again, after a crash at exit")
        answer = replace(self._judge(main), attempts=tuple(self._attempts), notes=tuple(self._notes))
        return answer if answer.main is main else replace(answer, first=main)

    # --- the main run ----------------------------------------------------------------------------

    def _judge(self, main: Facts) -> Answer:
        if main.run.timed_out:
            late = causes.of_timeout(main, self._wishes.timeout or 0)
            return self._undecided(main, late.text, late.hint)
        if main.run.signal is not None:
            return self._failed(main, causes.of_failure(main))
        if not main.ended_well:
            if main.ran_out or main.refused or main.ooms:
                return self._too_small(main)
            return self._run_past_failure(main) or self._failed(main, causes.of_failure(main))
        replaced = _replaced(main, self._setup.alloc_conf)
        if replaced:
            return self._undecided(main, f"the setting was not tried: the program sets {replaced} itself", "")
        cause = self._doubt(main)
        if cause is not None:
            return self._undecided(main, cause.text, cause.hint)
        if main.only_contexts:
            return self._undecided(
                main,
                "the program took nothing of a device but its context, so there is nothing to judge",
                'does it move its model and its data there, as with .to("cuda")?',
            )
        if not main.used_cuda:
            return self._undecided(
                main,
                "the program never used CUDA, so there is nothing to judge",
                "does it choose its device by an argument or a variable? Nothing in it asked for cuda",
            )
        if not main.report_problem and main.report is not None and main.report.lost.events:
            self._notes.append("events of the recording are lost: what the peak was made of may be wrong")
        largest, answer = self._with_other_outcomes(main)
        return answer or self._with_high_end(largest)

    # --- what it read that no kernel has computed -------------------------------------------------------

    def _with_other_outcomes(self, main: Facts) -> tuple[Facts, Answer | None]:
        """The run that takes most: further runs use its setup. An answer where the reads already give one."""
        if self._wishes.trust_reads:
            return main, None
        past = main.reads_past_pytorch
        if past:
            return main, self._hangs(main, past, "by code that is not PyTorch's: the other way cannot be run")
        if not self._wishes.retry:
            reads = main.open_reads
            return main, self._hangs(main, reads, "the other way was not run (--no-retry)") if reads else None
        largest, answer = self._with_other_branches(main)
        integers = any(read.kind == "integer" for read in largest.unknown_reads)
        if answer is None and integers and not self._setup.other_integers:
            answer = self._with_other_integers(largest)
        return largest, answer

    def _with_other_branches(self, main: Facts) -> tuple[Facts, Answer | None]:
        branches = outcomes.branches(main)
        if self._setup.other_branches or not (branches or main.unfollowed):
            return main, None
        setup = replace(self._setup, other_branches=True)
        other = self._run(setup, outcomes.BRANCHES)
        if not other.ended_well and not (other.run.timed_out or other.ran_out or other.refused):
            # No program may expect a true flag beside a count of zero.
            setup = replace(setup, other_integers=1)
            other = self._run(setup, f"{outcomes.BRANCHES}, {outcomes.INTEGERS}")
        by_memory = other.ran_out or other.refused or other.run.timed_out
        if not branches and not other.ended_well and not by_memory and main.optimizer_steps > 1:
            return main, None  # only a float that was not seen to decide anything: another value broke something else
        if other.ran_out and outcomes.is_longer(other, main):
            self._setup = setup
            self._notes.append(outcomes.upper_bound(branches))
            return other, self._too_small(other)
        reads = branches or main.unfollowed
        why = self._why_not(main, other)
        if why:
            return main, self._hangs(main, reads, f"the other way {why}")
        self._notes.append(outcomes.compared(main, other, reads))
        if not outcomes.takes_more(other, main):
            return main, None
        self._setup = setup
        return other, None

    def _run_past_failure(self, main: Facts) -> Answer | None:
        """A program may refuse zeros: then the outcomes with which it runs are the program.

        What is read where it fails takes the other way there, and only there. Else all integers do: an index into
        nothing often goes back to a length of 0. Else a loop that a zero has ended
        goes on.
        """
        if self._wishes.trust_reads or not self._wishes.retry:
            return None
        setup, failed = self._setup, main
        for _ in range(_FAILURES_PASSED):
            lines = outcomes.read_where_it_failed(failed)
            if not lines or set(lines) <= set(setup.pinned):
                break
            setup = replace(setup, pinned=tuple(dict.fromkeys((*setup.pinned, *lines))))
            name = f"the other way at {', '.join(map(outcomes.short, setup.pinned))}"
            failed = self._run(setup, name)
            if failed.ended_well or failed.ran_out:
                return self._judge_past(main, failed, setup, name)
        if any(read.kind == "integer" for read in main.unknown_reads):
            for number, name in outcomes.TRIED:
                setup = replace(self._setup, other_integers=number)
                ran = self._run(setup, name)
                if ran.ended_well or ran.ran_out:
                    return self._judge_past(main, ran, setup, name)
        if outcomes.branches(main):
            setup = replace(self._setup, other_branches=True, other_integers=1)
            name = f"{outcomes.BRANCHES}, {outcomes.INTEGERS}"
            ran = self._run(setup, name)
            if (ran.ended_well or ran.ran_out) and outcomes.is_longer(ran, main):
                return self._judge_past(main, ran, setup, name)
        return None

    def _judge_past(self, main: Facts, ran: Facts, setup: Setup, name: str) -> Answer:
        self._setup = setup
        self._notes.append(f"{causes.of_failure(main).text}; with {name} it ran, and that run counts")
        return self._judge(ran)

    def _with_other_integers(self, facts: Facts) -> Answer | None:
        reads = tuple(read for read in facts.unknown_reads if read.kind == "integer")
        for number, name in outcomes.TRIED:
            other = self._run(replace(self._setup, other_integers=number), name)
            if other.ended_well or other.run.timed_out or other.ran_out or other.refused:
                break
        why = self._why_not(facts, other)
        if why:
            return self._hangs(facts, reads, f"with {number} instead of 0 it {why}")
        before, after = outcomes.allocated(facts), outcomes.allocated(other)
        if before == after:
            return None
        changed = f"from {cards.text(before)} to {cards.text(after)}"
        return self._hangs(facts, reads, f"{number} instead of 0 changes its peak {changed}, so it may be a size")

    def _why_not(self, main: Facts, other: Facts) -> str:
        """Why a run with other outcomes does not fit, as the end of a sentence; "" where it does."""
        if other.run.timed_out:
            return "was still running when its time was up"
        if other.ran_out or other.refused or other.ooms > main.ooms:
            return "does not fit"
        if not other.ended_well:
            return f"could not be run: {causes.of_failure(other).text}"
        doubt = self._doubt(other)
        return "" if doubt is None else f"is not sure: {doubt.text}"

    def _hangs(self, facts: Facts, reads: tuple[UnknownRead, ...], why: str) -> Answer:
        return self._undecided(
            facts,
            "it fits, unless a size or a branch hangs on what no kernel has computed, "
            f"{outcomes.read_at(reads)}: {why}",
            _TRUST,
        )

    def _doubt(self, facts: Facts) -> causes.Cause | None:
        """Why a run that ended well does not prove that the program fits; None: it does."""
        if facts.ooms and not self._wishes.allow_oom:
            return causes.Cause(
                f"the program caught {_times(facts.ooms, 'OutOfMemoryError')} and ended well: a search for a batch "
                "size fits, a loop that leaves batches out does not, and only you know which it is",
                "--allow-oom says that it means to catch them",
            )
        if facts.unaccounted and not self._wishes.allow_oom:
            return causes.Cause(
                f"the device refused {_times(facts.unaccounted, 'request')}, and what came of it is not known: the "
                "process that asked ended early, or has an allocator of its own",
                "--allow-oom says that the program means to go on after that",
            )
        if facts.elsewhere or facts.lost_processes:
            return _half_done(facts)
        asked = causes.of_refused(facts)
        if asked is not None:
            return causes.Cause(f"{asked.text}; it went on without it", asked.hint)
        if facts.undescribed:
            names = ", ".join(note.name for note in facts.undescribed[:5])
            return causes.Cause(
                f"the program called what is not described yet ({names}): what that takes of a device is not counted",
                "report the names, so that they can be described",
            )
        full = facts.crowded
        if full is not None:
            return causes.Cause(
                f"{full.processes} processes used {full.name}; their peaks together are more than it has, but they "
                "may not have come at the same time"
            )
        unknown = next(
            (one for one in facts.assumptions if one.operator == "repeat_interleave" and not one.given), None
        )
        if unknown is not None:
            return causes.Cause(
                f"the size that repeat_interleave gives at {_at(unknown)} has no largest, so none was assumed but one "
                "of each",
                "--assume repeat_interleave=MEAN, or give output_size",
            )
        return None

    def _passed(self, facts: Facts) -> bool:
        return facts.ended_well and self._doubt(facts) is None

    def _with_high_end(self, main: Facts) -> Answer:
        if not _has_high_end(main):
            return self._with_high_context(main)
        if not self._wishes.retry:
            return self._without_high_end(main)
        high = self._run(replace(self._setup, high_end=True, context=self._context.high), "high end")
        if self._passed(high):
            return self._fits(main, high)
        if high.run.timed_out or high.ended_well:
            cause = causes.of_timeout(high, self._wishes.timeout or 0) if high.run.timed_out else self._doubt(high)
            text = "" if cause is None else cause.text
            return self._undecided(
                main, f"it fits with every modelled part at its low end; at the high end {text}", _how_to_decide(main)
            )
        unlimited = self._run(
            replace(self._setup, high_end=True, context=self._context.high, memory=NO_LIMIT), "high end, no limit"
        )
        answer = self._undecided(
            main,
            "it fits with every modelled part at its low end and not at the high end"
            if high.ran_out or high.refused
            else f"at the high end of what is modelled the program failed: {causes.of_failure(high).text}",
            _how_to_decide(main),
        )
        return replace(answer, high=unlimited if unlimited.ended_well else None)

    def _with_high_context(self, main: Facts) -> Answer:
        """Nothing else has a high end."""
        context = self._context
        if context.exact or margins.fits(main, self._setup, context.high, self._setup.memory):
            return self._fits(main, None)
        low = f"it fits with a CUDA context of {cards.text(context.middle)}"
        high = f"with one of {cards.text(context.high)}, the highest published for {self._setup.card.key},"
        hint = _how_to_decide(main)
        if not self._wishes.retry:
            return self._undecided(main, f"{low}; {high} it was not run (--no-retry)", hint)
        tried = self._run(replace(self._setup, context=context.high), _context_name(context.high))
        if self._passed(tried):
            return self._fits(main, tried)
        if tried.ran_out or tried.refused:
            return self._undecided(main, f"{low}; {high} it does not", hint)
        return self._undecided(main, f"{low}; {high} it {_outcome(tried)}", hint)

    def _without_high_end(self, main: Facts) -> Answer:
        """By arithmetic: workspaces are at most so many copies of tensors. Nothing else that is open has a bound."""
        roomy = margins.fits_with_workspaces(main, self._setup, self._context.high, self._setup.memory)
        if roomy and not _has_high_end(main, *_WORKSPACES):
            answer = self._fits(main, None)
            return replace(answer, reason=f"{answer.reason}, more than cuDNN's workspaces can take")
        low = [f"the low end of {', '.join(_open_parts(main))}"]
        if not self._context.exact:
            low.append(f"a CUDA context of {cards.text(self._context.middle)}")
        return self._undecided(
            main,
            f"it fits with {' and '.join(low)}; the high end was not run (--no-retry)",
            "; or ".join(part for part in (_RUN_THE_HIGH_END, _how_to_decide(main)) if part),
        )

    def _fits(self, main: Facts, high: Facts | None) -> Answer:
        facts = high or main
        worst = margins.fullest(facts, facts.run.setup, self._context.high)
        reason = ""
        if worst is not None:
            free = worst.total - margins.used(worst, facts.run.setup, self._context.high)
            reason = f"{cards.text(max(0, free))} of {worst.name} stay free at its peak"
        if main.ooms:
            reason += f"; {_times(main.ooms, 'refused allocation')} caught by the program"
        hints: tuple[str, ...] = ()
        if main.retries:
            hints = (
                f"PyTorch emptied its cache {_times(main.retries, 'time')} to find room: on a GPU that waits for all "
                "work each time",
            )
        # A program that means to be refused memory may run in any: how little is no question about it.
        searches = facts.ooms or facts.unaccounted
        smallest = None if worst is None or searches else self._smallest(facts, worst, high is not None)
        return Answer("fits", reason, hints, main, high=high, high_ran=high is not None, smallest_memory=smallest)

    def _smallest(self, facts: Facts, worst: DeviceFacts, high_end: bool) -> Smallest:
        """Between what no allocator could do without and what it had.

        PyTorch's allocator empties its cache before it gives up, so that much less than it used may do.
        """
        setup = facts.run.setup
        low = margins.least(worst, setup, self._context.high)
        used = margins.used(worst, setup, self._context.high)
        # With a cache that was emptied in between, it is not certain to run with no more than it used.
        high = used if margins.fits(facts, setup, self._context.high, worst.total) else worst.total
        same = max(_SAME_BYTES, int(worst.total * _SAME_SHARE))
        little = worst.total - used < worst.total * _LITTLE_FREE
        wanted = self._wishes.retry and self._wishes.alternatives
        if little and wanted and all(device.processes == 1 for device in facts.devices):
            low, high = self._smaller(low, high, same, high_end)
        return Smallest(worst.name, high if high - low < same else low, high)

    def _smaller(self, low: int, high: int, same: int, high_end: bool) -> tuple[int, int]:
        """Both nearer to each other, by bisection."""
        for _ in range(_SMALLER_TRIED):
            if high - low < same:
                break
            memory = (low + high) // 2 >> 20 << 20
            setup = replace(self._setup, memory=memory, context=self._context.high, high_end=high_end)
            if self._passed(self._run(setup, f"in {cards.text(memory)}")):
                high = memory
            else:
                low = memory
        return low, high

    # --- the device was too small ---------------------------------------------------------------------

    def _too_small(self, main: Facts) -> Answer:
        if main.ran_out and not main.refused and not main.limited:
            return Answer(
                "does not fit",
                f"{_refusal(main)}, by a limit of the program's own: the device refused nothing",
                ("torch.cuda.set_per_process_memory_fraction, or a limit in PYTORCH_ALLOC_CONF, sets such a one",),
                main,
            )
        if not self._wishes.retry:
            if main.ran_out:
                return self._ran_out_once(main)
            cause = causes.of_failure(main)
            return self._undecided(
                main,
                f"the device refused memory and the program failed, but not with an OutOfMemoryError: {cause.text}",
                "leave --no-retry away: a run without a limit decides it",
            )
        branches = () if self._wishes.trust_reads or self._setup.other_branches else outcomes.branches(main)
        other = self._run(replace(self._setup, other_branches=True), outcomes.BRANCHES) if branches else None
        if other is not None and self._passed(other):
            if not outcomes.is_longer(main, other):
                reason = f"{_refusal(main)}; it fits the other way of {outcomes.read_at(branches)}"
                return self._undecided(main, reason, _TRUST)
            self._notes.append(outcomes.upper_bound(branches))
        answer = self._collecting(main) if self._wishes.alternatives else None
        if answer is not None:
            return answer
        unlimited = self._run(replace(self._setup, memory=NO_LIMIT), "no limit")
        if not unlimited.ended_well:
            return self._fails_anyway(main, unlimited)
        need = _need(unlimited, self._context)
        answer = Answer("does not fit", _refusal(main), _rests_on(main), main, unlimited=unlimited, need=need)
        wanted = self._wishes.alternatives
        setting = self._setting(need) if wanted else None
        card = self._card(unlimited, need) if wanted and need is not None and not need.takes_everything else None
        answer = replace(answer, setting=setting, smallest_card=card)
        if setting is not None:
            return replace(answer, verdict="fits with settings")
        return self._or_nearly(answer, need, unlimited)

    def _collecting(self, main: Facts) -> Answer | None:
        """The program with collections of its garbage, where that may have made room; None: it does not fit then."""
        report = main.report
        left = None if report is None else report.oom_left
        if report is None or left is None or report.collected_after(left) < left.requested:
            return None
        setup = replace(self._setup, collects=True)
        if not self._fits_surely(setup, _COLLECTS, None):
            self._notes.append(f"with {_COLLECTS} it does not fit either")
            return None
        taken = next(one.used for one in reversed(self._attempts) if one.what.startswith(_COLLECTS) and one.used)
        how = _how_often(report, report.device(left.device), self._setup.memory - taken)
        garbage = report.device(left.device).garbage
        made = report.cycles(left.device, garbage.made if garbage is not None else None)
        reason = f"{_refusal(main)}, and {cards.text(report.collected_after(left))} of what was alive was garbage"
        reason += f" (cycles of {made})" if made else ""
        hint = (
            f"tried: a collection whenever tensors had grown by a {child.COLLECTED_SHARE}th of the device, which took "
            f"{cards.text(taken)} of it; weak references make no garbage"
        )
        return Answer("fits with settings", reason, (hint,), main, setting=how)

    def _ran_out_once(self, main: Facts) -> Answer:
        """What one run decides: it is that near only if a smaller context would have left what was lacking."""
        low = self._context.low
        if not margins.may_hang_on_context(main, self._setup, low):
            return Answer("does not fit", _refusal(main), (), main)
        return self._undecided(
            main,
            f"{_refusal(main)} with a CUDA context of {cards.text(self._context.middle)}; one of {cards.text(low)}, "
            f"the lowest published for {self._setup.card.key}, leaves what was lacking there",
            "leave --no-retry away: a run with that context decides it; or --context SIZE",
        )

    def _or_nearly(self, answer: Answer, need: Need | None, unlimited: Facts) -> Answer:
        """A smaller context may make it fit, and so may larger workspaces: how blocks are split decides then."""
        if need is None or need.low > self._setup.memory:
            return answer
        low = self._context.low
        if low < self._context.middle and self._fits_with_context(low, unlimited):
            reason = (
                f"{answer.reason} with a CUDA context of {cards.text(self._context.middle)}; with one of "
                f"{cards.text(low)}, the lowest published for {self._setup.card.key}, it fits"
            )
            hint = "--context SIZE says what it is on your card and driver"
            return replace(answer, verdict="undecided", reason=reason, hints=(hint, *answer.hints))
        if not _has_high_end(unlimited):
            return answer
        name = "high end" if self._context.exact else f"high end, {_context_name(low)}"
        if not self._passed(self._run(replace(self._setup, high_end=True, context=low), name)):
            return answer
        reason = f"{answer.reason} with every modelled part at its low end, but it ran at the high end: it is that near"
        return replace(answer, verdict="undecided", reason=reason)

    def _fits_with_context(self, each: int, unlimited: Facts) -> bool:
        setup = self._setup
        by_arithmetic = margins.fits(unlimited, setup, each, setup.memory) and self._passed(unlimited)
        # It did not fit with the middle. If arithmetic has it otherwise, the program sizes itself by what there is.
        if by_arithmetic and not margins.fits(unlimited, setup, self._context.middle, setup.memory):
            return True
        return self._passed(self._run(replace(self._setup, context=each), _context_name(each)))

    def _fails_anyway(self, main: Facts, unlimited: Facts) -> Answer:
        cause = (
            causes.of_timeout(unlimited, self._wishes.timeout or 0)
            if unlimited.run.timed_out
            else causes.of_failure(unlimited)
        )
        if main.ran_out:
            more = (
                f"it needs more than {cards.text(NO_LIMIT)}" if unlimited.ran_out else f"with room enough, {cause.text}"
            )
            self._notes.append(more)
            return Answer("does not fit", _refusal(main), (), main, unlimited=unlimited)
        return self._failed(main, cause)

    def _setting(self, need: Need | None) -> str | None:
        if need is not None and need.low > self._setup.memory:
            self._notes.append(
                f"no allocator setting can help: tensors, context and libraries alone take {cards.text(need.low)}"
            )
            return None
        for value in settings.candidates(self._variables):
            name = f"{settings.VARIABLE}={value}"
            setup = replace(self._setup, alloc_conf=value)
            if self._fits_surely(setup, name, value):
                return name
        return None

    def _card(self, unlimited: Facts, need: Need) -> str | None:
        """Each is run on that card itself: its context, and what PyTorch allocates for its architecture."""
        others = [one for one in cards.CARDS if one.memory != self._setup.memory and one.has_kernels]
        setups = [replace(self._setup, card=one, memory=one.memory) for one in cards.larger(others, 0)]
        large = [
            setup
            for setup in setups
            if all(
                margins.least(device, self._setup, setup.context_range.low) <= setup.memory
                for device in unlimited.devices
            )
        ]
        # By bisection, for many are of nearly one size: up to the first that has all that the run without a limit took.
        enough = next((at for at, setup in enumerate(large) if setup.memory >= need.high), len(large) - 1)
        low, high, found = 0, enough + 1, None
        while low < high:
            middle = (low + high) // 2
            setup = large[middle]
            if self._fits_surely(setup, f"on {setup.card.key}", None):
                high, found = middle, setup.card.key
            else:
                low = middle + 1
        return found

    def _fits_surely(self, setup: Setup, name: str, wanted: str | None) -> bool:
        """At the high end, too. A setting that the program itself replaced was not tried."""
        low = self._run(setup, name)
        if not self._passed(low):
            return False
        replaced = _replaced(low, wanted)
        if replaced:
            self._notes.append(f"{name} was not tried: the program sets {replaced} itself")
            return False
        if not self._wishes.trust_reads and not setup.other_branches and low.open_reads:
            other = self._run(replace(setup, other_branches=True, other_integers=1), f"{name}, {outcomes.BRANCHES}")
            if not self._passed(other):
                return False
        context = setup.context_range
        high = replace(setup, high_end=True, context=context.high)
        if _has_high_end(low):
            return self._passed(self._run(high, f"{name}, high end"))
        if context.exact or margins.fits(low, setup, context.high, setup.memory):
            return True
        return self._passed(self._run(high, f"{name}, {_context_name(context.high)}"))

    # --- parts ------------------------------------------------------------------------------------------

    def _run(self, setup: Setup, name: str) -> Facts:
        facts = self._ask(setup, name)
        if facts.interrupted:
            raise Interrupted
        fullest = facts.fullest
        self._attempts.append(
            Attempt(name, _outcome(facts), None if fullest is None else fullest.used, facts.run.seconds)
        )
        return facts

    def _failed(self, main: Facts, cause: causes.Cause) -> Answer:
        return Answer("script failed", cause.text, (cause.hint,) if cause.hint else (), main)

    def _undecided(self, main: Facts, reason: str, hint: str) -> Answer:
        return Answer("undecided", reason, (hint,) if hint else (), main)


def _how_often(report: Report, device: Device, room: int) -> str:
    """gc.collect() every 12 steps: so many as leave room for their garbage."""
    garbage, steps = device.garbage, len({step.index for step in report.steps.ended})
    if garbage is None or steps == 0:
        return f"gc.collect() before {cards.text(room)} of garbage have come together"
    rate = (garbage.freed + garbage.after_oom) / steps
    every = max(1, int(room / max(1.0, rate)))
    return "gc.collect() every step" if every == 1 else f"gc.collect() every {every} steps"


def _half_done(facts: Facts) -> causes.Cause:
    """A thread or another process did not do what it was to do."""
    if not facts.elsewhere:
        return causes.Cause(
            f"{_times(facts.lost_processes, 'process')} of the program used the device and ended without a word "
            "(killed, or by os._exit): whether they did what they were to do is not known"
        )
    raised = facts.elsewhere[0]
    at = f" at {place(raised.at)}" if raised.at is not None else ""
    return causes.Cause(f"a thread or process of the program ended with {raised.line}{at}; the program itself went on")


def _replaced(facts: Facts, wanted: str | None) -> str:
    """What the program has set in place of the allocator's settings that were wanted; "": nothing."""
    if wanted is None or facts.settings is None or settings.parts(facts.settings) == settings.parts(wanted):
        return ""
    return facts.settings or "another"


def _at(one: Assumption) -> str:
    return place(one.frame) if one.file else "no Python line"


def _has_high_end(facts: Facts, *but: str) -> bool:
    """Whether anything is larger there but these parts; the context is not among them."""
    return not set(but).issuperset(_open_parts(facts))


def _open_parts(facts: Facts) -> list[str]:
    """Names of what is larger at the high end, in words; the context is not among them."""
    said = _WORKSPACES if facts.run.setup.conv_workspace is not None else ()
    modelled = [note.name for note in facts.modelled if is_modelled_open(note.name) and note.name not in said]
    assumed = any(not one.given and one.operator != "repeat_interleave" for one in facts.assumptions)
    return [*modelled, *(["assumed sizes"] if assumed else [])]


def _context_name(each: int) -> str:
    return f"context of {cards.text(each)}"


def is_modelled_open(name: str) -> bool:
    """Whether a modelled part has a low and a high end; the others are stated constants or formulas."""
    return name in _OPEN


def _need(facts: Facts, context: cards.Context) -> Need | None:
    """Of a run with the context that was asked for."""
    setup = facts.run.setup
    fullest = facts.fullest
    if fullest is None:
        return None
    high = margins.used(fullest, setup, context.high)
    return Need(fullest.name, margins.least(fullest, setup, context.low), high, high > NO_LIMIT * 3 // 4)


def _refusal(facts: Facts) -> str:
    oom = next((raised for raised in facts.chain or () if raised.out_of_memory), None)
    if oom is not None and oom.at is not None:
        return f"out of memory at {place(oom.at)}"
    report = facts.report
    if report is not None and report.ooms:
        from cuptimem.report.stacks import user_frame

        frame = user_frame(report.ooms[-1].stack)
        if frame is not None:
            return f"out of memory at {place(frame)}"
    return f"the device refused {_times(facts.refused, 'request')}"


def _rests_on(facts: Facts) -> tuple[str, ...]:
    """A smaller share might fit: the user has not given it."""
    one = next((one for one in facts.assumptions if not one.given), None)
    if one is None:
        return ()
    return (
        f"this rests on an assumed size: {one.operator}={one.fraction:g} at {_at(one)}; say what it is with --assume",
    )


def _how_to_decide(facts: Facts) -> str:
    ways = [
        f"--assume {one.operator}=SHARE" for one in {a.operator: a for a in facts.assumptions if not a.given}.values()
    ]
    if any(note.name in _WORKSPACES for note in facts.modelled):
        ways.append("--conv-workspace SIZE")
    if not facts.run.setup.context_range.exact:
        ways.append("--context SIZE")
    return f"say what you know: {', '.join(ways)}" if ways else ""


def _outcome(facts: Facts) -> str:
    if facts.run.timed_out:
        return f"stopped after {facts.run.seconds:.0f} s"
    if facts.ended_well:
        return "ran" if not facts.ooms else f"ran, {_times(facts.ooms, 'OutOfMemoryError')} caught"
    if facts.ran_out:
        return "out of memory"
    return f"failed: {causes.of_failure(facts).text}"


def _times(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
