"""The wait at a program's end knows PyTorch's own thread of backward passes."""

from collections.abc import Callable

import pytest

from tests.conftest import Result

pytestmark = pytest.mark.cuda_torch

PROGRAM = """
import torch
from cuptimem.record import backward_threads
print(len(backward_threads._look()))
torch.ones(3, device="cuda", requires_grad=True).sum().backward()
print(len(backward_threads._look()))
backward_threads.wait()
"""


def test_a_backward_pass_has_a_thread_that_is_waited_for(forked_on_device: Callable[..., Result]) -> None:
    done = forked_on_device("-c", PROGRAM)
    assert (done.code, done.out.split()) == (0, ["0", "1"]), done.err
