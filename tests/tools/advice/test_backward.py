"""What a call of a backward pass asks for, by place and by name."""

from typing import Any

import pytest

from cuptimem.simulation import backward


@pytest.mark.parametrize(
    ("name", "arguments", "keywords", "keeps", "creates"),
    [
        ("backward", ("loss",), {}, False, False),
        ("backward", ("loss", None, True, False), {"inputs": None}, True, False),  # as Tensor.backward() calls it
        ("backward", ("loss", None, None, True), {"inputs": None}, False, True),
        ("backward", ("loss", None, True, True), {}, False, True),
        ("backward", ("loss",), {"retain_graph": True}, True, False),
        ("grad", ("loss", "x", None, True), {}, True, False),
        ("grad", ("loss", "x"), {"retain_graph": True}, True, False),
        ("grad", ("loss", "x", None, None, True), {}, False, True),
        ("grad", ("loss", "x"), {"create_graph": True}, False, True),
    ],
)
def test_calls(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any], keeps: bool, creates: bool) -> None:
    assert backward.keeps_graph(name, arguments, keywords) is keeps
    assert backward.asks(name, "create_graph", arguments, keywords) is creates
    without = backward.without_graph(name, arguments, keywords)
    assert not backward.asks(name, "retain_graph", *without)
    assert len(without[0]) == len(arguments) and {**without[1], "retain_graph": 0}.keys() >= keywords.keys()
