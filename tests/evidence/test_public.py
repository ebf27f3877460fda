"""The table of public scripts; running them is opt-in: make evidence-public."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.evidence import public


def test_table() -> None:
    requires, scripts = public.table(public.TABLE.read_text())
    assert requires and len(scripts) >= 10
    assert len({script.repository for script in scripts}) >= 8
    for script in scripts:
        assert script.script.endswith(".py")
        assert not script.longer or script.longer != script.arguments
        started = Path(script.directory, script.script)
        assert any(started.is_relative_to(path) for path in script.paths), script.name


ROW = {
    "repository": '"owner/name"',
    "commit": f'"{"0" * 40}"',
    "licence": '"MIT"',
    "paths": '["train.py"]',
    "script": '"train.py"',
    "arguments": "[]",
    "steps": "24",
    "data": '"makes it"',
    "style": '"plain"',
}


def text(**changed: str) -> str:
    return "requires = []\n[x]\n" + "".join(f"{k} = {v}\n" for k, v in {**ROW, **changed}.items() if v)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"commit": '"main"'}, "full hash"),
        ({"commit": f'"{"g" * 40}"'}, "full hash"),
        ({"paths": '["../up"]'}, "leads out"),
        ({"script": '"/bin/train.py"'}, "leads out"),
        ({"steps": "10"}, "24 steps"),
        ({"licence": '""'}, "licence"),
        ({"licence": ""}, "licence"),
        ({"surprise": "1"}, "surprise"),
    ],
)
def test_wrong_rows_are_refused(changed: dict[str, str], said: str) -> None:
    public.table(text())
    with pytest.raises(ValueError, match=said):
        public.table(text(**changed))


def test_requirements_are_pinned() -> None:
    with pytest.raises(ValueError, match="version"):
        public.table(text().replace("[]", '["scipy>=1"]', 1))


def test_nothing_of_them_gets_into_the_tree() -> None:
    with pytest.raises(ValueError, match="inside the repository"):
        public.run_public(public.TABLE.parent / "work")
    with pytest.raises(ValueError, match="no public script 'nonsense'"):
        public.run_public(Path("/nonexistent"), names=["nonsense"])


def test_checkout_takes_the_pinned_commit_and_leaves_the_source_alone(tmp_path: Path) -> None:
    repository = tmp_path / "source" / "owner+name"

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", "-C", repository, *who, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    repository.mkdir(parents=True)
    git("init", "-q")
    for content in ("first", "second"):
        for name in ("train.py", "huge.bin"):
            (repository / name).write_text(content)
        git("add", ".")
        git("commit", "-q", "-m", content)
    commit = git("rev-parse", "HEAD~1")
    before = git("status", "--porcelain", "--branch")
    (script,) = public.table(text(commit=f'"{commit}"'))[1]
    tree = public.checkout(script, tmp_path / "work", tmp_path / "source")
    assert {path.name: path.read_text() for path in tree.iterdir()} == {"train.py": "first"}
    assert git("status", "--porcelain", "--branch") == before
    (other,) = public.table(text())[1]
    with pytest.raises(public.Unavailable):
        public.checkout(other, tmp_path / "work", tmp_path / "source")
    (missing,) = public.table(text(repository='"owner/other"'))[1]
    with pytest.raises(public.Unavailable, match="no git directory"):
        public.checkout(missing, tmp_path / "work", tmp_path / "source")
