"""The numbers of events: what tests have for them, and the table of csrc/base/event.h, are those of its enum."""

import re

from tests import event_kinds
from tests.conftest import ROOT

HEADER = (ROOT / "csrc/base/event.h").read_text()


def test_numbers_are_those_of_the_enum() -> None:
    enum = HEADER.split("typedef enum cm_event_kind {")[1].split("}")[0]
    found = {name: int(number) for name, number in re.findall(r"CM_EV_(\w+)\s*=\s*(\d+)", enum)}
    assert found == {name: number for name, number in vars(event_kinds).items() if name.isupper()}


def test_every_kind_has_its_row() -> None:
    rows = re.findall(r'KIND\((\w+), "(\w+)", (?:STACK|NAME|NUMBER)\)', HEADER)
    assert [kind for kind, _ in rows] == [name for name in vars(event_kinds) if name.isupper()]
    assert all(name == kind.lower() for kind, name in rows)
