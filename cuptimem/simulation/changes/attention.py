"""Attention whose weights are never whole, where a library offers it."""

import sys
from typing import Any

from torch import nn

from cuptimem.simulation.changes import calls
from cuptimem.simulation.changes.change import Change, patch


class FusedAttention(Change):
    """Of transformers set_attn_implementation("sdpa"), of timm fused_attn, of PyTorch's own need_weights=False."""

    why_not = (
        "no model of transformers or timm, and no MultiheadAttention, computes its weights; "
        "attention by hand cannot be replaced from outside"
    )

    def install(self) -> None:
        calls.prepare(self._set)
        patch(nn.MultiheadAttention, "forward", self._without_weights)

    def _without_weights(self, original: Any) -> Any:
        def forward(this: Any, *arguments: Any, **keywords: Any) -> Any:
            if keywords.get("need_weights", True) and len(arguments) < 5:
                keywords["need_weights"] = False
                self.applied += 1
                self.saw(1)
            return original(this, *arguments, **keywords)

        return forward

    def _set(self) -> None:
        library = sys.modules.get("transformers.modeling_utils")
        for model in calls.models():
            module: Any
            for module in model.modules():
                if library is not None and isinstance(module, library.PreTrainedModel):
                    self._set_transformers(module)
                elif getattr(module, "fused_attn", None) is False:
                    module.fused_attn = True
                    self.applied += 1
                    self.saw_at(calls.made_at(module), 1)

    def _set_transformers(self, model: Any) -> None:
        if model.config._attn_implementation == "eager":
            model.set_attn_implementation("sdpa")
            self.applied += 1
            self.saw_at(calls.made_at(model), 1)
