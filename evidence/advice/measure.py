"""python measure.py LIBRARY ...: runs programs, each in a fork of a process that has imported the libraries.

Reads a JSON array of {"key", "path", "arguments", "environment"} from standard input and writes a line of JSON for
each: what PyTorch's allocator says of its peaks on cuda:0, or its error. It loads nothing of cuptimem.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

STARTS_DEVICE = {"diffusers"}  # where it is imported, after which no fork can use the device


def run(path: str, arguments: list[str]) -> dict[str, Any]:
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).parent))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if end.code:
            return {"error": f"ended with status {end.code}"}
    except BaseException:
        return {"error": traceback.format_exc()[-2000:]}
    import torch

    return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}


def main() -> None:
    for library in {"torch", *sys.argv[1:]} - STARTS_DEVICE:
        importlib.import_module(library)
    requests = json.load(sys.stdin)
    for request in requests:
        receiver, sender = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(receiver)
            os.environ.update(request["environment"])
            with open(sender, "w") as answer:
                json.dump(run(request["path"], request["arguments"]), answer)
            os._exit(0)
        os.close(sender)
        with open(receiver) as answer:
            text = answer.read()
        _, status = os.waitpid(child, 0)
        result = json.loads(text) if text else {"error": f"died with status {status}"}
        print(json.dumps({"key": request["key"], **result}), flush=True)


if __name__ == "__main__":
    main()
