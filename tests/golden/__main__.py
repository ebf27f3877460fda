"""python -m tests.golden [NAME ...]: compares what the golden traces are answered with what they were answered.

Prints each difference with its place, and how much was compared. Exit code 1: there is a difference, or the table of
renames has an entry that applies nowhere.
"""

import sys

from tests.golden import answers, compare, renames

MOST = 40  # differences shown of one answer


def main(arguments: list[str]) -> int:
    names = arguments or answers.names()
    bad = asked = values = 0
    for name in names:
        found = compare.trace(name)
        asked, values = asked + found.answers, values + found.values
        for question, lines in found.differences.items():
            bad += len(lines)
            for line in lines[:MOST]:
                print(f"{name}: {question}: {line}")
            if len(lines) > MOST:
                print(f"{name}: {question}: and {len(lines) - MOST} more")
    if not arguments:
        for entry in renames.read().unused():
            bad += 1
            print(f"renames.json: applies nowhere: {entry}")
    print(f"{len(names)} traces, {asked} answers, {values} values compared: {bad} differences")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
