"""python -m tests.mutants [--count N] [--seed N] [--time S] FILE.c ... -- TESTS: which faults these tests find.

Changes one operator, constant, condition or statement of a C file of the extension at a time, at random places, builds
it in a copy of the tree (build/mutants/tree) and runs the golden traces and TESTS, files or folders. Says of each
mutant which files of tests fail: none (it survives), or one alone, which must not be dropped.
"""

import argparse
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.coverage import ROOT, build_extension, copied

TREE = ROOT / "build" / "mutants" / "tree"
NAME = r"[\w\->.\[\]]+"
CHANGES: tuple[tuple[str, str], ...] = (
    (r" == ", " != "),
    (r" != ", " == "),
    (r" < ", " <= "),
    (r" <= ", " < "),
    (r" > ", " >= "),
    (r" >= ", " > "),
    (r" && ", " || "),
    (r" \|\| ", " && "),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" \+= ", " -= "),
    (r" -= ", " += "),
    (r"\breturn true;", "return false;"),
    (r"\breturn false;", "return true;"),
    (r"\bif \((?=[^()]*\)|[^()]*\([^()]*\)[^()]*\))", "if (!!"),  # always, below
    (rf"(?<=    )({NAME} = )({NAME});", r"\g<1>0 * \g<2>;"),
    (r"(?<=[ (])([1-9]\d*)(?=[ ;),])", ""),  # one more, below
    (r"(?m)^( +)[a-z]\w+\([^;\n]*\);$", r"\1;"),  # no call
)


def places(text: str) -> list[tuple[int, str]]:
    """Places and texts of all mutants of a file: the line, and the whole text."""
    code = re.sub(
        r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|(?m:^#[^\n]*)", lambda m: "\0" * len(m[0]), text, flags=re.S
    )
    found = []
    for pattern, new in CHANGES:
        for match in re.finditer(pattern, code):
            word = str(int(match[0]) + 1) if match[0].isdigit() else match.expand(new)
            if word == "if (!!":  # if (x) -> if (!(x))
                close = code.index(")\n" if ")\n" in code[match.end() : match.end() + 200] else ") ", match.end())
                changed = f"{text[: match.start()]}if (!({text[match.end() : close]}){text[close:]}"
            else:
                changed = text[: match.start()] + word + text[match.end() :]
            found.append((text.count("\n", 0, match.start()), changed))
    return found


def failing(tests: list[str], seconds: int) -> list[str]:
    """The files of tests that fail; what does not end counts as a failure."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(TREE)}
    try:
        done = subprocess.run(
            command, cwd=TREE, env=environment, capture_output=True, text=True, errors="replace", timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return ["no end"]
    files = set(re.findall(r"^(?:FAILED|ERROR) (\S+?\.py)", done.stdout, re.M))
    return sorted(files) or (["a crash"] if done.returncode else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="mutants (60)")
    parser.add_argument("--seed", type=int, default=1, help="of the choice (1)")
    parser.add_argument("--time", type=int, default=300, help="seconds for a run of the tests (300)")
    parser.add_argument("files", nargs="+", type=Path, help="C files, and behind -- files or folders of tests")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    options, tests = parser.parse_args(words[:at]), words[at + 1 :] or ["tests/unit/analysis"]
    copied(TREE)
    if not build_extension(TREE):
        return 1
    if broken := failing(["tests/golden", *tests], options.time * 4):
        sys.exit(f"without a mutant fail: {' '.join(broken)}")
    every = [(file, line, text) for file in options.files for line, text in places((ROOT / file).read_text())]
    chosen = random.Random(options.seed).sample(every, min(options.count, len(every)))
    alone: Counter[str] = Counter()
    survive = invalid = 0
    for file, line, text in chosen:
        original = (ROOT / file).read_text()
        change = text.splitlines()[line].strip()
        (TREE / file).write_text(text)
        try:
            if not build_extension(TREE):
                invalid += 1
                continue
            found = failing(["tests/golden", *tests], options.time)
        finally:
            (TREE / file).write_text(original)
        survive += not found
        alone.update(found if len(found) == 1 else ())
        print(f"{file}:{line + 1}: {change}: {', '.join(found) or 'SURVIVES'}", flush=True)
    print(
        f"{len(chosen)} mutants of {len(every)}: {survive} survive, {invalid} do not compile; found by one file alone:"
    )
    for name, count in alone.most_common():
        print(f"{count:4} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
