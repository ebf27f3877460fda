"""The settings of PyTorch's CUDA allocator in which programs are recorded by both recorders."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """conf: PYTORCH_CUDA_ALLOC_CONF. refused: PyTorch has no snapshot with it."""

    name: str
    conf: str = ""
    refused: bool = False

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTORCH_CUDA_ALLOC_CONF": self.conf} if self.conf else {}


SETTINGS = (
    Setting("native"),
    Setting("max split", "max_split_size_mb:32"),
    Setting("powers", "roundup_power2_divisions:4"),
    Setting("powers, each", "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"),
    Setting("collection", "garbage_collection_threshold:0.1"),
    Setting("rounding", "max_split_size_mb:32,max_non_split_rounding_mb:64"),
    Setting("large segments", "large_segment_size_mb:64"),
    Setting("unlocked", "release_lock_on_cudamalloc:True"),
    Setting("registered", "pinned_use_cuda_host_register:True,pinned_num_register_threads:2"),
    Setting("background", "pinned_use_background_threads:True"),
    Setting("expandable", "expandable_segments:True"),
    Setting("expandable, collection", "expandable_segments:True,garbage_collection_threshold:0.1"),
    Setting("expandable, powers", "expandable_segments:True,max_split_size_mb:32,roundup_power2_divisions:4"),
    Setting("expandable, large", "expandable_segments:True,large_segment_size_mb:64"),
    Setting("async", "backend:cudaMallocAsync", refused=True),
)
