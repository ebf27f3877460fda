"""The notebooks of notebooks/ run, say what they are there to say, and are committed with outputs of no one machine."""

import base64
import getpass
import gzip
import html
import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed here; `make demo` makes an environment with it")

import nbformat

from cuptimem.notebook import display
from tests.tools.notebook import execute

CPU = [name for name in execute.NAMES if name not in execute.NEEDS_CUDA]


def _committed(name: str) -> Any:
    return nbformat.read(execute.FOLDER / f"{name}.ipynb", as_version=4)


def _text(notebook: Any) -> list[str]:
    """What each code cell printed or showed as text."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            shown = [one.get("text") or one.get("data", {}).get("text/plain", "") for one in cell.outputs]
            found.append("\n".join(shown))
    return found


def _sizes(text: str) -> list[str]:
    """Those that are exact: what nodes of a graph take is measured in each run."""
    return re.findall(r"[\d.]+ (?:B|KiB|MiB|GiB)\b", re.sub(r"about [+-]?[\d.]+ \w+", "", text))


@pytest.mark.torch
@pytest.mark.parametrize("name", CPU)
def test_it_runs_and_shows_what_is_committed(name: str, tmp_path: Path) -> None:
    new, old = (_text(notebook) for notebook in (execute.executed(name, sys.executable, tmp_path), _committed(name)))
    assert len(new) == len(old)
    for now, then in zip(new, old, strict=True):
        if "graph nodes" not in then and "whole process" not in then:  # of one version of PyTorch, of one process
            assert _sizes(now) == _sizes(then)
    everything = "\n".join(new)
    if name == "find_a_leak":
        assert "1 leak in 24 steps" in everything and "No leak: 24 steps judged" in everything
    else:
        assert "2 passed" in everything and "1 over memory limit, 1 over leak limit" in everything


@pytest.mark.cuda_torch
@pytest.mark.long
def test_the_one_that_needs_cuda_runs(tmp_path: Path) -> None:
    base = execute.cuda_base()
    if os.environ.get("CUPTIMEM_CUDA") == "no":
        pytest.skip("left out: CUDA=no")
    if not base.exists():
        pytest.skip(f"no PyTorch built for CUDA: {base} is not there (make cuda-environment)")
    python = execute.interpreter_with_cuda(base, tmp_path)
    said = "\n".join(_text(execute.executed("fit_into_memory", python, tmp_path)))
    assert "batch 64                 does not fit" in said and said.count(" fits ") == 2


@pytest.mark.parametrize("name", execute.NAMES)
def test_what_is_committed_is_of_no_one_machine(name: str) -> None:
    path = execute.FOLDER / f"{name}.ipynb"
    assert path.stat().st_size <= display.MOST
    notebook = _committed(name)
    nbformat.validate(notebook)
    outputs = json.dumps([cell.outputs for cell in notebook.cells if cell.cell_type == "code"])
    pages = [_page_data(source) for source in re.findall(r'srcdoc=\\"(.*?)\\"', outputs)]
    for text in (outputs, *pages):
        for local in (str(execute.ROOT), str(Path.home()) + "/", "/tmp/", socket.gethostname() + "."):
            assert local not in text
        assert not re.search(r"ipykernel_\d", text)  # a process id
    assert not re.search(rf"\b{re.escape(getpass.getuser())}@", outputs)
    for number, cell in enumerate([cell for cell in notebook.cells if cell.cell_type == "code"], start=1):
        assert cell.execution_count == number and "error" not in [one.output_type for one in cell.outputs]


def _page_data(escaped: str) -> str:
    """The data of an interactive page."""
    (packed,) = re.findall(r'id="data">([^<]*)<', html.unescape(json.loads(f'"{escaped}"')))
    return gzip.decompress(base64.b64decode(packed)).decode()


def test_the_one_that_needs_cuda_says_so_first() -> None:
    first = _committed("fit_into_memory").cells[0]
    assert first.cell_type == "markdown" and "This notebook needs PyTorch's CUDA build" in first.source
