"""Ranks as forks of a process that has imported PyTorch, with the variables that torchrun gives them.

Arguments: their number, a script, the script's own.
"""

import os
import runpy
import signal
import sys


def become(rank: int, world: int, port: str, command: list[str]) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    os.environ.update(TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
    sys.argv[:] = command
    runpy.run_path(command[0], run_name="__main__")


def main(world: int, command: list[str]) -> int:
    writers, ranks = [], []
    for rank in range(world):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            become(rank, world, os.read(reader, 16).decode(), command)
            return 0
        os.close(reader)
        writers.append(writer)
        ranks.append(pid)

    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # behind the forks: it has threads
    for writer in writers:
        os.write(writer, str(store.port).encode())
    failed = 0
    while ranks:
        pid, status = os.wait()
        ranks.remove(pid)
        if status != 0 and not failed:
            failed = 1
            for other in ranks:  # as torchrun does; they would wait for this one
                os.kill(other, signal.SIGTERM)
    return failed


sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
