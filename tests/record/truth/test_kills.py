"""SIGKILL at any moment loses nothing that was published.

The programs run under the oracle's log in shared memory, which is what a killed program leaves behind independently
of us. Each trace is compared twice: at once, when its end is still in the ring, and after the next run has swept.
"""

import random

import pytest

BLOCK = 2047  # events that fit in a ring block


def cases(each: int) -> list[dict[str, object]]:
    choose = random.Random(11)
    found: list[dict[str, object]] = []
    found += [{"program": "gpt", "kill_at": choose.randrange(3, 12_000)} for _ in range(each)]
    found += [{"program": "churn", "kill_at": BLOCK * k + choose.randrange(-6, 7)} for k in range(1, each + 1)]
    found += [{"program": "growth", "kill_at": int(10 ** choose.uniform(0.5, 4))} for _ in range(each)]
    found += [{"program": "churn", "phase": 1, "delay": choose.uniform(0, 0.03)} for _ in range(each)]
    found += [{"program": "accumulate", "phase": 3, "delay": choose.uniform(0, 0.02)} for _ in range(each)]
    return found


@pytest.mark.scaled
def test_killed_programs_lose_nothing(child, tmp_path, long):
    import json

    rings = tmp_path / "rings"
    rings.mkdir()
    each = 10 if long else 2
    chosen = cases(each)
    found = child("kill_zygote.py", tmp_path, json.dumps(chosen), CUPTIMEM_RING_DIR=str(rings), timeout=900)
    wrong = [
        (result["case"], result["phase"], moment, result[moment]["wrong"])
        for result in found["results"]
        for moment in ("fresh", "swept")
        if result.get(moment, {}).get("wrong")
    ]
    assert not wrong, f"{len(wrong)} of {2 * len(chosen)}: " + "\n".join(map(str, wrong[:12]))
    killed = [r for r in found["results"] if r["killed"]]
    assert len(killed) == len(chosen), [r["status"] for r in found["results"]]
    assert sum(1 for r in killed if r["phase"] == 1) == each
    assert sum(1 for r in killed if r["phase"] == 2) >= 3 * each - 2
    assert sum(r["fresh"]["needed"] for r in killed) > 6_000 * each
    assert sum(r["swept"]["stacks"] for r in killed if "swept" in r) > 100 * each
    assert found["last"] == 0
    assert found["last_found"]["wrong"] == []
    assert found["rings_left"] == [], "rings of the dead were not removed"
