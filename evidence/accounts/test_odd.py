"""Programs that are hard to account for: each gets a right answer, or is told that there is none."""

from typing import Any

import pytest

from evidence.accounts.runs import Runs

pytestmark = pytest.mark.torch
CLASSES = ("parameter", "buffer", "gradient", "optimizer state", "kept", "before start", "unknown")


def classes(said: dict[str, Any]) -> dict[str, int]:
    """Without inputs, activations and temporaries."""
    return {key: said["bytes"][key] for key in CLASSES if said["bytes"].get(key)}


@pytest.mark.parametrize(
    "name",
    ["subclasses", "meta_and_fake", "raising_hooks", "other_optimizer", "no_step", "no_pass", "models_in_every_step"],
)
def test_what_is_alive_at_the_end(name: str, cpu: Runs) -> None:
    said = cpu.run("odd.py", name)
    assert classes(said["end"]) == said["own"]
    assert said["problems"] == ""
    for moment in ("end", "peak"):
        assert sum(said[moment]["bytes"].values()) == said[moment]["total"]


def test_deleted_before_the_report(cpu: Runs) -> None:
    said = cpu.run("odd.py", "deleted")
    assert classes(said["end"]) == {}
    peak = classes(said["peak"])
    assert {key: peak.get(key) for key in said["own"]} == said["own"]
    assert peak.get("unknown", 0) == 0


def test_models_of_every_step_are_parameters_or_unknown(cpu: Runs) -> None:
    said = cpu.run("odd.py", "models_in_every_step")
    peak, own = classes(said["peak"]), said["own"]["parameter"]
    assert (peak.get("parameter", 0) + peak.get("unknown", 0)) in (own, 2 * own)
