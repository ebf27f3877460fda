"""Programs that use CUDA as people do, each with checkpoints: what is compared there is the caller's choice.

A program is a module with main(check). It calls check(label) where its memory is to be looked at; quiet=True says that
no graph is alive and nothing is kept by C++ alone but library workspaces (and `held` blocks more), so that all other
storages can be found from Python.
Programs know nothing of cuptimem or of a simulated device; what they allocate does not depend on what kernels compute.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class Check(Protocol):
    def __call__(self, label: str, *, quiet: bool = False, held: int = 0) -> None: ...


@dataclass(frozen=True)
class Program:
    """How a program is to be run."""

    name: str
    checkpoints: int
    back_end: str = "native"  # "native", "expandable", "async", "uncached"
    environment: Mapping[str, str] = field(default_factory=dict)
    devices: int = 1
    memory: str = ""  # of each device, the profile's own where empty
    device: str = "h100"
    storages: bool = True  # it has checkpoints at which all storages can be found from Python
    ooms: int = 0
    ordered: bool = True  # its events come in the same order in every run
    anywhere: bool = True  # False: a device of another size would behave differently


_SETTINGS = "max_split_size_mb:20,roundup_power2_divisions:4,garbage_collection_threshold:0.6"

_ALL = (
    Program("gpt_fp32", 12),
    Program("gpt_bf16", 10),
    Program("gpt_fp16_scaler", 10),
    Program("resnet", 8),
    Program("lstm", 9),
    Program("checkpointing", 7),
    Program("cuda_graphs", 9),
    Program("compile_triton", 8),
    Program("compile_graphs", 5, storages=False),
    Program("fsdp2", 10, storages=False),
    Program("data_loader", 6),
    Program("expandable_segments", 12, "expandable", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    Program("out_of_memory", 7, memory="3GiB", ooms=2, anywhere=False),
    Program("malloc_async", 6, "async", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    Program("no_caching", 5, "uncached", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    Program("mem_pool", 7),
    Program("streams", 9, ordered=False),
    Program("two_devices", 7, devices=2),
    Program(
        "allocator_settings",
        13,
        environment={"PYTORCH_CUDA_ALLOC_CONF": _SETTINGS},
        memory="1GiB",
        anywhere=False,
    ),
)
PROGRAMS = {program.name: program for program in _ALL}
