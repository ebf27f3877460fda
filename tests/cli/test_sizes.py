"""Sizes on the command line."""

import pytest

from cuptimem import sizes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("512", 512),
        ("512 B", 512),
        ("4K", 4096),
        ("4k", 4096),
        ("4 KB", 4096),
        ("4KiB", 4096),
        (" 1.5 MiB ", 3 << 19),
        ("2g", 2 << 30),
        ("1TiB", 1 << 40),
    ],
)
def test_parse(text: str, expected: int) -> None:
    assert sizes.parse(text) == expected


@pytest.mark.parametrize("text", ["", "K", "-1", "1.2.3", "4 iB", "4I", "4X", "4 BK", "inf", "nan", "0x10", "K4"])
def test_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        sizes.parse(text)
