"""Where a program or a library asks for 32 bits of a tensor that has them: of a model in 16 bits that is a copy.

The copy is read by what the calling function computes until it returns, or asks for the type of another tensor again.
No operator runs, so no dispatch mode sees it.
"""

import re
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch

from cuptimem.simulation.places import call_text

_SINGLE = re.compile(r"\bfloat32\b|\btorch\.float\b")
_Cast = list[int | None]  # numbers of operators: the first that reads the copy, the first behind the function's return


class Casts:
    def __init__(self) -> None:
        self._open: list[tuple[int, CodeType, _Cast]] = []  # with the frame's identity: a frame would hold its tensors
        self._number = 0  # of the next operator

    def start(self, block_of: Callable[[Any], dict[str, Any] | None]) -> None:
        """block_of: what is known of a tensor's block, None where there is none."""

        def noting(original: Any) -> Any:
            def cast(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
                made = original(tensor, *arguments, **keywords)
                if made is tensor and tensor.dtype is torch.float32 and (block := block_of(tensor)) is not None:
                    frame = sys._getframe(1)
                    if original.__name__ == "float" or _SINGLE.search(call_text(frame)):
                        block["casts"].append([self._number, None])
                        self._open.append((id(frame), frame.f_code, block["casts"][-1]))
                    elif any(isinstance(one, torch.dtype | torch.Tensor) for one in (*arguments, *keywords.values())):
                        self._narrow(block)  # the type of another tensor, which has 16 bits then
                return made

            return cast

        for name in ("float", "to", "type", "type_as"):
            setattr(torch.Tensor, name, noting(getattr(torch.Tensor, name)))

    def _narrow(self, block: dict[str, Any]) -> None:
        if block["casts"]:
            if block["casts"][-1][1] is None:
                block["casts"][-1][1] = self._number
        elif block["narrowed"] is None:
            block["narrowed"] = self._number, len(block["saved"])

    def close(self, frame: FrameType | None, number: int) -> None:
        """Before an operator, of which this is the frame: the casts of functions that have returned."""
        self._number = number + 1
        if not self._open:
            return
        running = set()
        while frame is not None:
            running.add((id(frame), frame.f_code))
            frame = frame.f_back
        for one in self._open:
            if one[:2] not in running and one[2][1] is None:
                one[2][1] = number
        self._open = [one for one in self._open if one[:2] in running]
