"""What the tests of all products share: options, and marks that follow from where a test lies."""

import pytest

from tests import marks

pytest_plugins = ["pytester"]


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "only the tests that are marked long or scaled, the latter with their long numbers (make long)"
    parser.addoption("--long", action="store_true", help=words)
    parser.addoption("--without", action="append", default=[], metavar="MARK", help="no test that is marked so")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marks.add(items)
    long, without = config.getoption("--long"), config.getoption("--without")

    def is_chosen(item: pytest.Item) -> bool:
        found = {mark.name for mark in item.iter_markers()}
        return not found & set(without) and (bool(found & {"long", "scaled"}) if long else "long" not in found)

    config.hook.pytest_deselected(items=[item for item in items if not is_chosen(item)])
    items[:] = filter(is_chosen, items)
