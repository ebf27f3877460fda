"""Programs that are refused memory, and what a user expects to see. Each begins with BEGIN."""

BEGIN = """
import sys, threading
import torch
import cuptimem

kept = [torch.zeros(1000) for _ in range(3)]

def ask(power=46):
    return torch.empty(1 << power)
"""

# Under `cuptimem run`; the page is printed once.
LEAVES_THE_PROGRAM = {
    "wrapped": """
try:
    ask()
except RuntimeError as error:
    raise ValueError("no room") from error
""",
    "through a profile": """
with cuptimem.profile():
    ask()
""",
    "of an open profile": """
cuptimem.profile().start()
ask()
""",
    "with a hook of the program's own": """
sys.excepthook = lambda *seen: print("hook", file=sys.stderr)
ask()
""",
    "after many that were caught": """
for _ in range(10_000):
    try:
        ask()
    except RuntimeError:
        pass
model = torch.nn.Linear(2, 2)
model.register_forward_hook(lambda *_: ask())
model(torch.ones(1, 2))
""",
}

# Five refused requests: retried smaller, in a profile, in a thread, kept as test runners keep it, and an exit.
STAYS = """
for power in (46, 10):
    try:
        ask(power)
    except RuntimeError:
        pass
try:
    with cuptimem.profile():
        ask()
except RuntimeError:
    pass
thread = threading.Thread(target=ask)
thread.start()
thread.join()
def call():
    try:
        ask()
    except RuntimeError as error:
        sys.last_value = sys.last_exc = error
call()
try:
    ask()
except RuntimeError:
    sys.exit("no room")
"""

# Python's own memory: PyTorch was not asked.
NOT_PYTORCHS = "raise MemoryError('no room')"

# What leaves the outermost profile.
LEAVES_A_PROFILE = {
    "block": """
with cuptimem.profile():
    ask()
""",
    "the outer one of two": """
with cuptimem.profile(), cuptimem.profile():
    ask()
""",
    "function": """
@cuptimem.profile
def call():
    ask()
call()
""",
    "generator": """
@cuptimem.profile
def call():
    yield 1
    ask()
list(call())
""",
    "coroutine": """
import asyncio
@cuptimem.profile
async def call():
    ask()
asyncio.run(call())
""",
    "asynchronous generator": """
import asyncio
@cuptimem.profile
async def call():
    yield 1
    ask()
async def main():
    async for _ in call():
        pass
asyncio.run(main())
""",
    "schedule": """
with cuptimem.profile(schedule=cuptimem.schedule(wait=1, warmup=1, active=2)) as prof:
    prof.step()
    prof.step()
    ask()
""",
}

STAYS_IN_A_PROFILE = {
    "caught inside": """
with cuptimem.profile():
    try:
        ask()
    except RuntimeError:
        pass
""",
    "caught outside of the inner one": """
with cuptimem.profile():
    try:
        with cuptimem.profile():
            ask()
    except RuntimeError:
        pass
""",
    "a call while another is dealt with": """
@cuptimem.profile
def call():
    return ask(10)
try:
    ask()
except RuntimeError:
    call()
""",
    "before the profile": """
try:
    ask()
except RuntimeError as error:
    first = error
try:
    with cuptimem.profile():
        raise first
except RuntimeError:
    pass
""",
}
