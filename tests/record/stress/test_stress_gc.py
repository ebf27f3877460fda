"""The collector of Python's cycles, in every state that a program may have put it in."""

import pytest


@pytest.mark.torch
@pytest.mark.parametrize("state", ["frozen before", "frozen after", "disabled", "callbacks"])
def test_states_of_the_collector(forked, state):
    answer = forked(
        """
import gc, torch
state = sys.argv[1]
class Box: pass
box = Box(); box.here = torch.empty(4321); nested = {"a": [torch.empty(1234), (torch.empty(777),)]}
calls, made = [], []
if state == "frozen before": gc.collect(); gc.freeze()
if state == "disabled": gc.disable()
def callback(phase, info):
    calls.append(phase)
    made.append(torch.empty(33))                 # a callback that allocates while we look around
    if len(made) > 3: made.pop(0)
if state == "callbacks": gc.callbacks.append(callback)
with cuptimem.profile("run.cmem"):
    if state == "frozen after": gc.freeze()
    cycle = Box(); cycle.me = cycle; cycle.data = torch.empty(5555); address = storage(cycle.data)[0]; del cycle
    gc.collect()
    core.capture_sync()
    result = replay(rows("run.cmem"), snapshot_peak=False)
    live = {a: b.size for a, b in result.live.items()}
    wanted = dict(storage(t) for t in (box.here, nested["a"][0], nested["a"][1][0], *made))
    missing = [n for a, n in wanted.items() if live.get(a) != n]
    say(missing=missing, cycle=address in live, enabled=gc.isenabled(), frozen=gc.get_freeze_count() > 0,
        callbacks=len(gc.callbacks), called=len(calls), lost=result.lost, duplicates=result.duplicates)
""",
        state,
    )
    assert answer["missing"] == [] and (answer["lost"], answer["duplicates"]) == (0, 0)
    assert answer["cycle"] is False, "a collection freed it, and that was not seen"
    assert answer["enabled"] == (state != "disabled") and answer["frozen"] == state.startswith("frozen")
    assert (answer["called"] > 0) == (state == "callbacks")
