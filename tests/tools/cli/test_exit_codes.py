"""docs/running.md: a row for each verb, and the codes that the code has."""

import re
from pathlib import Path

import pytest

from cuptimem import cli
from cuptimem.cli import VERBS, advice, advice_try, leaks
from cuptimem.simulation.result import EXIT_CODES
from tests.conftest import ROOT
from tests.golden.answers import TRACES

PAGE = (ROOT / "docs" / "running.md").read_text().partition("## Exit codes")[2]
MEANINGS, BY_VERB = (
    dict(re.findall(r"^\| `?([^|`]+?)`? \| ([^|]*) ?\|$", part, re.MULTILINE)) for part in PAGE.split("| verb |")
)
READERS = {*VERBS} - {
    "run",
    "simulate",
    "fits",
    "max-batch",
    "doctor",
    "skill",
    "completion",
    "diff",
    "scrub",
    "export",
    "window",
    "start",
    "stop",
}


def codes(verb: str) -> set[int]:
    text = re.sub(r"\([^)]*\)|`[^`]*`", "", BY_VERB[verb])
    return {int(number) for number in re.findall(r"\b\d+\b", text)} | {0, 2}


def code_of(*words: str) -> int:
    try:
        return cli.main(words)
    except SystemExit as end:
        return int(end.code or 0)


def test_each_verb_has_a_row() -> None:
    assert list(BY_VERB)[-len(VERBS) :] == list(VERBS)


def test_each_code_of_a_verb_has_a_meaning() -> None:
    assert {str(code) for verb in VERBS for code in codes(verb)} <= set(MEANINGS)
    assert str(cli._PIPE) in MEANINGS and "130" in MEANINGS


def test_the_codes_of_the_code_are_there() -> None:
    assert codes("simulate") == {1, 2, *EXIT_CODES.values()}
    assert leaks._LEAKS in codes("leaks")
    assert codes("advice") == {0, 1, 2, advice.OVER, advice.UNKNOWN, advice_try.FAILED}


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_wrong_usage_is_2(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert code_of(verb, "--no-such-option") == 2
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("verb", sorted(READERS))
def test_a_file_that_is_none_is_1(verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    into = [str(tmp_path / "out.cmem")] if verb == "convert" else []
    assert code_of(verb, str(tmp_path / "none.cmem"), *into) == 1
    out, error = capfd.readouterr()
    assert out == "" and error.startswith("cuptimem") and error.count("\n") == 1


def test_a_leak_is_3_where_that_was_asked(capfd: pytest.CaptureFixture[str]) -> None:
    leaking, fine = str(TRACES / "leak-cache.cmem"), str(TRACES / "train.cmem")
    assert [code_of("leaks", name, "--fail-on-leak") for name in (leaking, fine)] == [3, 0]
    assert code_of("leaks", leaking) == 0
    assert code_of("peak", fine, "--at", "oom") == code_of("kernels", fine) == 1
