"""The table of public scripts; running them is opt-in: make evidence-public."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from evidence.leaks import public


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


@pytest.fixture
def hosted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A host with one repository of two commits, and git in that repository."""
    repository = tmp_path / "host" / "owner" / "name"
    monkeypatch.setattr(public, "HOST", f"file://{tmp_path}/host")

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", "-C", repository, *who, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    repository.mkdir(parents=True)
    git("init", "-q")
    git("config", "uploadpack.allowAnySHA1InWant", "true")  # as GitHub does
    for content in ("first", "second"):
        for name in ("train.py", "huge.bin"):
            (repository / name).write_text(content)
        git("add", ".")
        git("commit", "-q", "-m", content)
    return git


def row(**changed: str) -> public.Script:
    (script,) = public.table(text(**changed))[1]
    return script


def names_and_texts(tree: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in tree.iterdir()}


def test_the_pinned_commit_is_fetched_once(hosted: Callable[..., str], tmp_path: Path) -> None:
    commit = f'"{hosted("rev-parse", "HEAD~1")}"'
    for _ in range(2):
        tree = public.checkout(row(commit=commit), tmp_path / "work", None)
        assert names_and_texts(tree) == {"train.py": "first"}
        (tree / "train.py").write_text("changed")  # as a run may
        shutil.rmtree(tmp_path / "host", ignore_errors=True)  # the second time it is there already
    with pytest.raises(public.Unavailable):
        public.checkout(row(commit=f'"{"1" * 40}"'), tmp_path / "work", None)


def test_a_given_source_is_left_alone(hosted: Callable[..., str], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "owner+name").symlink_to(tmp_path / "host" / "owner" / "name")
    commit = f'"{hosted("rev-parse", "HEAD~1")}"'
    before = hosted("status", "--porcelain", "--branch")
    tree = public.checkout(row(commit=commit), tmp_path / "work", source)
    assert names_and_texts(tree) == {"train.py": "first"}
    assert hosted("status", "--porcelain", "--branch") == before
    with pytest.raises(public.Unavailable, match="git"):
        public.checkout(row(), tmp_path / "work", source)
    with pytest.raises(public.Unavailable, match="no git directory"):
        public.checkout(row(repository='"owner/other"'), tmp_path / "work", source)
