"""A real IPython kernel for tests, driven by nbclient as `jupyter execute` drives it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient


class Kernel:
    """One kernel; each `run` is a cell of one notebook."""

    def __init__(self, client: NotebookClient) -> None:
        self._client = client
        self.number = 0  # of the cell that ran last: In[number]

    def run(self, code: str) -> "Outputs":
        cells = self._client.nb.cells
        cells.append(nbformat.v4.new_code_cell(code))
        done = self._client.execute_cell(cells[-1], len(cells) - 1)
        self.number = done.execution_count
        return Outputs(done.outputs)

    def value(self, expression: str) -> str:
        """What print shows of it; an error fails the test."""
        outputs = self.run(f"print(({expression}))")
        assert not outputs.error, outputs.error
        return outputs.stdout.strip()


class Outputs(list[Any]):
    """What a cell left behind."""

    @property
    def error(self) -> str:
        """The name of its exception, "" without one."""
        return next((str(one.ename) for one in self if one.output_type == "error"), "")

    @property
    def traceback(self) -> str:
        return "\n".join(line for one in self if one.output_type == "error" for line in one.traceback)

    @property
    def stdout(self) -> str:
        return self._stream("stdout")

    @property
    def stderr(self) -> str:
        return self._stream("stderr")

    def _stream(self, name: str) -> str:
        return "".join(one.text for one in self if one.output_type == "stream" and one.name == name)

    def data(self, kind: str, mime: str = "text/plain") -> list[str]:
        """Of all outputs of a kind (execute_result, display_data)."""
        return [one.data[mime] for one in self if one.output_type == kind and mime in one.data]

    @property
    def report(self) -> str:
        """The HTML of the report that %%cuptimem showed."""
        (html,) = self.data("display_data", "text/html")
        return html


@contextmanager
def started(folder: Path) -> Iterator[Kernel]:
    """A kernel whose working directory is this one, and which leaves the user's settings alone."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {"IPYTHONDIR": "ipython", "JUPYTER_RUNTIME_DIR": "runtime", "JUPYTER_CONFIG_DIR": "config"}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update({name: str(folder / "jupyter" / value) for name, value in own.items()})
    (folder / "jupyter" / "runtime").mkdir(parents=True, exist_ok=True)
    client = NotebookClient(
        nbformat.v4.new_notebook(),
        timeout=300,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        with client.setup_kernel():
            yield Kernel(client)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
