"""Traces of a folder, read by Ray's workers; one of them is killed while it has run-07.cmem."""

import json
import os
import signal
import sys
from concurrent.futures import Executor

import ray

import cuptimem


def once_deadly(call, path, *arguments):
    if path.endswith("run-07.cmem") and not os.path.exists(f"{path}.seen"):
        os.close(os.open(f"{path}.seen", os.O_CREAT))
        os.kill(os.getpid(), signal.SIGKILL)
    return call(path, *arguments)


class RayExecutor(Executor):
    def submit(self, call, /, *arguments, **named):
        return ray.remote(max_retries=0)(once_deadly).remote(call, *arguments, **named).future()


ray.init(num_cpus=2, include_dashboard=False)
found = cuptimem.ranks(sys.argv[1], executor=RayExecutor())
print(json.dumps({"peaks": [[one.rank, one.own.peak.bytes] for one in found.ranks], "failed": found.failed}))
