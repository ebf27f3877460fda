"""The loss over a large vocabulary, in parts."""

import functools
from typing import Any

import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from cuptimem.simulation.changes.change import Change, patch

_LEAST = 1 << 20  # elements: parts of smaller logits save nothing that is seen


class ChunkedLoss(Change):
    """Cross-entropy over parts of the rows, each computed again in backward: its log-softmax is never whole.

    The logits are: the layer before them belongs to the program. A loss in parts together with that layer saves more.
    """

    why_not = f"no cross_entropy of logits of two dimensions and at least {_LEAST:,} elements is computed"

    def install(self) -> None:
        patch(F, "cross_entropy", self._in_parts)

    def _in_parts(self, original: Any) -> Any:
        parts = int(self.value)

        @functools.wraps(original)
        def cross_entropy(input: Any, target: Any, *arguments: Any, **keywords: Any) -> Any:
            reduction = keywords.get("reduction", "mean")
            extra = {name: value for name, value in keywords.items() if name == "ignore_index"}
            others = {name for name, value in keywords.items() if value is not None} - {"reduction", "ignore_index"}
            plain = not arguments and reduction in ("mean", "sum") and not (others - {"label_smoothing"})
            smooths = bool(keywords.get("label_smoothing"))
            if not plain or smooths or input.dim() != 2 or input.numel() < _LEAST or not input.requires_grad:
                return original(input, target, *arguments, **keywords)
            self.applied += 1

            def part(rows: Any, targets: Any) -> Any:
                return original(rows, targets, reduction="sum", **extra)

            pairs = zip(input.chunk(parts), target.chunk(parts), strict=True)
            total = sum(checkpoint(part, rows, targets, use_reentrant=False) for rows, targets in pairs)
            return total / target.numel() if reduction == "mean" else total

        return cross_entropy
