"""Where a program or a library asks for 32 bits of a tensor that has them: of a model in 16 bits that is a copy.

The copy is read by what the calling function computes until it returns. No operator runs, so no dispatch mode sees it.
"""

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch

from cuptimem.simulation.places import line_of

_Cast = list[int | None]  # numbers of operators: the first that reads the copy, the first behind the function's return


class Casts:
    def __init__(self) -> None:
        self._open: list[tuple[int, CodeType, _Cast]] = []  # with the frame's identity: a frame would hold its tensors
        self._number = 0  # of the next operator

    def start(self, casts_of: Callable[[Any], list[_Cast] | None]) -> None:
        """casts_of: the list for those of a tensor's block, None where it has none."""

        def noting(original: Any) -> Any:
            def cast(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
                made = original(tensor, *arguments, **keywords)
                if made is tensor and tensor.dtype is torch.float32 and (noted := casts_of(tensor)) is not None:
                    frame = sys._getframe(1)
                    line = line_of(frame.f_code.co_filename, frame.f_lineno)
                    # Else it is the type of another tensor, which has 16 bits then.
                    if original.__name__ == "float" or "float32" in line:
                        noted.append([self._number, None])
                        self._open.append((id(frame), frame.f_code, noted[-1]))
                return made

            return cast

        for name in ("float", "to", "type"):
            setattr(torch.Tensor, name, noting(getattr(torch.Tensor, name)))

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
            if one[:2] not in running:
                one[2][1] = number
        self._open = [one for one in self._open if one[:2] in running]
