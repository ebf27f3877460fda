"""The version is the same everywhere, and what changes/ has can be released."""

import re
import tomllib

import cuptimem
from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_one_version() -> None:
    version = PROJECT["project"]["version"]
    assert cuptimem.__version__ == version
    newest = re.search(r"^## (\S+),", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest is not None and newest[1] == version


def test_changes_are_of_a_kind_that_towncrier_knows() -> None:
    kinds = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    files = {path.name for path in (ROOT / "changes").iterdir()} - {"README.md"}
    assert [name for name in files if not re.fullmatch(rf"\+[a-z0-9-]+\.({'|'.join(kinds)})\.md", name)] == []


def test_releases_are_attested() -> None:
    """The action signs unless it is asked not to, for which it needs an identity and no password."""
    publish = (ROOT / ".github/workflows/release.yml").read_text().partition("\n  publish:\n")[2]
    assert "id-token: write" in publish and "pypa/gh-action-pypi-publish@" in publish
    assert not re.search(r"attestations:|password:|user:", publish)
