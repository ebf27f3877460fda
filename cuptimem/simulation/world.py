"""One rank of a distributed program, as a launcher such as torchrun would start it."""

import os
from dataclasses import dataclass

MESH = "mesh"  # a file of the folder: the shape of the program's device mesh
OBJECTS = "objects-"  # begins the name of each file with what a rank has sent
NEEDS = "needs"  # a file of the folder: the rank that has to send something first
MOST = 1 << 16  # ranks


@dataclass(frozen=True, slots=True)
class World:
    """All ranks have the folder: what one sends another as objects, and what they note for us (fake_world.py)."""

    rank: int
    size: int
    devices: int  # of each machine
    folder: str

    def variables(self) -> dict[str, str]:
        """Those that torchrun sets."""
        node, local = divmod(self.rank, self.devices)
        values = {
            "RANK": self.rank,
            "WORLD_SIZE": self.size,
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": min(self.devices, self.size - node * self.devices),
            "GROUP_RANK": node,
            "GROUP_WORLD_SIZE": -(-self.size // self.devices),
            "ROLE_RANK": self.rank,
            "ROLE_WORLD_SIZE": self.size,
            "ROLE_NAME": "default",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": 29500,
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
        }
        return {name: str(value) for name, value in values.items()}

    def settings(self) -> dict[str, str]:
        """For the simulated process."""
        return {"world.folder": self.folder, "world.rank": str(self.rank), "world.size": str(self.size)}

    def noted(self, name: str) -> tuple[int, ...]:
        """Numbers of a file of the folder; () where there is none."""
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                return tuple(map(int, file.read().split()))
        except FileNotFoundError:
            return ()

    def sent(self) -> int:
        """How many times ranks have sent objects."""
        return sum(name.startswith(OBJECTS) for name in os.listdir(self.folder))

    def forget(self, name: str) -> None:
        if os.path.lexists(path := os.path.join(self.folder, name)):
            os.unlink(path)
