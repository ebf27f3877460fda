"""`make test` leaves no test file out."""

from tests import everything

TESTS = everything.ROOT / "tests"
FILES = {
    str(file.relative_to(everything.ROOT))
    for place in everything.PLACES
    for file in (everything.ROOT / place).rglob("test_*.py")
}


def named(groups: list[everything.Group]) -> set[str]:
    return {word for group in groups for word in group.command if word.endswith(".py")}


def test_every_file_is_in_a_group() -> None:
    assert named(everything.Run([]).main()) == FILES


def test_check_has_golden_answers_first_and_needs_no_device() -> None:
    groups = everything.groups("--check", [])
    assert [group.name.partition(" ")[2] for group in groups[:1]] == ["golden"] and groups[1].name == "lint"
    assert named(groups) == {
        name for name in FILES if name.startswith(tuple(f"tests/{n}/" for n in everything.CHECKED))
    }


def test_what_other_pythons_run_is_there() -> None:
    assert [
        name
        for name in everything.INTERPRETER
        if not any(place.exists() for place in (TESTS / name, everything.ROOT / name))
    ] == []
