import pytest
import torch
from model import WIDTH, make_model, train_step


@pytest.fixture
def model() -> torch.nn.Module:
    return make_model()


@pytest.mark.limit_tensor_memory("16 MiB")
def test_inference(model: torch.nn.Module) -> None:
    with torch.inference_mode():
        model(torch.ones(64, WIDTH))


@pytest.mark.limit_tensor_memory("64 MiB")
@pytest.mark.limit_tensor_leaks("0 B")
def test_training(model: torch.nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        train_step(model, optimizer, torch.ones(64, WIDTH))
