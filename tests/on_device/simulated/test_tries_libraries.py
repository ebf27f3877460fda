"""Changes put into programs of real libraries, beside the change as these libraries' users make it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.on_device.simulated.conftest import InOne, tries_in_one
from tests.on_device.simulated.test_tries import CODE, TRIED, asked_once
from tests.pythons import WITH_LIBRARIES

pytestmark = [pytest.mark.cuda_torch, pytest.mark.costly]
if not WITH_LIBRARIES.exists():
    pytest.skip("no environment with these libraries: `make attribution` makes one", allow_module_level=True)

PAIRS = (
    *(("trainer", change, 0) for change in ("sgd", "fused", "autocast", "checkpoint", "batch=16", "fused_attention")),
    ("trainer", "accumulate", 0),
    ("trainer --evaluate", "autocast", 0),
    ("trainer --evaluate", "keep_evaluation", 0),
    *(("lightning_fit", change, 0) for change in ("sgd", "fused", "checkpoint", "autocast", "accumulate")),
    *(("vit", change, 0) for change in ("autocast", "checkpoint", "fused_attention")),
    ("eager", "checkpoint", 0.01),
    ("generate", "no_grad", 0),
)


@pytest.fixture(scope="module")
def in_one() -> Iterator[InOne]:
    with tries_in_one(WITH_LIBRARIES, HF_HUB_OFFLINE="1") as call:
        yield call


@pytest.fixture(scope="module")
def answers(in_one: InOne, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Any]]:
    """Of each pair: as it is, changed from outside, changed by hand. The last: a change that Trainer cannot have."""
    requests: dict[int, list[dict[str, Any]]] = {}
    for number, (program, change, _) in enumerate(PAIRS):
        name, *options = program.split()
        words = [str(TRIED / f"{name}.py"), *options]
        steps = None if change == "no_grad" or options else 3
        requests[number] = [
            {"words": [*words, *by_hand], "change": given, "steps": steps}
            for given, by_hand in (("", ()), (change, ()), ("", ("--hand", change)))
        ]
    requests[len(PAIRS)] = [{"words": [str(TRIED / "trainer.py")], "change": "step_in_backward"}]
    folder = tmp_path_factory.mktemp("tries")
    return asked_once(lambda several: list(in_one(CODE, list(several), folder)), requests)


@pytest.mark.parametrize("number", range(len(PAIRS)), ids=["-".join(row[:2]) for row in PAIRS])
def test_injected_as_by_hand(answers: dict[int, list[Any]], number: int) -> None:
    _, _, tolerance = PAIRS[number]
    as_it_is, injected, by_hand = answers[number]
    for one in (as_it_is, injected, by_hand):
        assert one["error"] is None and not one["why_not"], one
    assert injected["applied"] > 0 and injected["peak_bytes"] != as_it_is["peak_bytes"]
    assert abs(injected["peak_bytes"] - by_hand["peak_bytes"]) <= tolerance * by_hand["peak_bytes"]


def test_trainer_clips(answers: dict[int, list[Any]]) -> None:
    (answer,) = answers[len(PAIRS)]
    assert answer["why_not"].startswith("it clips by the norm of all gradients")


# Of each program: the line that makes the settings, and what is written there, as the pairs above have it.
WRITTEN = {
    "trainer": (
        "arguments = TrainingArguments(",
        {
            "sgd": 'TrainingArguments(optim="sgd")',
            "autocast": "TrainingArguments(bf16=True)",
            "checkpoint": "TrainingArguments(gradient_checkpointing=True)",
            "accumulate": "TrainingArguments(gradient_accumulation_steps=2) with half of per_device_train_batch_size",
        },
    ),
    "lightning_fit": (
        "lightning.Trainer(",
        {
            "autocast": 'Trainer(precision="bf16-mixed")',
            "accumulate": "Trainer(accumulate_grad_batches=2) with half the batch_size of its DataLoader",
        },
    ),
}


@pytest.mark.parametrize("program", WRITTEN)
def test_what_to_write_is_a_setting_of_the_trainer(in_one: InOne, program: str, tmp_path: Path) -> None:
    path = TRIED / f"{program}.py"
    line, written = WRITTEN[program]
    asked = [word for change in written for word in ("--change", change)]
    done = in_one("found = verb(*given)", ["advice", "--try", "--json", *asked, str(path)], tmp_path)
    tried = {row["change"]: row for row in json.loads(done["out"])["tried"]}
    # What is tried without a prediction says itself where and what.
    rows = {change: row["proposal"] or {"line": row["frame"], "write": row["write"]} for change, row in tried.items()}
    lines = path.read_text().splitlines()
    assert {change: rows[change]["write"] for change in written} == written
    assert {lines[rows[change]["line"]["line"] - 1].strip() for change in written} == {line}
