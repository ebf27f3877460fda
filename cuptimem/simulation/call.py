"""Runs a pickled function: `python -m cuptimem.simulation.call FOLDER NAME`, for cuptimem.simulate(function)."""

import json
import os
import sys

PICKLE, PATH = "call.pickle", "call.json"


def main() -> None:
    """Calls it. What it returns stays here."""
    folder = sys.argv[1]
    with open(os.path.join(folder, PATH), encoding="utf-8") as file:
        sys.path[:] = json.load(file)
    sys.argv[:] = [""]
    import pickle

    with open(os.path.join(folder, PICKLE), "rb") as file:
        function, arguments = pickle.load(file)
    function(*arguments)


if __name__ == "__main__":
    main()
