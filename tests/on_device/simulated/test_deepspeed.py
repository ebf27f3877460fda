"""DeepSpeed's ZeRO over ranks that communicate with no one: what each holds of what a stage divides."""

import pytest

from tests.conftest import clean_environment
from tests.forkserver import Forks
from tests.on_device.simulated import device
from tests.pythons import WITH_LIBRARIES

pytestmark = [pytest.mark.cuda_torch, pytest.mark.costly]
if not next(WITH_LIBRARIES.parents[1].glob("lib/python3*/site-packages/deepspeed"), None):
    pytest.skip("no environment with DeepSpeed: `make attribution` makes one", allow_module_level=True)

LAYERS, WIDTH = 8, 1024
PROGRAM = f"""\
import sys
import deepspeed
import torch

stage = int(sys.argv[1])
zero = dict(stage=stage, reduce_bucket_size=1 << 20, allgather_bucket_size=1 << 20, stage3_prefetch_bucket_size=0)
zero |= dict(stage3_param_persistence_threshold=0, stage3_max_live_parameters=1 << 20)
adam = dict(type="AdamW", params=dict(lr=1e-4, torch_adam=True))
config = dict(train_micro_batch_size_per_gpu=4, bf16=dict(enabled=True), zero_optimization=zero, optimizer=adam)
net = torch.nn.Sequential(*[torch.nn.Linear({WIDTH}, {WIDTH}, bias=False) for _ in range({LAYERS})])
engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
for _ in range(2):
    x = torch.randn(4, {WIDTH}, device=engine.device, dtype=torch.bfloat16)
    engine.backward(engine(x).float().square().mean())
    engine.step()
"""


@pytest.fixture(scope="module")
def forks(compiled):
    """Its programs begin with what takes DeepSpeed three seconds to import, and import DeepSpeed themselves."""
    environment = {**clean_environment(), **compiled, **device.environment()}
    servers = Forks(str(WITH_LIBRARIES), environment, ("torch._dynamo", "torch._inductor.compile_fx"))
    yield servers
    servers.close()


# Bytes for each parameter, of all ranks together: master copy and two moments in single precision; a gradient of 16
# bits, too, and as the step takes it; gradient and parameter of 16 bits, as the paper on ZeRO has it.
@pytest.mark.parametrize("stage, divided", [(1, 12), (2, 18), (3, 16)])
def test_zero_divides_what_its_stage_says(simulate, stage, divided):
    took = []
    for ranks in (4, 8):
        options = ("--world-size", str(ranks), "--ranks", f"{ranks - 1}", "--memory", "40GiB", "--trust-reads")
        done = simulate(PROGRAM, *options, verb="fits", behind=(str(stage),))
        (row,) = done.answer["rows"]
        assert row["verdict"] == "fits", done.err
        took.append(row["allocated"]["high"])
    assert took[0] - took[1] == pytest.approx(divided * LAYERS * WIDTH**2 / 8, rel=0.01)


def test_inference_is_refused_by_name(simulate):
    program = "import deepspeed, torch\ndeepspeed.init_inference(torch.nn.Linear(8, 8).cuda())\n"
    options = ("--world-size", "4", "--ranks", "0", "--memory", "40GiB")
    (row,) = simulate(program, *options, verb="fits").answer["rows"]
    assert row["verdict"] == "script failed" and "DeepSpeed's pipelines and inference are not" in row["reason"]
