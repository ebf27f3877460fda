"""The step clock as a pure function: sequences of ticks as real loops emit them, and the steps that they are."""

import ctypes
import re
from collections.abc import Callable, Iterator
from random import Random

import craft
import pytest
from craft import BACKWARD, DATA, MODULE, OPTIMIZER, ROOT, STEP

MS = 1_000_000
BATCH, AFTER, TEST_BATCH, SUM, REST = range(1000, 1005)  # stacks of blocks
NAMED = {
    "SETUP": 1005,
    "FORWARD": 1006,
    "BATCH": BATCH,
    "AFTER": AFTER,
    "TEST_BATCH": TEST_BATCH,
    "SUM": SUM,
    "REST": REST,
}
NAMES = ("step_clock", "step_clock_groups", "step_clock_leads", "step_clock_silence")


class Moment(ctypes.Structure):
    _fields_ = [("position", ctypes.c_uint64), ("time_ns", ctypes.c_uint64)]


class Tick(ctypes.Structure):
    _fields_ = [
        ("at", Moment),
        ("object", ctypes.c_uint64),
        ("backward", ctypes.c_uint64),
        ("line", ctypes.c_uint32),
        ("stack", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("inside", ctypes.c_bool),
        ("no_grad", ctypes.c_bool),
        ("sanity", ctypes.c_bool),
        ("eval_mode", ctypes.c_bool),
    ]


class Step(ctypes.Structure):
    _fields_ = [("end", Moment), ("loop", ctypes.c_uint32)]


class Loop(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 32),
        ("kind", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("steps", ctypes.c_uint64),
        ("trailed", ctypes.c_bool),
    ]


class Change(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("step", "loop", "kind", "line")]


class Steps(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("begin", Moment),
        ("step", ctypes.POINTER(Step)),
        ("count", ctypes.c_size_t),
        ("loop", ctypes.POINTER(Loop)),
        ("loop_count", ctypes.c_size_t),
        ("change", ctypes.POINTER(Change)),
        ("change_count", ctypes.c_size_t),
        ("passed_kind", ctypes.c_uint32),
        ("passed_line", ctypes.c_uint32),
        ("passed_steps", ctypes.c_uint32),
        ("updates", ctypes.c_uint32),
        ("updates_line", ctypes.c_uint32),
        ("joined", ctypes.c_bool),
        ("begun", ctypes.c_bool),
        ("begun_loop", ctypes.c_uint32),
        ("cut", ctypes.c_bool),
    ]


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    parts = [ROOT / "csrc/heap" / f"{name}.c" for name in NAMES]
    parts += [ROOT / "csrc/base" / f"{name}.c" for name in ("hash", "idmap")]
    clock = craft.library("clock.so", parts)
    clock.cm_clock_new.restype = ctypes.c_void_p
    for name in ("tick", "object", "renew", "block", "choose"):
        function = getattr(clock, f"cm_clock_{name}")
        function.restype = ctypes.c_bool
    return clock


class Program:
    """What a training loop emits. Positions count every record; `marks` remembers some of them."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.clock = ctypes.c_void_p(library.cm_clock_new())
        self.position = self.time = self.backwards = 0
        self.blocks: dict[str, list[int]] = {}  # positions of those that play() allocates
        self.ends: list[int] = []  # positions behind ticks that end a step in the reader of the test's eyes

    def close(self) -> None:
        self.library.cm_clock_free(self.clock)

    def _moment(self) -> Moment:
        self.position += 1
        return Moment(self.position - 1, self.time)

    def wait(self, ms: float = 1) -> None:
        self.time += int(ms * MS)

    def tick(
        self,
        kind: int,
        obj: int,
        line: int,
        *,
        inside: bool = False,
        no_grad: bool = False,
        sanity: bool = False,
        eval_mode: bool = False,
    ) -> int:
        self.wait(0.001)
        of_call = (inside, no_grad, sanity, eval_mode)
        tick = Tick(self._moment(), obj, self.backwards, line, 1000 * kind + line, 0, kind, *of_call)
        assert self.library.cm_clock_tick(self.clock, ctypes.byref(tick))
        return int(tick.at.position)

    def new(self, obj: int, *, before: bool = False) -> int:
        at = self._moment()
        assert self.library.cm_clock_object(self.clock, ctypes.c_uint64(obj), at, ctypes.c_bool(before))
        return int(at.position)

    def renew(self, obj: int) -> None:
        self._moment()
        assert self.library.cm_clock_renew(self.clock, ctypes.c_uint64(obj))

    def block(self, stack: int, thread: int = 0) -> int:
        """A block that this stack allocates."""
        at = self._moment()
        assert self.library.cm_clock_block(self.clock, ctypes.c_uint32(stack), ctypes.c_uint32(thread), at)
        return int(at.position)

    def close_recording(self) -> int:
        at = self._moment()
        self.library.cm_clock_close(self.clock, at)
        return int(at.position)

    def node(self) -> int:
        at = self._moment()
        self.library.cm_clock_node(self.clock, at)
        return int(at.position)

    def data(self, obj: int = 100, line: int = 10) -> int:
        return self.tick(DATA, obj, line)

    def forward(self, ms: float = 4) -> None:
        self.wait(ms)
        self.node()

    def backward(self, ms: float = 5, *, line: int = 15, inside: bool = False) -> None:
        self.wait(ms)
        self.backwards += 3
        self.position += 6
        self.tick(BACKWARD, 0, line, inside=inside)

    def opt(self, obj: int = 1, line: int = 20) -> int:
        at = self.tick(OPTIMIZER, obj, line)
        self.ends.append(at + 1)
        return at

    def gradients(self) -> None:
        self.forward()
        self.backward()

    def play(self, text: str) -> "Program":
        """Words, each a letter, an object, @ and a line, as far as they are not what they usually are:

        d: a batch of the loader of training, e: of evaluation. f, b, g: forward, backward, both. c: backward inside of
        a closure. o: the optimizer. m: a call of a module. s: prof.step(). new, renew: an object, at its address.
        n: a graph node. w, f, c: so many ms. BATCH and so on: a block of that stack. 3(...): three times; + behind an
        object adds which of the times it is, of the outermost one. Flags: - without gradient, ! in evaluation mode,
        ? in a sanity check."""
        self._play(iter(re.findall(r"\d*\(|\)|[^\s()]+", text)), 0)
        return self

    def _play(self, words: Iterator[str], at: int, *, outermost: bool = True) -> None:
        for word in words:
            if word == ")":
                return
            if word.endswith("("):
                inner = list(_group(words))
                for i in range(int(word[:-1])):
                    self._play(iter(inner), i if outermost else at, outermost=False)
            else:
                self._say(word, at)

    def _say(self, word: str, at: int) -> None:
        if word in NAMED:
            self.blocks.setdefault(word, []).append(self.block(NAMED[word]))
            return
        found = re.fullmatch(r"([a-z]+)([\d.]*)(\+?)(?:@(\d+))?([-!?]*)", word)
        assert found is not None, word
        what, number, plus, line, marks = found.groups()
        obj = int(float(number or {"d": 100, "e": 200, "m": 300}.get(what, 1))) + (at if plus else 0)
        of_call = {"no_grad": "-" in marks, "eval_mode": "!" in marks, "sanity": "?" in marks}
        match what:
            case "d" | "e":
                self.tick(DATA, obj, int(line or (10 if what == "d" else 30)), **of_call)
            case "m" | "s":
                self.tick(MODULE if what == "m" else STEP, obj, int(line), **of_call)
            case "o":
                self.opt(obj, int(line or 20))
            case "f":
                self.forward(float(number or 4))
            case "b":
                self.backward(line=int(line or 15))
            case "c":
                self.backward(1, inside=True)
            case "g":
                self.gradients()
            case "n":
                self.node()
            case "w":
                self.wait(float(number or 1))
            case "new" | "renew":
                (self.new if what == "new" else self.renew)(obj)
            case _:
                raise ValueError(word)

    def result(self) -> "Result":
        out = Steps()
        begin, end = Moment(0, 0), Moment(self.position, self.time)
        assert self.library.cm_clock_choose(self.clock, begin, end, ctypes.byref(out))
        result = Result(out)
        self.library.cm_steps_free(ctypes.byref(out))
        return result


def _group(words: Iterator[str]) -> Iterator[str]:
    """The words up to the parenthesis that closes what has been opened."""
    depth = 1
    for word in words:
        depth += word.endswith("(") - (word == ")")
        if depth == 0:
            return
        yield word


class Result:
    def __init__(self, raw: Steps) -> None:
        self.kind, self.line, self.begin = raw.kind, raw.line, raw.begin.position
        self.passed = (raw.passed_kind, raw.passed_line, raw.passed_steps)
        self.updates, self.updates_line, self.joined = raw.updates, raw.updates_line, raw.joined
        self.ends = [raw.step[i].end.position for i in range(raw.count)]
        self.count = raw.count
        names = [raw.loop[i].name.decode() for i in range(raw.loop_count)]
        self.loop_of = [names[raw.step[i].loop] for i in range(raw.count)]
        self.loops = {names[i]: raw.loop[i].steps for i in range(raw.loop_count)}
        self.changes = [
            (c.step, c.kind, c.line, names[c.loop]) for c in (raw.change[i] for i in range(raw.change_count))
        ]
        assert self.ends == sorted(self.ends)
        assert all(end >= self.begin for end in self.ends)


@pytest.fixture
def program(library: ctypes.CDLL) -> Iterator[Program]:
    p = Program(library)
    yield p
    p.close()


# Programs and what must come out: steps per loop, then the step and loop of each change.
TABLE = """
plain: 20(d g o) d => training 20
two_epochs: 10(d g o) d 10(d101 g o) d101 => training 20
no_loader: 12(g o) => training 12
recreated_optimizer: 8(d new1000+ g o1000+) => training 8
recreated_at_the_same_address: 8(new1000 g o1000) => training 8
two_recreated_optimizers: 6(new1000+ new2000+ g o1000+ o2000+) => training 6
recreated_every_epoch: 3(new1000+ 5(d g o1000+) d) => training 15
list_of_optimizers: 7(d g o1 o2 o3) => training 7
gan: 9(d g o1 g o2@25) => training 9
five_critics: 10(5(d g o) g o2@25) => training 10
# def update(optimizer, loss): ... optimizer.step()
five_critics_of_one_line: 10(5(d g o) g o2) => training 10
five_critics_in_too_few_iterations: 4(5(d g o) g o2@25) => training 20
# As the first WGAN does: the critic is trained well before the generator moves.
critics_that_begin_with_more_updates: 30(d g o) g o2@25 12(5(d g o) g o2@25)
    => training 29, training 2 13; 29 training 2
critics_and_an_iteration_that_is_not_finished: 10(5(d g o) g o2@25) 3(g o) 20(e w3) e
    => training 10, evaluation 20; 10 evaluation
# Every second update of the critics one of the actor.
delayed_actor: 20(g o g o g o2@30) => training 20
two_rates_that_vary: 8(g o 2(g o o2@30) 2(g o) g o o2@30 g o) g o 2(g o o2@30) g o => training 60
# Ten updates are no iteration.
an_optimizer_of_each_epoch: 10(10(g o) o2@30) => training 100
two_backwards_an_iteration: 10(f b f b@17) => training 10
three_backwards_to_one_by_hand: 10(3(f b) f b@17) => training 10
# Some steps evaluate the closure four times as often: they are steps all the same.
lbfgs: 4(d 80(f1 c) o 2(d 20(f1 c) o)) => training 12
lbfgs_once: d 60(f1 c) o => training 60
lbfgs_a_few_times: d 80(f1 c) o 2(d 20(f1 c) o) d 80(f1 c) o d 20(f1 c) o => training 220
accumulation: 10(8(d g) o) => training 10
accumulation_with_few_steps: 5(8(d g) o) => training 40
a_step_at_the_end_only: new1 30(g) o => training 30
few_of_everything: 3(d g o) d => training 3
# One backward and one step an epoch, of the sum of all losses.
a_graph_of_many_batches: 3(10(d100+ f) b o) => evaluation 29
one_overflow: 9(d g o) d g 10(d g o) => training 19
# Six skipped in a row: three periods of silence, so iterations are counted by the loader.
many_overflows: 10(d g o) 6(d g) 14(d g o) => training 30; 10 training, 16 training
overflows_at_the_start: 5(d g) 15(d g o) => training 20; 5 training
# A checkpoint is saved: silence, but nothing else ticks more than usual.
slow_step: 10(d g o) d w500 10(d101 g o) d101 => training 20
# Many ticks of the loader in a long silence, but as many as in every step.
slow_step_with_accumulation: 4(8(d g) o w) 8(d g) o w2000 5(8(d g) o w) => training 10
# A long silence in which the loader ticks twice as often as in a usual step: not often enough.
slow_step_with_a_skip: 4(8(d g) o) 8(d g) w2000 5(8(d g) o) => training 9
two_explicit_clocks: 4(f s1@70 f s2@71) => evaluation 8
evaluation_after_each_epoch: 3(10(d100+ g o) d100+ 20(e200+ w3) e200+)
    => training 30, evaluation 60; 10 evaluation, 30 training, 40 evaluation, 60 training, 70 evaluation
# Each loader's iterator lives where the one before it died.
iterators_at_one_address: 3(10(d g o) d 20(e100 w3) e100)
    => training 30, evaluation 60; 10 evaluation, 30 training, 40 evaluation, 60 training, 70 evaluation
iterators_at_one_address_and_line: 3(renew200 15(e w3) e) => evaluation 45
evaluation_every_four: 4(4(d g o) 20(e200+ w3) e200+)
    => training 16, evaluation 80; 4 evaluation, 24 training, 28 evaluation, 48 training, 52 evaluation, 72 training,
    76 evaluation
short_evaluation: 4(5(d g o) 3(e200+ w3) e200+)
    => training 20, evaluation 12; 5 evaluation, 8 training, 13 evaluation, 16 training, 21 evaluation, 24 training,
    29 evaluation
one_batch_of_evaluation: 4(5(d g o) e200+ w3 e200+)
    => training 20, evaluation 4; 5 evaluation, 6 training, 11 evaluation, 12 training, 17 evaluation, 18 training,
    23 evaluation
evaluation_every_second_step: 10(g o g o 6(e200+ w3) e200+)
    => training 20, evaluation 60; 2 evaluation, 8 training, 10 evaluation, 16 training, 18 evaluation, 24 training,
    26 evaluation, 32 training, 34 evaluation, 40 training, 42 evaluation, 48 training, 50 evaluation, 56 training,
    58 evaluation, 64 training, 66 evaluation, 72 training, 74 evaluation
# As it is everywhere, it is part of a step.
evaluation_in_every_step: 20(d g o 6(e200+ w3) e200+) => training 20
# for phase in ("train", "val"): for x in loaders[phase]: ...
one_line_trains_and_evaluates: 3(10(d100+ g o) d100+ 6(d200+ w3) d200+)
    => training 30, evaluation 18; 10 evaluation, 16 training, 26 evaluation, 32 training, 42 evaluation
# if bad(batch): continue, twice in a row at most.
batches_that_are_skipped: 3(3(d g o) d d 6(d g o)) 3(d g o) d d 2(d g o) => training 32
evaluation_by_calls: 3(10(m300@50 m301@51 g o) 6(m300@60 m301@61 w3))
    => training 30, evaluation 18; 10 evaluation, 16 training, 26 evaluation, 32 training, 42 evaluation
# It is called in evaluation as often as in training, behind the encoder: n batches are n steps.
a_decoder_called_twice_in_each_step: 3(8(m@50 m301@51 m301@52 g o) 4(m@60-! 2(m301@61-!) w3))
    => training 24, evaluation 12; 8 evaluation, 12 training, 20 evaluation, 24 training, 32 evaluation
# It is called once in a step of training: each further call without gradient is a step.
a_decoder_that_generates: 8(m@50 m301@51 g o) m@60-! 5(m301@61-!)
    => training 8, evaluation 1, evaluation 2 4; 8 evaluation, 9 evaluation 2
# PPO: 40 steps of the environment without a graph, then 8 updates.
rollouts_and_updates: 5(40(m@50) 8(m@60 g o))
    => training 40, evaluation 200; 40 training, 48 evaluation, 88 training, 96 evaluation, 136 training,
    144 evaluation, 184 training, 192 evaluation, 232 training
# Contrastive loss in chunks: each is embedded without a graph, then again with one.
chunks_without_a_graph_first: 10(3(m@50) 3(m@55 g) o) 12(m@50) 12(m@55 g) o 9(3(m@50) 3(m@55 g) o)
    => training 29; 10 training, 19 training
evaluation_with_accumulation: 3(4(4(d g) o) 60(e200+ w3) e200+)
    => training 12, evaluation 180; 4 evaluation, 64 training, 68 evaluation, 128 training, 132 evaluation
evaluation_first: 30(e w3) e 10(d g o) d => evaluation 30, training 10; 30 training
two_phases_two_lines: 10(d g o) d 12(d101@35 g o2@40) d101@35 => training 10, training 2 12; 10 training 2
# Both optimizers exist from the start: the second's first tick is no part of the first's last step.
two_phases_one_line: new1 new2 10(d g o) d 12(d101 g o2) d101 => training 22
alternating_lines: 6(d g o@22 2(d g o)) d g o@22 d g o => training 20
alternating_phases: 2(10(d g o) d 10(d101 g o2@40) d101)
    => training 20, training 2 20; 10 training 2, 20 training, 30 training 2
# prof.step() replaces every automatic clock, from the very beginning.
explicit: 5(d g o) d 3(d g o o2 d g o o2 s9@70) 5(d g o) d => training 3
inference_with_a_loader: 15(e w3) e => evaluation 15
# The tick that ends an epoch and the one that begins the next are one boundary.
inference_two_epochs: 15(e w3) e w 15(e201 w3) e201 => evaluation 30
zipped_loaders: 10(e e201 w3) e => evaluation 10
module_calls: 9(m@60 w5) => evaluation 9
the_last_call_is_of_its_own_line: 12(m@60 w3) m@80 => evaluation 12, evaluation 2 1; 12 evaluation 2
hand_written_optimizer: 10(d g w) d => training 10
training_then_module_calls: 10(g o) 20(m@60 w5) => training 10, evaluation 20; 10 evaluation
a_short_evaluation_is_the_same_at_the_end: 3(10(d100+ g o) d100+ 5(e200+ w0.5) e200+) w5000
    => training 30, evaluation 15; 10 evaluation, 15 training, 25 evaluation, 30 training, 40 evaluation
gradients_by_hand: 20(m@50 g) => training 20
an_optimizer_and_then_gradients_by_hand: 10(g o) 20(f b@40) => training 30; 10 training
# A prompt at one line, then tokens at another, as many as the answer has.
generation: m@60 7(m@65) m@60 3(m@65) m@60 30(m@65) m@60 m@65 m@60 12(m@65) m@60 55(m@65) m@60 8(m@65)
    => evaluation 123
# A warm-up of the model, then answers; later answers at another line.
generation_in_two_phases: 6(m@60 9(m@65)) 6(m@80 9(m@85)) => evaluation 60, evaluation 2 60; 60 evaluation 2
# Every tenth update is made elsewhere.
a_line_now_and_then: 6(9(g o) g o@40) => training 60
# Accelerate asks for the next batch before it hands out the last one: n batches, n + 1 requests before n calls.
a_loader_that_runs_ahead: 2(renew100 d100@11 8(d m@50 b o) renew200 d200@11 4(d200 m@60-))
    => training 16, evaluation 8; 8 evaluation, 12 training, 20 evaluation
# Two batches of a longer loader, then the training's iterator goes on.
a_loader_that_is_not_exhausted: 4(5(d m@50 b o) renew200+ 2(e200+ m@60-))
    => training 20, evaluation 8; 5 evaluation, 7 training, 12 evaluation, 14 training, 19 evaluation, 21 training,
    26 evaluation
# a = next(left); f(a); b = next(right); f(b): at first they may be two loops
two_loaders_side_by_side: 10(e m@31 e201@32 m@33) e => evaluation 1, evaluation 2 10; 1 evaluation 2
another_object_is_evaluated: 3(8(m@50 b o) 4(m400@60-))
    => training 24, evaluation 12; 8 evaluation, 12 training, 20 evaluation, 24 training, 32 evaluation
# model.eval() alone.
another_object_with_gradients: 3(8(m@50 b o) 4(m400@60))
    => training 24, evaluation 12; 8 evaluation, 12 training, 20 evaluation, 24 training, 32 evaluation
# A picture now and then.
one_call_without_gradient: 3(6(m@50 b o) m@60-)
    => training 18, evaluation 3; 6 evaluation, 7 training, 13 evaluation, 14 training, 20 evaluation
a_teacher_in_every_step: 3(m400@49- m@50 b o) => training 3
# Its batch is the step's own.
a_teacher_now_and_then: 5(3(d m@50 b o) d m400@49- m@50 b o) => training 20
# for phase in ("train", "val"): with set_grad_enabled(phase == "train"): ..., two batches each.
one_line_with_and_without_gradients: 3(5(d m@50 b o) 2(d m@50-))
    => training 15, evaluation 6; 5 evaluation, 7 training, 12 evaluation, 14 training, 19 evaluation
# The update is followed by calls of parts of the model.
calls_behind_the_update: 3(6(m@50 b o m310@52) 4(m@60-))
    => training 18, evaluation 12; 6 evaluation, 10 training, 16 evaluation, 20 training, 26 evaluation
# Evaluation comes first behind the first update.
two_calls_without_gradient_behind_the_update: m@50 b o m310@52- m311@53- 3(m@60-)
    2(8(m@50 b o m310@52- m311@53-) 3(m@60-)) 4(m@50 b o m310@52- m311@53-)
    => training 21, evaluation 9; 1 evaluation, 4 training, 12 evaluation, 15 training, 23 evaluation, 26 training
a_loader_behind_calls_behind_the_update: 2(8(m@50 b o m310@52) renew200+ 3(e200+ m@60-) e200+)
    => training 16, evaluation 6; 8 evaluation, 11 training, 19 evaluation
a_loader_of_one_batch_behind_each_update: 8(d m@50 b o renew200 e m@60-! e)
    => training 8, evaluation 8; 1 evaluation, 2 training, 3 evaluation, 4 training, 5 evaluation, 6 training,
    7 evaluation, 8 training, 9 evaluation, 10 training, 11 evaluation, 12 training, 13 evaluation, 14 training,
    15 evaluation
a_forward_that_asks_for_shapes: m@40- 10(g o) => training 10
a_short_training_and_a_long_evaluation: 4(g o) 20(e w3) e => training 4, evaluation 20; 4 evaluation
a_sanity_check: 2(e? m@31-?) 2(10(d100+ g o) d100+ 3(e210+ m@31-))
    => sanity check 2, training 20, evaluation 6; 2 training, 12 evaluation, 15 training, 25 evaluation
one_step: d g o d => training 1
nothing: f =>
"""

Outcome = tuple[dict[str, int], list[tuple[int, str]]]
Case = Callable[[Program], Outcome]


def listed(row: str) -> tuple[str, Case]:
    name, text = row.split(": ", 1)
    text, outcome = text.split("=>")
    loops, _, changes = outcome.partition(";")
    pairs = [one.strip().rpartition(" ") for one in loops.split(",") if one.strip()]
    steps = [one.strip().partition(" ") for one in changes.split(",") if one.strip()]
    expected = {loop: int(count) for loop, _, count in pairs}, [(int(step), loop) for step, _, loop in steps]

    def play(p: Program) -> Outcome:
        p.play(text)
        return expected

    return name, play


ROWS = re.sub(r"\n    +", " ", re.sub(r"(?m)^#.*\n", "", TABLE)).strip().splitlines()
CASES: dict[str, Case] = dict(map(listed, ROWS))


def case(play: Case) -> Case:
    CASES[play.__name__] = play
    return play


@case
def optimizer_in_backward(p: Program) -> Outcome:
    for _ in range(12):
        p.data()
        p.forward()
        for parameter in range(50, 0, -1):
            p.backwards += 1
            p.opt(parameter, line=5)
        p.backward()
    return {"training": 12}, []


@case
def unused_parameter(p: Program) -> Outcome:
    """One optimizer per parameter; the one that is usually first has no gradient now and then."""
    for i in range(9):
        p.data()
        p.forward()
        for parameter in range(5 if i % 4 != 3 else 4, 0, -1):
            p.backward(1)
            p.opt(parameter, line=5)
    return {"training": 9}, []


@case
def episodes_of_any_length(p: Program) -> Outcome:
    """REINFORCE: the policy is called until the episode ends, then there is one update."""
    for i in range(30):
        for _ in range(5 + 37 * i % 90):
            p.tick(MODULE, 300, 50)
            p.node()
        p.backward()
        p.opt()
    return {"training": 30}, []


@pytest.mark.parametrize("name", CASES)
def test_loops(name: str, program: Program) -> None:
    loops, changes = CASES[name](program)
    result = program.result()
    assert result.loops == loops
    assert [(step, loop) for step, _, _, loop in result.changes] == changes
    assert result.count == sum(loops.values())


@pytest.mark.parametrize("name", CASES)
def test_no_step_depends_on_how_long_anything_took(
    name: str, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play() -> tuple[object, ...]:
        p = Program(library)
        CASES[name](p)
        r = p.result()
        p.close()
        return r.ends, r.loop_of, r.changes, r.begin

    usual = play()
    random = Random(name)
    monkeypatch.setattr(Program, "wait", lambda p, ms=1: setattr(p, "time", p.time + int(random.expovariate(1e-8))))
    for _ in range(3):
        assert play() == usual


def test_a_clock_that_was_passed_over_is_said(program: Program) -> None:
    program.play("d 80(f1 c) o 2(d 20(f1 c) o)")
    result = program.result()
    assert (result.kind, result.line) == (BACKWARD, 15)
    assert result.passed == (OPTIMIZER, 20, 3)


def test_a_clock_with_enough_steps_passes_nothing_over(program: Program) -> None:
    program.play("12(d g o) d")
    assert program.result().passed == (0, 0, 0)


@pytest.mark.parametrize(("iterations", "joined"), [(10, True), (8, False), (3, False)])
def test_updates_of_an_iteration_are_said(program: Program, iterations: int, joined: bool) -> None:
    program.play(f"{iterations}(5(d g o) g o2@25)")
    result = program.result()
    assert (result.updates, result.updates_line, result.joined) == (5, 25, joined)
    assert result.count == (iterations if joined else iterations * 5)
    assert result.line == (25 if joined else 20)


def test_two_iterations_say_nothing_about_rates(program: Program) -> None:
    program.play("2(5(d g o) g o2@25)")
    assert program.result().updates == 0


def test_iterations_end_with_the_line_that_ticks_once(program: Program) -> None:
    program.play("10(5(d g o) g o2@25)")
    assert program.result().ends == program.ends[5::6]


def test_steps_end_behind_the_last_tick_that_belongs_to_them(program: Program) -> None:
    assert program.play("5(d f b o o2 w)").result().ends == program.ends[1::2]


def test_plain_steps_end_at_their_ticks(program: Program) -> None:
    program.play("10(d g o) d")
    assert program.result().ends == program.ends


def test_two_phases_made_up_front_are_cut_where_the_second_takes_over(program: Program) -> None:
    program.play("4(d g o) d")
    program.play("4(d101 g o2) d101")
    assert program.result().ends == program.ends


def test_evaluation_ends_where_training_goes_on(program: Program) -> None:
    """What is made of its results is no part of the next training step."""
    program.play("10(d g o) d")
    program.play("20(e w3) e")
    first = program.position
    program.play("10(d101 g o) d101")
    result = program.result()
    assert result.loop_of[10:31] == ["evaluation"] * 20 + ["training"]
    assert result.ends[29] == first


def test_evaluation_at_the_end_ends_where_its_loader_was_empty(program: Program) -> None:
    program.play("10(d g o) d")
    program.play("20(e w3) e")
    last = program.position - 1
    program.wait(10)
    assert program.result().ends[-1] == last


def test_setup_is_no_part_of_the_first_step(program: Program) -> None:
    first = program.play("new500 new1 w100").position
    assert program.play("d f b o").result().begin == first


def test_without_a_loader_the_first_node_begins(program: Program) -> None:
    first = program.play("new1 w104").position
    assert program.play("n b o").result().begin == first


# Batches made on the fly, and a frozen part.
LEARNS = "BATCH m400@49- FORWARD m@50 n b o AFTER"


def test_the_batch_of_the_first_step_belongs_to_it(program: Program) -> None:
    result = program.play(f"new1 SETUP 5({LEARNS})").result()
    assert result.begin == program.blocks["BATCH"][0]
    assert result.ends == [end + 1 for end in program.ends]  # with what trails the update


def test_another_thread_leads_to_nothing(program: Program) -> None:
    program.new(1)
    made = []
    for _ in range(5):
        program.block(BATCH + 100, thread=7)
        made.append(program.block(BATCH))
        program.tick(MODULE, 300, 50)
        program.backward()
        program.opt()
    assert program.result().begin == made[0]


def test_without_modules_the_first_forward_begins(program: Program) -> None:
    result = program.play("new1 SETUP 5(BATCH FORWARD n b o AFTER)").result()
    assert result.begin == program.blocks["BATCH"][0]


def test_evaluation_has_its_own_batches(program: Program) -> None:
    result = program.play(
        f"SETUP 6({LEARNS}) 4(TEST_BATCH m@60- SUM) REST 6({LEARNS})"
    ).result()  # REST: of all results
    assert result.loops == {"training": 12, "evaluation": 4}
    assert result.ends[6:10] == [*program.blocks["TEST_BATCH"][1:], program.blocks["BATCH"][6]]


def test_what_ends_an_iteration_belongs_to_it(program: Program) -> None:
    """Not to evaluation, which begins with what leads to its first batch."""
    result = program.play("2(6(BATCH m@50 b o AFTER m310@52- SUM) 3(TEST_BATCH m@60-))").result()
    assert result.loops == {"training": 12, "evaluation": 6}
    assert [result.ends[5], result.ends[14]] == program.blocks["TEST_BATCH"][::3]


@pytest.mark.parametrize("batch", [BATCH, None], ids=["batches", "no batches"])
@pytest.mark.parametrize("also_calls", [False, True])
def test_what_trails_an_update_is_of_its_step(program: Program, also_calls: bool, batch: int | None) -> None:
    """A metric behind the update, also before an evaluation of one call, which has a batch of its own."""
    ends, evaluations = [], []
    for _ in range(4):
        for _ in range(3):
            at = program.block(batch) if batch else program.position
            ends.append(at)
            program.tick(MODULE, 300, 50)
            program.backward()
            program.opt()
            program.block(AFTER)
            if also_calls:
                program.tick(MODULE, 310, 52, no_grad=True)
            program.block(SUM)
            program.block(SUM)
        evaluations.append(program.block(TEST_BATCH))
        program.tick(MODULE, 300, 60, no_grad=True)
        program.block(REST)
    result = program.result()
    of_training = [end for end, loop in zip(result.ends, result.loop_of, strict=True) if loop == "training"]
    assert result.loops == {"training": 12, "evaluation": 4}
    assert of_training[2::3] == evaluations
    assert [of_training[i] for i in (0, 1, 3, 4, 6, 7, 9, 10)] == [ends[i] for i in (1, 2, 4, 5, 7, 8, 10, 11)]


@pytest.mark.parametrize("loader", [True, False])
def test_what_trails_an_update_is_known_without_an_evaluation(program: Program, loader: bool) -> None:
    """What leads to a batch or call led to the first one, too."""
    ends = []
    for step in range(12):
        at = program.position if loader else program.block(BATCH)
        program.tick(DATA if loader else MODULE, 300, 50)
        program.backward()
        program.opt()
        program.block(AFTER)
        if step % 5 == 4:
            program.block(SUM)
        ends.append(at)
    result = program.result()
    assert result.ends == [*ends[1:], program.position]


@pytest.mark.parametrize("closed", [False, True], ids=["the program ends", "the recording is stopped"])
def test_the_last_step_ends_right_behind_what_trails_it(program: Program, closed: bool) -> None:
    """The function that trains returns, and what it has kept is freed: that is no part of the step."""
    end = program.play("12(BATCH m@50 b o AFTER)").position
    program.position += 12  # it is freed
    if closed:
        program.close_recording()
    assert program.result().ends[-1] == end


def test_where_the_first_call_also_follows_an_update_nothing_trails(program: Program) -> None:
    """A generator's noise is made between two updates from the first iteration on."""
    result = program.play("new1 new2 12(BATCH m@50 b o AFTER m310@60 b o2@21)").result()
    assert result.ends == program.ends[1::2]


def test_where_the_first_calls_leads_were_left_out_nothing_trails(program: Program) -> None:
    program.play("BATCH").library.cm_clock_compacted(program.clock)
    assert program.play("12(m@50 b o BATCH)").result().ends == program.ends


def test_what_leads_to_a_call_trails_nothing(program: Program) -> None:
    """Training and evaluation in one loop, which makes batches at one line."""
    result = program.play("4(3(BATCH m@50 b o) BATCH m@50-)").result()
    of_training = [end for end, loop in zip(result.ends, result.loop_of, strict=True) if loop == "training"]
    assert of_training[2::3] == program.ends[2::3]


def test_the_last_call_ends_where_something_new_begins(program: Program) -> None:
    result = program.play("5(BATCH m@60- SUM) REST REST").result()
    made = program.blocks["BATCH"]
    assert (result.begin, result.ends) == (made[0], [*made[1:], program.blocks["REST"][0]])


def test_the_end_of_the_recording_is_no_part_of_the_last_call(program: Program) -> None:
    at = program.play("5(m@60-) w").close_recording()
    assert program.play("REST").result().ends[-1] == at


def test_where_blocks_were_left_out_calls_divide(program: Program) -> None:
    program.play(f"6({LEARNS})")
    calls = []
    for _ in range(4):
        program.play("TEST_BATCH").library.cm_clock_compacted(program.clock)
        calls.append(program.tick(MODULE, 300, 60, no_grad=True))
    result = program.play(f"6({LEARNS})").result()
    assert result.ends[6:10] == [*calls[1:], program.blocks["BATCH"][6]]


def test_where_nothing_was_set_up_the_recording_begins(program: Program) -> None:
    program.new(500, before=True)
    program.new(1, before=True)
    program.forward()
    program.backward()
    program.opt()
    assert program.result().begin == 0


def test_clock_names_its_kind_and_most_frequent_line(program: Program) -> None:
    program.play("3(d g o) d")
    program.play("9(d101 g o@40) d101")
    result = program.result()
    assert (result.kind, result.line) == (OPTIMIZER, 40)


def test_changes_say_kind_and_line(program: Program) -> None:
    program.play("10(d g o) d")
    program.play("20(e w3) e")
    program.play("10(d101 g o) d101")
    assert program.result().changes == [(10, DATA, 30, "evaluation"), (30, OPTIMIZER, 20, "training")]


def test_choosing_again_after_more_ticks(program: Program) -> None:
    program.play("5(d g o) d")
    assert program.result().count == 5
    program.play("5(d101 g o) d101")
    assert program.result().count == 10


def test_optimizer_in_backward_at_length(program: Program) -> None:
    for _ in range(2000):
        for parameter in range(20):
            program.opt(parameter, line=5)
        program.wait(1)
    assert program.result().count == 2000
