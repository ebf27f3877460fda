"""Memory of threads that the extension takes from what libraries share that are loaded late."""

import struct
from pathlib import Path

from cuptimem import _core

TLS = 7  # PT_TLS
# Of glibc's 1664 bytes, which a library gets while it is loaded or fails. On aarch64 PyTorch's CUDA build takes more
# than half of them: with 1136 of ours `import torch` ended in "cannot allocate memory in static TLS block".
MOST = 960


def test_the_extension_leaves_room_for_others() -> None:
    data = Path(str(_core.__file__)).read_bytes()
    (table,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    headers = [struct.unpack_from("<IIQQQQQQ", data, table + i * size) for i in range(count)]
    (taken,) = (in_memory for kind, _, _, _, _, _, in_memory, _ in headers if kind == TLS)
    assert 0 < taken <= MOST
