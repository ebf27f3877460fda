"""chunked_loss: logits of a large vocabulary, their log-softmax and their gradient, in parts of the rows."""

from dataclasses import replace

from cuptimem.advice.batches import parts_of
from cuptimem.advice.program import GAP, Block, Program
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import user_frame

_NODE = "LogSoftmaxBackward0"
_CHECKPOINT = "torch.utils.checkpoint.checkpoint"
_PARTS = 8
_LARGE = 1 << 20  # smaller ones are not worth a loop


def chunked_loss(program: Program, blocks: list[Block], value: str) -> Change | str:
    """All blocks of the logits' size shrink, and what sums over them have for themselves; the head's gradient is there
    twice while a part's is added."""
    parts = parts_of(value, _PARTS)
    if parts is None:
        return f"rows are cut into at least 2 parts, not {value!r}"
    saved = [block for block in blocks if block.saved_by == _NODE and block.requested > _LARGE]
    if not saved:
        return "no large logits are saved for backward"
    sizes = {block.requested for block in saved}
    heads = {block.module for block in blocks if block.requested in sizes and block.module}
    edited: list[Block] = []
    for block in blocks:
        wanted = block.step in program.evaluated  # evaluation scores its logits
        if block.requested in sizes and block.category in ("activation", "temporary") and not wanted:
            edited.append(program.with_bytes(block, block.requested // parts))
        elif (scratch := program.sum_with(1 / parts, block, sizes)) is not None and not wanted:
            edited.append(program.with_bytes(block, scratch))
        else:
            edited.append(block)
            if block.category == "gradient" and block.module in heads and block.bytes > _LARGE:
                edited.append(replace(block, end=min(block.end, block.birth + 3 * GAP + GAP // 2)))
    frame = user_frame(max(saved, key=lambda one: one.bytes).of.stack)
    write = f"head, cross_entropy and what else reads the logits for {parts} parts of the rows, each in {_CHECKPOINT}"
    return Change(edited, frame, write, "the head's forward again")


CHUNKED_LOSS = Technique("chunked_loss", False, "rough", chunked_loss, takes="parts", costs="time")
