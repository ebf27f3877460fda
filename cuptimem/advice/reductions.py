"""What PyTorch's sum over the rows of a matrix has for itself: partial sums of thread blocks that share the rows.

As setReduceConfig decides it (ATen/native/cuda/Reduce.cuh). There is room for each thread's sum, so the gradient of a
bias may take a thousand times its size for a moment. That is in no proportion to the rows.
"""

_MOST = 512  # threads of a block
_WARP = 32
_LEAST, _MANY = 16, 256  # rows of a thread
_NUMBER = 4  # bytes: also of 16 bits, sums are of 32


def of_rows(rows: int, columns: int, threads: int) -> int:
    """Bytes, 0 where no rows are shared. threads: as many as the device runs at once."""
    vector = next(size for size in (4, 2, 1) if columns % size == 0)
    most, outputs = _MOST // vector, columns // vector
    widest, highest = (min(1 << size.bit_length() - 1, most) for size in (outputs, rows))
    height = min(highest, most // min(widest, _WARP))
    width = min(widest, most // height)
    each = -(-rows // height)
    grid, target = -(-outputs // width), threads // (width * height)
    if each < _MANY or grid > target:
        return 0
    parts = max(min(-(-target // grid), -(-each // _LEAST)), -(-each // _MANY))
    return _NUMBER * columns * parts * width * vector if parts > 1 else 0
