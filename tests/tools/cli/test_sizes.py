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
        ("2 PB", 2 << 50),
        ("+.5 gb", 1 << 29),
    ],
)
def test_parse(text: str, expected: int) -> None:
    assert sizes.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", "K", "-1", "1.2.3", "4 iB", "4I", "4X", "4 BK", "inf", "nan", "0x10", "K4", "+-1"]
)
def test_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        sizes.parse(text)


def test_too_long_for_a_number() -> None:
    with pytest.raises(ValueError, match="not a size"):
        sizes.parse("9" * 400)


def test_a_unit_where_one_is_needed() -> None:
    assert sizes.parse("0 b", needs_unit=True) == 0
    assert sizes.parse("512MB", needs_unit=True) == sizes.parse("512 MiB", needs_unit=True) == 512 << 20
    with pytest.raises(ValueError, match="not a size: '512'"):
        sizes.parse("512", needs_unit=True)
