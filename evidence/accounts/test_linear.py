"""The arithmetic that anyone can do by hand: Linear(1000, 2000), ReLU, Linear(2000, 10) at batch 32, in float32."""

import pytest

from evidence.accounts.runs import Runs

pytestmark = pytest.mark.torch

# 1000 * 2000 + 2000 + 2000 * 10 + 10 = 2,022,010 numbers of 4 bytes.
PARAMETERS = {"0": 8_008_000, "2": 80_040}
STATES = {"0": 16_016_008, "2": 160_088}  # Adam: exp_avg and exp_avg_sq, and a step of 4 bytes for each parameter
INPUT = 128_000  # 32 * 1000 * 4
# 32 * 2000 * 4 of ReLU's result, which ReLU and the second Linear save, and 32 * 10 * 4 of the output. The first
# Linear's result dies in forward.
ACTIVATIONS = {"1": 256_000, "2": 1_280}


def test_by_hand(cpu: Runs) -> None:
    said = cpu.run("linear.py", "x")
    forward, backward, end = (said[moment] for moment in ("forward", "backward", "end"))
    assert forward["modules"] == {"parameter": PARAMETERS, "input": {"": INPUT}, "activation": ACTIVATIONS}
    assert forward["total"] == 8_088_040 + 128_000 + 257_280
    assert backward["modules"] == {
        "parameter": PARAMETERS,
        "gradient": PARAMETERS,
        "input": {"": INPUT},
        "activation": {"2": 1_280},
    }
    assert end["modules"] == {**backward["modules"], "optimizer state": STATES}
    assert end["total"] == 4 * 8_088_040 + 4 * 4 + 128_000 + 1_280


@pytest.mark.cuda_torch
def test_on_a_device_blocks_are_multiples_of_512_bytes(cuda: Runs) -> None:
    said = cuda.run("linear.py", "x")
    rounded = {"0": 8_000_000 + 8_192, "2": 80_384 + 512}  # 2000 * 4 = 8,000; 80,000 = 156.25 * 512; 40
    assert 8_000_000 % 512 == 0
    assert said["forward"]["modules"] == {
        "parameter": rounded,
        "input": {"": INPUT},  # 250 * 512
        "activation": {"1": 256_000, "2": 1_536},
    }
    assert said["backward"]["modules"]["gradient"] == rounded
    assert said["end"]["modules"]["optimizer state"] == {name: 2 * size for name, size in rounded.items()}
