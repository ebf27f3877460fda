"""Is a change that is put in from outside the same as the change by hand, to the byte where it can be?"""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import clean_environment
from tests.on_device.simulated.conftest import InOne

pytestmark = [pytest.mark.cuda_torch, pytest.mark.costly]
TRIED = Path(__file__).with_name("tried")
CODE = """
import dataclasses
found = []
for one in given:
    found.append(dataclasses.asdict(server.run(**{"timeout": 600, **one})))
    server.import_what_was_used()
"""
GPT, IMAGES, KINDS, OTHERS = (str(TRIED / f"{name}.py") for name in ("gpt", "images", "kinds", "others"))
Answers = Callable[[Sequence[Mapping[str, Any]]], list[Any]]


@pytest.fixture(scope="module")
def tried(in_one: InOne, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The answers to requests, as dictionaries."""
    return lambda requests: list(in_one(CODE, list(requests), tmp_path_factory.mktemp("tries")))


# The change, options of the program that is changed, how far its peak may lie from that of the change by hand.
OF_GPT = (
    ("zero_grad_late", (), 0),
    ("set_to_none", ("--zeros",), 0),
    ("fused", ("--batch", "1"), 0),
    ("no_foreach", ("--batch", "1"), 0),
    ("checkpoint", (), 0),
    ("checkpoint=blocks.1,blocks.2", (), 0),
    ("autocast", (), 0),
    ("sgd", ("--batch", "1"), 0),
    ("adam8bit", ("--batch", "1"), 0),
    ("step_in_backward", ("--batch", "1"), 0),
    ("chunked_loss", (), 0),
    ("offload", (), 0),
    ("autocast+checkpoint", (), 0),
    ("autocast+fused+zero_grad_late", (), 0),
    ("sgd+offload+chunked_loss", (), 0),
)
OF_IMAGES = (
    ("in_place", (), 0),
    ("accumulate", (), 0),
    ("batch=4", (), 0),
    ("batch=16", (), 0),
    ("no_grad", ("--evaluations", "3"), 0),
)
OF_KINDS = (
    ("sgd", ("--case", "closures"), 0),
    ("checkpoint", ("--case", "copies"), 0),
    ("checkpoint=encoder.layers.*", ("--case", "pieces"), 0),
    ("autocast", ("--case", "pieces"), 0),
    ("autocast", ("--case", "evaluates"), 0),
    ("autocast", ("--case", "probes"), 0),
    ("accumulate", ("--case", "workers"), 0),
    ("accumulate", ("--case", "validates"), 0),
    ("batch=16", ("--case", "validates"), 0),
    ("batch=32:128", ("--case", "tested"), 0),
    ("accumulate", ("--case", "epochs"), 0),
    ("batch=128", ("--case", "sampled"), 0),
    ("accumulate", ("--case", "sampled"), 0),
    ("set_to_none", ("--case", "turns"), 0),
    ("no_grad", ("--case", "perceptual"), 0),
    ("freeze", ("--case", "trunk"), 0),
    ("chunked_loss", ("--case", "predicts"), 0),
    ("chunked_loss", ("--case", "scored"), 0),
    ("collect", ("--case", "cycles"), 0),
    ("sgd", ("--case", "gan"), 0),
    ("no_foreach", ("--case", "scaler"), 0),
    ("fused", ("--case", "adagrad"), 0),
    ("sgd", ("--case", "adagrad"), 0),
    ("release", ("--case", "names"), 0),
    ("checkpoint", ("--case", "stack"), 0),
    ("offload", ("--case", "masked"), 0),
    ("offload", ("--case", "relations"), 0),
)


EXTENDED = ("autocast+checkpoint", "autocast+fused+zero_grad_late")


def pairs() -> list[tuple[str, str, tuple[str, ...], float]]:
    return [(GPT, *row) for row in OF_GPT] + [(IMAGES, *row) for row in OF_IMAGES] + [(KINDS, *row) for row in OF_KINDS]


def numbers(request: pytest.FixtureRequest, test: str) -> list[int]:
    """Of the parameters of that test in this file that are run."""
    items = (item for item in request.session.items if isinstance(item, pytest.Function))
    return [item.callspec.params["number"] for item in items if (item.path, item.originalname) == (request.path, test)]


def asked_once(ask: Answers, requests: Mapping[int, Sequence[Mapping[str, Any]]]) -> dict[int, list[Any]]:
    """The answers by number, where what several ask is run once."""
    keys = {number: [json.dumps(one) for one in several] for number, several in requests.items()}
    distinct = {key: one for number in keys for key, one in zip(keys[number], requests[number], strict=True)}
    found = dict(zip(distinct, ask(list(distinct.values())), strict=True))
    return {number: [found[key] for key in several] for number, several in keys.items()}


@pytest.fixture(scope="module")
def answers(tried: Answers, request: pytest.FixtureRequest) -> dict[int, list[Any]]:
    """Of each pair: as it is, changed from outside, changed by hand."""
    requests: dict[int, list[dict[str, Any]]] = {}
    for number in numbers(request, "test_injected_as_by_hand"):
        program, change, options, _ = pairs()[number]
        steps = None if change == "no_grad" or {"validates", "tested"} & set(options) else 3
        requests[number] = [
            {"words": [program, *options, *by_hand], "change": given, "steps": steps}
            for given, by_hand in (("", ()), (change, ()), ("", ("--hand", change)))
        ]
    return asked_once(tried, requests)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(
            number,
            id="-".join((Path(program).stem, change, *options)),
            marks=[pytest.mark.extended] * (change in EXTENDED),
        )
        for number, (program, change, options, _) in enumerate(pairs())
    ],
)
def test_injected_as_by_hand(answers: dict[int, list[Any]], number: int) -> None:
    _, change, _, tolerance = pairs()[number]
    as_it_is, injected, by_hand = answers[number]
    for one in (as_it_is, injected, by_hand):
        assert one["error"] is None and not one["why_not"], one
    assert injected["applied"] > 0
    assert abs(injected["peak_bytes"] - by_hand["peak_bytes"]) <= tolerance * by_hand["peak_bytes"]
    is_other = "validates" in pairs()[number][2]  # the peak is in its evaluation
    assert injected["peak_bytes"] != as_it_is["peak_bytes"] or change in SAVES_NOTHING or is_other
    if is_other:
        assert injected["peak_bytes"] >= 0.9 * as_it_is["peak_bytes"]
    if change == "freeze":
        assert injected["write"].startswith("requires_grad_(False) of model.trunk, before the loop")
        made = Path(injected["frame"]["file"]).read_text().splitlines()[injected["frame"]["line"] - 1]
        assert made.strip() == "trunk = nn.Sequential(convolutions(), nn.MaxPool2d(2), convolutions())"
    if change == "chunked_loss":
        assert injected["write"].startswith("cross_entropy alone for 8 parts") == ("scored" in pairs()[number][2])


SAVES_NOTHING = ("zero_grad_late",)


# Case of the program, change, what is said: of an error, of a change that was not applied.
REFUSALS = (
    ("cpu", "", "it allocated nothing on the simulated device", ""),
    ("exit", "", "it ended with exit code 3", ""),
    ("sleeps", "", "it still ran after 3 s", ""),
    ("killed", "", "it was ended by signal 9", ""),
    ("raises", "", "ValueError: a mistake at others.py:42", ""),
    ("reads", "zero_grad_late", "AttributeError: 'NoneType' object has no attribute 'norm' at others.py:40", ""),
    ("clips", "step_in_backward", "", "it clips by the norm of all gradients, which are never there together then"),
    (
        "accumulates",
        "step_in_backward",
        "",
        "a parameter gets gradients of several backward passes before its optimizer steps",
    ),
    (
        "gan",
        "step_in_backward",
        "",
        "a parameter gets gradients of several backward passes before its optimizer steps",
    ),
    ("distributed", "step_in_backward", "", "its gradients are reduced over processes before a step"),
    ("scaler", "step_in_backward", "", "it clips by the norm of all gradients, which are never there together then"),
    ("", "accumulate", "", "no batch comes from a DataLoader: give the program another batch size by hand"),
    ("", "batch=4", "", "no batch comes from a DataLoader: give the program another batch size by hand"),
    ("", "set_to_none", "", "the program does not call zero_grad(set_to_none=False)"),
    ("", "no_grad", "", "no model is called in evaluation mode while autograd is on"),
    ("", "freeze", "", "each parameter that requires a gradient is in an optimizer, or there is none"),
    ("later", "freeze", "", "each parameter that requires a gradient is in an optimizer, or there is none"),
    ("clips a part", "freeze", "", "the program asks for their gradients: others.py:37"),
    ("has a hook", "freeze", "", "hooks of the program get their gradients"),
    ("", "checkpoint", "", "no block repeats in a model, and no Sequential has three members"),
    ("", "checkpoint=blocks.*", "", "no module blocks.* is called with autograd on"),
    (
        "",
        "fused+checkpoint=blocks.*+no_grad",
        "",
        "checkpoint: no module blocks.* is called with autograd on; "
        "no_grad: no model is called in evaluation mode while autograd is on",
    ),
)


@pytest.fixture(scope="module")
def refusals(tried: Answers) -> list[Any]:
    return tried(
        [
            {
                "words": [KINDS if case in ("gan", "scaler", "distributed") else OTHERS, "--case", case],
                "change": change,
                "timeout": 3 if case == "sleeps" else 600,
            }
            for case, change, *_ in REFUSALS
        ]
    )


@pytest.mark.parametrize("number", range(len(REFUSALS)), ids=["-".join(filter(None, row[:2])) for row in REFUSALS])
def test_never_saves_nothing(refusals: list[Any], number: int) -> None:
    """An exception, and a change that found nothing to change, have no peak that could be compared."""
    _, change, error, why_not = REFUSALS[number]
    found = refusals[number]
    assert (found["error"] or "", found["why_not"]) == (error, why_not)
    assert found["change"] == change
    assert found["peak_bytes"] is None


def test_own_resets_and_files_of_a_program(tried: Answers, tmp_path: Path) -> None:
    """A peak that the program resets counts; what it saves comes back to it, and the user's file stays as it is."""
    here = str(tmp_path / "model.pt")
    code = f"""
import torch
layer = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(layer.parameters())
for _ in range(9):
    torch.empty(1 << 20, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    layer(torch.zeros(1, 8, device="cuda")).sum().backward()
    optimizer.step()
    torch.save(layer.state_dict(), {here!r})
assert torch.load({here!r})["bias"].shape == (8,)
"""
    (tmp_path / "model.pt").write_text("the user's own")
    few, all_steps = tried([{"words": ["-c", code]}, {"words": ["-c", code], "steps": None}])
    assert few["error"] is None and few["steps"] == 3 and all_steps["steps"] == 9
    assert few["peak_bytes"] > 4 << 20
    assert all_steps["error"] is None and (tmp_path / "model.pt").read_text() == "the user's own"


LIBRARIES = """
from cuptimem.simulation import tries
program = "import asks, starts, torch; torch.ones(1 << 20, device='cuda')"
with tries.Server("h100", ["asks", "starts", "imports_it"]) as server:
    for _ in range(2):
        found = server.run(["-c", program], "", None)
        assert (found.error, found.peak_bytes) == (None, 4 << 20), found
        server.import_what_was_used()
    assert server._unfit == {"starts", "imports_it"}, server._unfit
"""


def test_libraries_that_ask_for_the_device_at_import(sim_python: str, tmp_path: Path) -> None:
    """The first has the number of devices without harm; the second starts CUDA, which no fork could use then."""
    asks = "assert torch.cuda.is_available() and torch.accelerator.is_available() and torch.cuda.device_count() == 1"
    (tmp_path / "asks.py").write_text(f"import torch\n{asks}\n")
    (tmp_path / "starts.py").write_text("import torch\ntorch.cuda.init()\n")
    (tmp_path / "imports_it.py").write_text("import asks, starts\n")
    environment = clean_environment() | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sim_python, "-c", LIBRARIES], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_modules_and_arguments(tried: Answers, tmp_path: Path) -> None:
    """-m, the program's own modules, its arguments and its folder are as Python has them."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "size.py").write_text("SIZE = 1 << 20\n")
    (package / "__main__.py").write_text(
        "import sys, torch\nfrom package.size import SIZE\n"
        "assert sys.argv[1:] == ['x'] and __name__ == '__main__' and sys.modules['__main__'].SIZE is SIZE\n"
        "torch.empty(SIZE, device='cuda')\n"
    )
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch\nfrom package import size\nassert sys.argv == [__file__, 'x']\n"
        "if __name__ == '__main__': torch.empty(2 * size.SIZE, device='cuda')\n"
    )
    found = tried([{"words": [str(script), "x"]}, {"words": ["-m", "package", "x"], "folder": str(tmp_path)}])
    assert [(one["error"], one["peak_bytes"]) for one in found] == [(None, 8 << 20), (None, 4 << 20)]
