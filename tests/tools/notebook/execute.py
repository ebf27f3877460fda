"""Executes the notebooks in notebooks/, each in a temporary folder, and writes them back with their outputs.

    python -m tests.tools.notebook.execute            # make notebooks

fit_into_memory needs PyTorch's CUDA build: its kernel runs in .venv-cuda, with the notebook's packages of this
interpreter behind. Nothing of this machine stays in the outputs but versions and times.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests import pythons

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "notebooks"
NEEDS_CUDA = ("fit_into_memory",)
NAMES = ("find_a_leak", "fit_into_memory", "guard_it_in_ci")


def executed(name: str, python: str, folder: Path) -> Any:
    """The notebook with new outputs. folder: an empty one, for all that it writes."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    work = folder / "work"
    work.mkdir()
    with _kernel(python, folder):
        NotebookClient(
            notebook,
            timeout=600,
            kernel_name="cuptimem-notebook",
            record_timing=False,
            resources={"metadata": {"path": str(work)}},
        ).execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    return notebook


def _joined(outputs: list[Any]) -> list[Any]:
    """Neighbouring pieces of one stream as one: where they are cut is luck."""
    found: list[Any] = []
    for output in outputs:
        last = found[-1] if found else None
        if last is not None and last.output_type == output.output_type == "stream" and last.name == output.name:
            last.text += output.text
        else:
            found.append(output)
    return found


@contextmanager
def _kernel(python: str, folder: Path) -> Iterator[None]:
    """A kernel of that interpreter, with settings of its own."""
    spec = folder / "jupyter" / "kernels" / "cuptimem-notebook"
    spec.mkdir(parents=True)
    (folder / "runtime").mkdir()
    command = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "Python 3", "language": "python"}))
    own = {
        "JUPYTER_PATH": str(folder / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "IPYTHONDIR": str(folder / "ipython"),
        "NO_COLOR": "1",
        "PY_COLORS": "0",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
    }
    # CI and BUILD_NUMBER: with either of them set, pytest no longer cuts the lines of its summary.
    hidden = {
        name: value for name, value in os.environ.items() if name.startswith("PYTEST") or name in ("CI", "BUILD_NUMBER")
    }
    before = {name: os.environ.get(name) for name in own} | hidden
    for name in hidden:
        del os.environ[name]
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def interpreter_with_cuda(base: Path, folder: Path) -> str:
    """A Python with cuptimem, the CUDA build of `base`, and what a kernel needs of this interpreter."""
    home = folder / "venv"
    subprocess.run([base, "-m", "venv", "--without-pip", home], check=True, capture_output=True, timeout=120)
    ask = "import sys; print(*(p for p in sys.path if p.endswith('-packages')), sep='\\n')"
    seen = subprocess.run([base, "-c", ask], check=True, capture_output=True, text=True, timeout=120).stdout
    site = next(home.glob("lib/python3.*/site-packages"))
    (site / "__paths.pth").write_text(f"{ROOT}\n{seen}{sysconfig.get_path('purelib')}\n")
    pythons.add_startup(site)
    return str(home / "bin" / "python")


def cuda_base() -> Path:
    """The interpreter of the environment with PyTorch's CUDA build, there or not."""
    return Path(os.environ.get("CUPTIMEM_CUDA_PYTHON") or ROOT / ".venv-cuda" / "bin" / "python")


def main(names: list[str]) -> int:
    for name in names or NAMES:
        with tempfile.TemporaryDirectory(prefix="cuptimem-notebook-") as text:
            folder = Path(text)
            python = interpreter_with_cuda(cuda_base(), folder) if name in NEEDS_CUDA else sys.executable
            notebook = executed(name, python, folder)
        target = FOLDER / f"{name}.ipynb"
        nbformat.write(notebook, target)
        print(f"{target.relative_to(ROOT)}: {target.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
