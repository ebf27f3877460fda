"""The step clock as a pure function: sequences of ticks as real loops emit them, and the steps that they are."""

import ctypes
from collections.abc import Callable, Iterator
from random import Random

import craft
import pytest
from craft import BACKWARD, DATA, MODULE, OPTIMIZER, ROOT, STEP

MS = 1_000_000
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

    def train(
        self, batches: int, *, loader: int | None = 100, opt: int = 1, line: int = 20, data_line: int = 10
    ) -> None:
        """One epoch: the loader is asked once more at its end."""
        for _ in range(batches):
            if loader is not None:
                self.data(loader, data_line)
            self.gradients()
            self.opt(opt, line)
        if loader is not None:
            self.data(loader, data_line)

    def evaluate(self, batches: int, *, loader: int = 200, line: int = 30, ms: float = 3) -> None:
        for _ in range(batches):
            self.data(loader, line)
            self.wait(ms)
        self.data(loader, line)

    def result(self) -> "Result":
        out = Steps()
        begin, end = Moment(0, 0), Moment(self.position, self.time)
        assert self.library.cm_clock_choose(self.clock, begin, end, ctypes.byref(out))
        result = Result(out)
        self.library.cm_steps_free(ctypes.byref(out))
        return result


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


# Each plays a program and says what must come out: steps per loop, and (step, loop) of each change.
Outcome = tuple[dict[str, int], list[tuple[int, str]]]
Case = Callable[[Program], Outcome]
CASES: dict[str, Case] = {}


def case(play: Case) -> Case:
    CASES[play.__name__] = play
    return play


@case
def plain(p: Program) -> Outcome:
    p.train(20)
    return {"training": 20}, []


@case
def two_epochs(p: Program) -> Outcome:
    p.train(10)
    p.train(10, loader=101)
    return {"training": 20}, []


@case
def no_loader(p: Program) -> Outcome:
    p.train(12, loader=None)
    return {"training": 12}, []


@case
def recreated_optimizer(p: Program) -> Outcome:
    for i in range(8):
        p.data()
        p.new(1000 + i)
        p.gradients()
        p.opt(1000 + i)
    return {"training": 8}, []


@case
def recreated_at_the_same_address(p: Program) -> Outcome:
    for _ in range(8):
        p.new(1000)
        p.gradients()
        p.opt(1000)
    return {"training": 8}, []


@case
def two_recreated_optimizers(p: Program) -> Outcome:
    for i in range(6):
        p.new(1000 + i)
        p.new(2000 + i)
        p.gradients()
        p.opt(1000 + i)
        p.opt(2000 + i)
    return {"training": 6}, []


@case
def recreated_every_epoch(p: Program) -> Outcome:
    for epoch in range(3):
        p.new(1000 + epoch)
        p.train(5, opt=1000 + epoch)
    return {"training": 15}, []


@case
def list_of_optimizers(p: Program) -> Outcome:
    for _ in range(7):
        p.data()
        p.gradients()
        for o in (1, 2, 3):
            p.opt(o)
    return {"training": 7}, []


@case
def gan(p: Program) -> Outcome:
    for _ in range(9):
        p.data()
        p.gradients()
        p.opt(1, line=20)
        p.gradients()
        p.opt(2, line=25)
    return {"training": 9}, []


def critics(p: Program, iterations: int, updates: int = 5, *, lines: tuple[int, int] = (20, 25)) -> None:
    for _ in range(iterations):
        for _ in range(updates):
            p.data()
            p.gradients()
            p.opt(1, line=lines[0])
        p.gradients()
        p.opt(2, line=lines[1])


@case
def five_critics(p: Program) -> Outcome:
    critics(p, 10)
    return {"training": 10}, []


@case
def five_critics_of_one_line(p: Program) -> Outcome:
    """def update(optimizer, loss): ... optimizer.step()"""
    critics(p, 10, lines=(20, 20))
    return {"training": 10}, []


@case
def five_critics_in_too_few_iterations(p: Program) -> Outcome:
    critics(p, 4)
    return {"training": 20}, []


@case
def critics_that_begin_with_more_updates(p: Program) -> Outcome:
    """As the first WGAN does: the critic is trained well before the generator moves."""
    critics(p, 1, updates=30)
    critics(p, 12)
    return {"training": 29, "training 2": 1 + 12}, [(29, "training 2")]


@case
def critics_and_an_iteration_that_is_not_finished(p: Program) -> Outcome:
    critics(p, 10)
    for _ in range(3):
        p.gradients()
        p.opt(1, line=20)
    p.evaluate(20)
    return {"training": 10, "evaluation": 20}, [(10, "evaluation")]


@case
def delayed_actor(p: Program) -> Outcome:
    """Every second update of the critics one of the actor."""
    for i in range(40):
        p.gradients()
        p.opt(1, line=20)
        if i % 2:
            p.gradients()
            p.opt(2, line=30)
    return {"training": 20}, []


@case
def two_rates_that_vary(p: Program) -> Outcome:
    for i in range(60):
        p.gradients()
        p.opt(1, line=20)
        if i % 7 in (1, 2, 5):
            p.opt(2, line=30)
    return {"training": 60}, []


@case
def an_optimizer_of_each_epoch(p: Program) -> Outcome:
    """Ten updates are no iteration."""
    for _ in range(10):
        for _ in range(10):
            p.gradients()
            p.opt(1, line=20)
        p.opt(2, line=30)
    return {"training": 100}, []


@case
def two_backwards_an_iteration(p: Program) -> Outcome:
    for _ in range(10):
        p.forward()
        p.backward(line=15)
        p.forward()
        p.backward(line=17)
    return {"training": 10}, []


@case
def three_backwards_to_one_by_hand(p: Program) -> Outcome:
    for _ in range(10):
        for _ in range(3):
            p.forward()
            p.backward(line=15)
        p.forward()
        p.backward(line=17)
    return {"training": 10}, []


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


def closures(p: Program, steps: int, evaluations: int = 20) -> None:
    for i in range(steps):
        p.data()
        for _ in range(evaluations if i % 3 else 4 * evaluations):
            p.forward(1)
            p.backward(1, inside=True)
        p.opt()


@case
def lbfgs(p: Program) -> Outcome:
    """Some steps evaluate the closure four times as often: they are steps all the same."""
    closures(p, 12)
    return {"training": 12}, []


@case
def lbfgs_once(p: Program) -> Outcome:
    closures(p, 1, 15)
    return {"training": 60}, []


@case
def lbfgs_a_few_times(p: Program) -> Outcome:
    closures(p, 5)
    return {"training": 2 * 80 + 3 * 20}, []


@case
def accumulation(p: Program) -> Outcome:
    for i in range(80):
        p.data()
        p.gradients()
        if i % 8 == 7:
            p.opt()
    return {"training": 10}, []


@case
def accumulation_with_few_steps(p: Program) -> Outcome:
    for i in range(40):
        p.data()
        p.gradients()
        if i % 8 == 7:
            p.opt()
    return {"training": 40}, []


@case
def a_step_at_the_end_only(p: Program) -> Outcome:
    p.new(1)
    for _ in range(30):
        p.gradients()
    p.opt()
    return {"training": 30}, []


@case
def few_of_everything(p: Program) -> Outcome:
    p.train(3)
    return {"training": 3}, []


@case
def a_graph_of_many_batches(p: Program) -> Outcome:
    """One backward and one step an epoch, of the sum of all losses."""
    for epoch in range(3):
        for _ in range(10):
            p.data(100 + epoch)
            p.forward()
        p.backward()
        p.opt()
    return {"evaluation": 29}, []


@case
def one_overflow(p: Program) -> Outcome:
    for i in range(20):
        p.data()
        p.gradients()
        if i != 9:
            p.opt()
    return {"training": 19}, []


@case
def many_overflows(p: Program) -> Outcome:
    """Six skipped in a row: three periods of silence, so iterations are counted by the loader."""
    for i in range(30):
        p.data()
        p.gradients()
        if not 10 <= i < 16:
            p.opt()
    return {"training": 30}, [(10, "training"), (16, "training")]


@case
def overflows_at_the_start(p: Program) -> Outcome:
    for i in range(20):
        p.data()
        p.gradients()
        if i >= 5:
            p.opt()
    return {"training": 20}, [(5, "training")]


@case
def slow_step(p: Program) -> Outcome:
    """A checkpoint is saved: silence, but nothing else ticks more than usual."""
    p.train(10)
    p.wait(500)
    p.train(10, loader=101)
    return {"training": 20}, []


@case
def slow_step_with_accumulation(p: Program) -> Outcome:
    """Many ticks of the loader in a long silence, but as many as in every step."""
    for i in range(80):
        p.data()
        p.gradients()
        if i % 8 == 7:
            p.opt()
            p.wait(2000 if i == 39 else 1)
    return {"training": 10}, []


@case
def slow_step_with_a_skip(p: Program) -> Outcome:
    """A long silence in which the loader ticks twice as often as in a usual step: not often enough."""
    for i in range(80):
        p.data()
        p.gradients()
        if i == 39:
            p.wait(2000)
        elif i % 8 == 7:
            p.opt()
    return {"training": 9}, []


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
def two_explicit_clocks(p: Program) -> Outcome:
    for _ in range(4):
        p.forward()
        p.tick(STEP, 1, 70)
        p.forward()
        p.tick(STEP, 2, 71)
    return {"evaluation": 8}, []


@case
def evaluation_after_each_epoch(p: Program) -> Outcome:
    for epoch in range(3):
        p.train(10, loader=100 + epoch)
        p.evaluate(20, loader=200 + epoch)
    changes = [(10, "evaluation"), (30, "training"), (40, "evaluation"), (60, "training"), (70, "evaluation")]
    return {"training": 30, "evaluation": 60}, changes


@case
def iterators_at_one_address(p: Program) -> Outcome:
    """Each loader's iterator lives where the one before it died."""
    for _ in range(3):
        p.train(10, loader=100)
        p.evaluate(20, loader=100)
    changes = [(10, "evaluation"), (30, "training"), (40, "evaluation"), (60, "training"), (70, "evaluation")]
    return {"training": 30, "evaluation": 60}, changes


@case
def iterators_at_one_address_and_line(p: Program) -> Outcome:
    for _ in range(3):
        p.renew(200)
        p.evaluate(15, loader=200)
    return {"evaluation": 45}, []


@case
def evaluation_every_four(p: Program) -> Outcome:
    for block in range(4):
        for _ in range(4):
            p.data(100)
            p.gradients()
            p.opt()
        p.evaluate(20, loader=200 + block)
    changes = [(4, "evaluation"), (24, "training"), (28, "evaluation"), (48, "training")]
    changes += [(52, "evaluation"), (72, "training"), (76, "evaluation")]
    return {"training": 16, "evaluation": 80}, changes


@case
def short_evaluation(p: Program) -> Outcome:
    for block in range(4):
        for _ in range(5):
            p.data(100)
            p.gradients()
            p.opt()
        p.evaluate(3, loader=200 + block)
    changes = [(5, "evaluation"), (8, "training"), (13, "evaluation"), (16, "training"), (21, "evaluation")]
    return {"training": 20, "evaluation": 12}, [*changes, (24, "training"), (29, "evaluation")]


@case
def one_batch_of_evaluation(p: Program) -> Outcome:
    for block in range(4):
        for _ in range(5):
            p.data(100)
            p.gradients()
            p.opt()
        p.evaluate(1, loader=200 + block)
    changes = [(5, "evaluation"), (6, "training"), (11, "evaluation"), (12, "training"), (17, "evaluation")]
    return {"training": 20, "evaluation": 4}, [*changes, (18, "training"), (23, "evaluation")]


@case
def evaluation_every_second_step(p: Program) -> Outcome:
    for i in range(20):
        p.gradients()
        p.opt()
        if i % 2:
            p.evaluate(6, loader=200 + i)
    loops = ["evaluation", "training"] * 10
    return {"training": 20, "evaluation": 60}, [(2 + i // 2 * 8 + i % 2 * 6, loops[i]) for i in range(19)]


@case
def evaluation_in_every_step(p: Program) -> Outcome:
    """As it is everywhere, it is part of a step."""
    for i in range(20):
        p.data()
        p.gradients()
        p.opt()
        p.evaluate(6, loader=200 + i)
    return {"training": 20}, []


@case
def one_line_trains_and_evaluates(p: Program) -> Outcome:
    """for phase in ("train", "val"): for x in loaders[phase]: ..."""
    for epoch in range(3):
        p.train(10, loader=100 + epoch)
        p.evaluate(6, loader=200 + epoch, line=10)
    changes = [(10, "evaluation"), (16, "training"), (26, "evaluation"), (32, "training"), (42, "evaluation")]
    return {"training": 30, "evaluation": 18}, changes


@case
def batches_that_are_skipped(p: Program) -> Outcome:
    """if bad(batch): continue, twice in a row at most."""
    for i in range(40):
        p.data()
        if i % 11 in (3, 4):
            continue
        p.gradients()
        p.opt()
    return {"training": 40 - 8}, []


@case
def evaluation_by_calls(p: Program) -> Outcome:
    for _ in range(3):
        for _ in range(10):
            p.tick(MODULE, 300, 50)
            p.tick(MODULE, 301, 51)
            p.gradients()
            p.opt()
        for _ in range(6):
            p.tick(MODULE, 300, 60)
            p.tick(MODULE, 301, 61)
            p.wait(3)
    changes = [(10, "evaluation"), (16, "training"), (26, "evaluation"), (32, "training"), (42, "evaluation")]
    return {"training": 30, "evaluation": 18}, changes


@case
def a_decoder_called_twice_in_each_step(p: Program) -> Outcome:
    """It is called in evaluation as often as in training, behind the encoder: n batches are n steps."""
    for _ in range(3):
        for _ in range(8):
            p.tick(MODULE, 300, 50)
            p.tick(MODULE, 301, 51)
            p.tick(MODULE, 301, 52)
            p.gradients()
            p.opt()
        for _ in range(4):
            p.tick(MODULE, 300, 60, no_grad=True, eval_mode=True)
            for _ in range(2):
                p.tick(MODULE, 301, 61, no_grad=True, eval_mode=True)
            p.wait(3)
    changes = [(8, "evaluation"), (12, "training"), (20, "evaluation"), (24, "training"), (32, "evaluation")]
    return {"training": 24, "evaluation": 12}, changes


@case
def a_decoder_that_generates(p: Program) -> Outcome:
    """It is called once in a step of training: each further call without gradient is a step."""
    for _ in range(8):
        p.tick(MODULE, 300, 50)
        p.tick(MODULE, 301, 51)
        p.gradients()
        p.opt()
    p.tick(MODULE, 300, 60, no_grad=True, eval_mode=True)
    for _ in range(5):
        p.tick(MODULE, 301, 61, no_grad=True, eval_mode=True)
    return {"training": 8, "evaluation": 1, "evaluation 2": 4}, [(8, "evaluation"), (9, "evaluation 2")]


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


@case
def rollouts_and_updates(p: Program) -> Outcome:
    """PPO: 40 steps of the environment without a graph, then 8 updates."""
    for _ in range(5):
        for _ in range(40):
            p.tick(MODULE, 300, 50)
        for _ in range(8):
            p.tick(MODULE, 300, 60)
            p.gradients()
            p.opt()
    changes = [change for i in range(5) for change in ((48 * i, "evaluation"), (40 + 48 * i, "training"))]
    return {"training": 40, "evaluation": 200}, changes[1:]


@case
def chunks_without_a_graph_first(p: Program) -> Outcome:
    """Contrastive loss in chunks: each is embedded without a graph, then again with one."""
    for i in range(20):
        chunks = 12 if i == 10 else 3
        for _ in range(chunks):
            p.tick(MODULE, 300, 50)
        for _ in range(chunks):
            p.tick(MODULE, 300, 55)
            p.gradients()
        p.opt()
    return {"training": 20 + 9}, [(10, "training"), (19, "training")]


@case
def evaluation_with_accumulation(p: Program) -> Outcome:
    for epoch in range(3):
        for i in range(16):
            p.data(100)
            p.gradients()
            if i % 4 == 3:
                p.opt()
        p.evaluate(60, loader=200 + epoch)
    changes = [(4, "evaluation"), (64, "training"), (68, "evaluation"), (128, "training"), (132, "evaluation")]
    return {"training": 12, "evaluation": 180}, changes


@case
def evaluation_first(p: Program) -> Outcome:
    p.evaluate(30)
    p.train(10)
    return {"evaluation": 30, "training": 10}, [(30, "training")]


@case
def two_phases_two_lines(p: Program) -> Outcome:
    p.train(10, opt=1, line=20)
    p.train(12, opt=2, line=40, loader=101, data_line=35)
    return {"training": 10, "training 2": 12}, [(10, "training 2")]


@case
def two_phases_one_line(p: Program) -> Outcome:
    """Both optimizers exist from the start: the second's first tick is no part of the first's last step."""
    p.new(1)
    p.new(2)
    p.train(10, opt=1)
    p.train(12, opt=2, loader=101)
    return {"training": 22}, []


@case
def alternating_lines(p: Program) -> Outcome:
    for i in range(20):
        p.data()
        p.gradients()
        p.opt(1, line=20 if i % 3 else 22)
    return {"training": 20}, []


@case
def alternating_phases(p: Program) -> Outcome:
    for _ in range(2):
        p.train(10, opt=1, line=20)
        p.train(10, opt=2, line=40, loader=101)
    return {"training": 20, "training 2": 20}, [(10, "training 2"), (20, "training"), (30, "training 2")]


@case
def explicit(p: Program) -> Outcome:
    """prof.step() replaces every automatic clock, from the very beginning."""
    p.train(5)
    for i in range(6):
        p.data()
        p.gradients()
        p.opt(1)
        p.opt(2)
        if i % 2:
            p.tick(STEP, 9, 70)
    p.train(5)
    return {"training": 3}, []


@case
def inference_with_a_loader(p: Program) -> Outcome:
    p.evaluate(15)
    return {"evaluation": 15}, []


@case
def inference_two_epochs(p: Program) -> Outcome:
    """The tick that ends an epoch and the one that begins the next are one boundary."""
    p.evaluate(15, loader=200)
    p.wait(1)
    p.evaluate(15, loader=201)
    return {"evaluation": 30}, []


@case
def zipped_loaders(p: Program) -> Outcome:
    for _ in range(10):
        p.data(200, 30)
        p.data(201, 30)
        p.wait(3)
    p.data(200, 30)
    return {"evaluation": 10}, []


@case
def module_calls(p: Program) -> Outcome:
    for _ in range(9):
        p.tick(MODULE, 300, 60)
        p.wait(5)
    return {"evaluation": 9}, []


@case
def hand_written_optimizer(p: Program) -> Outcome:
    for _ in range(10):
        p.data()
        p.gradients()
        p.wait(1)
    p.data()
    return {"training": 10}, []


@case
def training_then_module_calls(p: Program) -> Outcome:
    p.train(10, loader=None)
    for _ in range(20):
        p.tick(MODULE, 300, 60)
        p.wait(5)
    return {"training": 10, "evaluation": 20}, [(10, "evaluation")]


@case
def a_short_evaluation_is_the_same_at_the_end(p: Program) -> Outcome:
    for epoch in range(3):
        p.train(10, loader=100 + epoch)
        p.evaluate(5, loader=200 + epoch, ms=0.5)
    p.wait(5000)
    changes = [(10, "evaluation"), (15, "training"), (25, "evaluation"), (30, "training"), (40, "evaluation")]
    return {"training": 30, "evaluation": 15}, changes


@case
def gradients_by_hand(p: Program) -> Outcome:
    for _ in range(20):
        p.tick(MODULE, 300, 50)
        p.gradients()
    return {"training": 20}, []


@case
def an_optimizer_and_then_gradients_by_hand(p: Program) -> Outcome:
    p.train(10, loader=None)
    for _ in range(20):
        p.forward()
        p.backward(line=40)
    return {"training": 30}, [(10, "training")]


@case
def generation(p: Program) -> Outcome:
    """A prompt at one line, then tokens at another, as many as the answer has."""
    tokens = [7, 3, 30, 1, 12, 55, 8]
    for n in tokens:
        p.tick(MODULE, 300, 60)
        for _ in range(n):
            p.tick(MODULE, 300, 65)
    return {"evaluation": len(tokens) + sum(tokens)}, []


@case
def generation_in_two_phases(p: Program) -> Outcome:
    """A warm-up of the model, then answers; later answers at another line."""
    for lines in ((60, 65), (80, 85)):
        for _ in range(6):
            p.tick(MODULE, 300, lines[0])
            for _ in range(9):
                p.tick(MODULE, 300, lines[1])
    return {"evaluation": 60, "evaluation 2": 60}, [(60, "evaluation 2")]


@case
def a_line_now_and_then(p: Program) -> Outcome:
    """Every tenth update is made elsewhere."""
    for i in range(60):
        p.gradients()
        p.opt(1, line=40 if i % 10 == 9 else 20)
    return {"training": 60}, []


@case
def a_loader_that_runs_ahead(p: Program) -> Outcome:
    """Accelerate asks for the next batch before it hands out the last one: n batches, n + 1 requests before n calls."""
    for _ in range(2):
        for loader, batches, line, trains in ((100, 8, 50, True), (200, 4, 60, False)):
            p.renew(loader)
            p.data(loader, 11)
            for _ in range(batches):
                p.data(loader, 10)
                p.tick(MODULE, 300, line, no_grad=not trains)
                if trains:
                    p.backward()
                    p.opt()
    return {"training": 16, "evaluation": 8}, [(8, "evaluation"), (12, "training"), (20, "evaluation")]


@case
def a_loader_that_is_not_exhausted(p: Program) -> Outcome:
    """Two batches of a longer loader, then the training's iterator goes on."""
    for block in range(4):
        for _ in range(5):
            p.data(100, 10)
            p.tick(MODULE, 300, 50)
            p.backward()
            p.opt()
        p.renew(200 + block)
        for _ in range(2):
            p.data(200 + block, 30)
            p.tick(MODULE, 300, 60, no_grad=True)
    changes = [(5, "evaluation"), (7, "training"), (12, "evaluation"), (14, "training"), (19, "evaluation")]
    return {"training": 20, "evaluation": 8}, [*changes, (21, "training"), (26, "evaluation")]


@case
def two_loaders_side_by_side(p: Program) -> Outcome:
    """a = next(left); f(a); b = next(right); f(b)"""
    for _ in range(10):
        for loader, line in ((200, 30), (201, 32)):
            p.data(loader, line)
            p.tick(MODULE, 300, line + 1)
    p.data(200, 30)
    return {"evaluation": 1, "evaluation 2": 10}, [(1, "evaluation 2")]  # at first they may be two loops


@case
def another_object_is_evaluated(p: Program) -> Outcome:
    for _ in range(3):
        for _ in range(8):
            p.tick(MODULE, 300, 50)
            p.backward()
            p.opt()
        for _ in range(4):
            p.tick(MODULE, 400, 60, no_grad=True)
    changes = [(8, "evaluation"), (12, "training"), (20, "evaluation"), (24, "training"), (32, "evaluation")]
    return {"training": 24, "evaluation": 12}, changes


@case
def another_object_with_gradients(p: Program) -> Outcome:
    """model.eval() alone."""
    for _ in range(3):
        for _ in range(8):
            p.tick(MODULE, 300, 50)
            p.backward()
            p.opt()
        for _ in range(4):
            p.tick(MODULE, 400, 60)
    changes = [(8, "evaluation"), (12, "training"), (20, "evaluation"), (24, "training"), (32, "evaluation")]
    return {"training": 24, "evaluation": 12}, changes


@case
def one_call_without_gradient(p: Program) -> Outcome:
    """A picture now and then."""
    for _ in range(3):
        for _ in range(6):
            p.tick(MODULE, 300, 50)
            p.backward()
            p.opt()
        p.tick(MODULE, 300, 60, no_grad=True)
    changes = [(6, "evaluation"), (7, "training"), (13, "evaluation"), (14, "training"), (20, "evaluation")]
    return {"training": 18, "evaluation": 3}, changes


@case
def a_teacher_in_every_step(p: Program) -> Outcome:
    for _ in range(3):
        p.tick(MODULE, 400, 49, no_grad=True)
        p.tick(MODULE, 300, 50)
        p.backward()
        p.opt()
    return {"training": 3}, []


@case
def a_teacher_now_and_then(p: Program) -> Outcome:
    """Its batch is the step's own."""
    for i in range(20):
        p.data()
        if i % 4 == 3:
            p.tick(MODULE, 400, 49, no_grad=True)
        p.tick(MODULE, 300, 50)
        p.backward()
        p.opt()
    return {"training": 20}, []


@case
def one_line_with_and_without_gradients(p: Program) -> Outcome:
    """for phase in ("train", "val"): with set_grad_enabled(phase == "train"): ..., two batches each."""
    for _ in range(3):
        for batches, trains in ((5, True), (2, False)):
            for _ in range(batches):
                p.data(100, 10)
                p.tick(MODULE, 300, 50, no_grad=not trains)
                if trains:
                    p.backward()
                    p.opt()
    changes = [(5, "evaluation"), (7, "training"), (12, "evaluation"), (14, "training"), (19, "evaluation")]
    return {"training": 15, "evaluation": 6}, changes


def ends_with_calls(p: Program, steps: int, calls: int, *, no_grad: bool) -> None:
    """The update is followed by calls of parts of the model."""
    for _ in range(steps):
        p.tick(MODULE, 300, 50)
        p.backward()
        p.opt()
        for part in range(calls):
            p.tick(MODULE, 310 + part, 52 + part, no_grad=no_grad)


@case
def calls_behind_the_update(p: Program) -> Outcome:
    for _ in range(3):
        ends_with_calls(p, 6, 1, no_grad=False)
        for _ in range(4):
            p.tick(MODULE, 300, 60, no_grad=True)
    changes = [(6, "evaluation"), (10, "training"), (16, "evaluation"), (20, "training"), (26, "evaluation")]
    return {"training": 18, "evaluation": 12}, changes


@case
def two_calls_without_gradient_behind_the_update(p: Program) -> Outcome:
    """Evaluation comes first behind the first update."""
    for steps in (1, 8, 8):
        ends_with_calls(p, steps, 2, no_grad=True)
        for _ in range(3):
            p.tick(MODULE, 300, 60, no_grad=True)
    ends_with_calls(p, 4, 2, no_grad=True)
    changes = [(1, "evaluation"), (4, "training"), (12, "evaluation"), (15, "training"), (23, "evaluation")]
    return {"training": 21, "evaluation": 9}, [*changes, (26, "training")]


@case
def a_loader_behind_calls_behind_the_update(p: Program) -> Outcome:
    for block in range(2):
        ends_with_calls(p, 8, 1, no_grad=False)
        p.renew(200 + block)
        for _ in range(3):
            p.data(200 + block, 30)
            p.tick(MODULE, 300, 60, no_grad=True)
        p.data(200 + block, 30)
    return {"training": 16, "evaluation": 6}, [(8, "evaluation"), (11, "training"), (19, "evaluation")]


@case
def a_loader_of_one_batch_behind_each_update(p: Program) -> Outcome:
    for _ in range(8):
        p.data(100, 10)
        p.tick(MODULE, 300, 50)
        p.backward()
        p.opt()
        p.renew(200)
        p.data(200, 30)
        p.tick(MODULE, 300, 60, no_grad=True, eval_mode=True)
        p.data(200, 30)
    changes = [(step, ("training", "evaluation")[step % 2]) for step in range(1, 16)]
    return {"training": 8, "evaluation": 8}, changes


@case
def a_forward_that_asks_for_shapes(p: Program) -> Outcome:
    p.tick(MODULE, 300, 40, no_grad=True)
    p.train(10, loader=None)
    return {"training": 10}, []


@case
def a_short_training_and_a_long_evaluation(p: Program) -> Outcome:
    p.train(4, loader=None)
    p.evaluate(20)
    return {"training": 4, "evaluation": 20}, [(4, "evaluation")]


@case
def a_sanity_check(p: Program) -> Outcome:
    for _ in range(2):
        p.tick(DATA, 200, 30, sanity=True)
        p.tick(MODULE, 300, 31, no_grad=True, sanity=True)
    for epoch in range(2):
        p.train(10, loader=100 + epoch)
        for _ in range(3):
            p.tick(DATA, 210 + epoch, 30)
            p.tick(MODULE, 300, 31, no_grad=True)
    changes = [(2, "training"), (12, "evaluation"), (15, "training"), (25, "evaluation")]
    return {"sanity check": 2, "training": 20, "evaluation": 6}, changes


@case
def one_step(p: Program) -> Outcome:
    p.train(1)
    return {"training": 1}, []


@case
def nothing(p: Program) -> Outcome:
    p.forward()
    return {}, []


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
    closures(program, 3)
    result = program.result()
    assert (result.kind, result.line) == (BACKWARD, 15)
    assert result.passed == (OPTIMIZER, 20, 3)


def test_a_clock_with_enough_steps_passes_nothing_over(program: Program) -> None:
    program.train(12)
    assert program.result().passed == (0, 0, 0)


@pytest.mark.parametrize(("iterations", "joined"), [(10, True), (8, False), (3, False)])
def test_updates_of_an_iteration_are_said(program: Program, iterations: int, joined: bool) -> None:
    critics(program, iterations)
    result = program.result()
    assert (result.updates, result.updates_line, result.joined) == (5, 25, joined)
    assert result.count == (iterations if joined else iterations * 5)
    assert result.line == (25 if joined else 20)


def test_two_iterations_say_nothing_about_rates(program: Program) -> None:
    critics(program, 2)
    assert program.result().updates == 0


def test_iterations_end_with_the_line_that_ticks_once(program: Program) -> None:
    critics(program, 10)
    assert program.result().ends == program.ends[5::6]


def test_steps_end_behind_the_last_tick_that_belongs_to_them(program: Program) -> None:
    ends = []
    for _ in range(5):
        program.data()
        program.forward()
        program.backward()
        program.opt(1)
        ends.append(program.opt(2) + 1)
        program.wait(1)
    assert program.result().ends == ends


def test_plain_steps_end_at_their_ticks(program: Program) -> None:
    program.train(10)
    assert program.result().ends == program.ends


def test_two_phases_made_up_front_are_cut_where_the_second_takes_over(program: Program) -> None:
    program.train(4, opt=1)
    program.train(4, opt=2, loader=101)
    assert program.result().ends == program.ends


def test_evaluation_ends_where_training_goes_on(program: Program) -> None:
    """What is made of its results is no part of the next training step."""
    program.train(10)
    program.evaluate(20, loader=200)
    first = program.position
    program.train(10, loader=101)
    result = program.result()
    assert result.loop_of[10:31] == ["evaluation"] * 20 + ["training"]
    assert result.ends[29] == first


def test_evaluation_at_the_end_ends_where_its_loader_was_empty(program: Program) -> None:
    program.train(10)
    program.evaluate(20, loader=200)
    last = program.position - 1
    program.wait(10)
    assert program.result().ends[-1] == last


def test_setup_is_no_part_of_the_first_step(program: Program) -> None:
    program.new(500)
    program.new(1)
    program.wait(100)
    first = program.data()
    program.forward()
    program.backward()
    program.opt()
    assert program.result().begin == first


def test_without_a_loader_the_first_node_begins(program: Program) -> None:
    program.new(1)
    program.wait(100)
    program.wait(4)
    first = program.node()
    program.backward()
    program.opt()
    assert program.result().begin == first


SETUP, BATCH, FORWARD, AFTER, TEST_BATCH, SUM, REST = range(1000, 1007)


def learn(program: Program, steps: int) -> tuple[list[int], list[int]]:
    """Batches made on the fly: where they are made, and where steps end."""
    made = []
    for _ in range(steps):
        made.append(program.block(BATCH))
        program.tick(MODULE, 400, 49, no_grad=True)  # a frozen part
        program.block(FORWARD)
        program.tick(MODULE, 300, 50)
        program.node()
        program.backward()
        program.opt()
        program.block(AFTER)
    return made, program.ends[-steps:]


def test_the_batch_of_the_first_step_belongs_to_it(program: Program) -> None:
    program.new(1)
    program.block(SETUP)
    made, ends = learn(program, 5)
    result = program.result()
    assert (result.begin, result.ends) == (made[0], [end + 1 for end in ends])  # with what trails the update


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
    program.new(1)
    program.block(SETUP)
    made = []
    for _ in range(5):
        made.append(program.block(BATCH))
        program.block(FORWARD)
        program.node()
        program.backward()
        program.opt()
        program.block(AFTER)
    assert program.result().begin == made[0]


def test_evaluation_has_its_own_batches(program: Program) -> None:
    program.block(SETUP)
    learn(program, 6)
    made = []
    for _ in range(4):
        made.append(program.block(TEST_BATCH))
        program.tick(MODULE, 300, 60, no_grad=True)
        program.block(SUM)
    program.block(REST)  # of all results
    again, _ = learn(program, 6)
    result = program.result()
    assert result.loops == {"training": 12, "evaluation": 4}
    assert result.ends[6:10] == [*made[1:], again[0]]


def test_what_ends_an_iteration_belongs_to_it(program: Program) -> None:
    """Not to evaluation, which begins with what leads to its first batch."""
    begins = []
    for _ in range(2):
        for _ in range(6):
            program.block(BATCH)
            program.tick(MODULE, 300, 50)
            program.backward()
            program.opt()
            program.block(AFTER)
            program.tick(MODULE, 310, 52, no_grad=True)
            program.block(SUM)
        begins.append(program.block(TEST_BATCH))
        program.tick(MODULE, 300, 60, no_grad=True)
        for _ in range(2):
            program.block(TEST_BATCH)
            program.tick(MODULE, 300, 60, no_grad=True)
    result = program.result()
    assert result.loops == {"training": 12, "evaluation": 6}
    assert [result.ends[5], result.ends[14]] == begins


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
    for _ in range(12):
        program.block(BATCH)
        program.tick(MODULE, 300, 50)
        program.backward()
        program.opt()
        program.block(AFTER)
    end = program.position
    program.position += 12  # it is freed
    if closed:
        program.close_recording()
    assert program.result().ends[-1] == end


def test_where_the_first_call_also_follows_an_update_nothing_trails(program: Program) -> None:
    """A generator's noise is made between two updates from the first iteration on."""
    program.new(1)
    program.new(2)
    for _ in range(12):
        program.block(BATCH)
        program.tick(MODULE, 300, 50)
        program.backward()
        program.opt(1, 20)
        program.block(AFTER)
        program.tick(MODULE, 310, 60)
        program.backward()
        program.opt(2, 21)
    result = program.result()
    assert result.ends == program.ends[1::2]


def test_where_the_first_calls_leads_were_left_out_nothing_trails(program: Program) -> None:
    program.block(BATCH)
    program.library.cm_clock_compacted(program.clock)
    for _ in range(12):
        program.tick(MODULE, 300, 50)
        program.backward()
        program.opt()
        program.block(BATCH)
    assert program.result().ends == program.ends


def test_what_leads_to_a_call_trails_nothing(program: Program) -> None:
    """Training and evaluation in one loop, which makes batches at one line."""
    made = []
    for _ in range(4):
        for trains in (True, True, True, False):
            at = program.block(BATCH)
            program.tick(MODULE, 300, 50, no_grad=not trains)
            if trains:
                program.backward()
                program.opt()
            else:
                made.append(at)
    result = program.result()
    of_training = [end for end, loop in zip(result.ends, result.loop_of, strict=True) if loop == "training"]
    assert of_training[2::3] == program.ends[2::3]


def test_the_last_call_ends_where_something_new_begins(program: Program) -> None:
    made = []
    for _ in range(5):
        made.append(program.block(BATCH))
        program.tick(MODULE, 300, 60, no_grad=True)
        program.block(SUM)
    rest = program.block(REST)
    program.block(REST)
    result = program.result()
    assert (result.begin, result.ends) == (made[0], [*made[1:], rest])


def test_the_end_of_the_recording_is_no_part_of_the_last_call(program: Program) -> None:
    for _ in range(5):
        program.tick(MODULE, 300, 60, no_grad=True)
    program.wait()
    at = program.close_recording()
    program.block(REST)
    assert program.result().ends[-1] == at


def test_where_blocks_were_left_out_calls_divide(program: Program) -> None:
    learn(program, 6)
    calls = []
    for _ in range(4):
        program.block(TEST_BATCH)
        program.library.cm_clock_compacted(program.clock)
        calls.append(program.tick(MODULE, 300, 60, no_grad=True))
    again, _ = learn(program, 6)
    assert program.result().ends[6:10] == [*calls[1:], again[0]]


def test_where_nothing_was_set_up_the_recording_begins(program: Program) -> None:
    program.new(500, before=True)
    program.new(1, before=True)
    program.forward()
    program.backward()
    program.opt()
    assert program.result().begin == 0


def test_clock_names_its_kind_and_most_frequent_line(program: Program) -> None:
    program.train(3, line=20)
    program.train(9, line=40, loader=101)
    result = program.result()
    assert (result.kind, result.line) == (OPTIMIZER, 40)


def test_changes_say_kind_and_line(program: Program) -> None:
    program.train(10)
    program.evaluate(20, loader=200)
    program.train(10, loader=101)
    assert program.result().changes == [(10, DATA, 30, "evaluation"), (30, OPTIMIZER, 20, "training")]


def test_choosing_again_after_more_ticks(program: Program) -> None:
    program.train(5)
    assert program.result().count == 5
    program.train(5, loader=101)
    assert program.result().count == 10


def test_optimizer_in_backward_at_length(program: Program) -> None:
    for _ in range(2000):
        for parameter in range(20):
            program.opt(parameter, line=5)
        program.wait(1)
    assert program.result().count == 2000
