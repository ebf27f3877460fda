"""`make test` leaves no test file out."""

from tests import everything


def test_every_file_is_in_a_group() -> None:
    named = {word for group in everything.Run([]).main() for word in group.command if word.endswith(".py")}
    files = {file for place in everything.PLACES for file in (everything.ROOT / place).rglob("test_*.py")}
    assert named == {str(file.relative_to(everything.ROOT)) for file in files}
