"""python -m evidence.published verdicts|accuracy|all [--only NAME ...] [--again] [--jobs N] [--timeout S]

Simulates the programs of programs.toml, or the set-ups of the published figures, and writes verdicts.md or
accuracy.md. Each answer is kept in build/published: a run that was broken off goes on where it was. It needs the
interpreter of `make evidence-published`, which has torch for CUDA and the libraries; no weights are downloaded.

--only runs these alone, again, and writes no page. --again forgets what was kept. --page runs nothing.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from evidence.published import accuracy, runs, tables, verdicts

LIBRARIES = ("transformers", "accelerate", "torchvision", "timm", "diffusers", "peft", "litgpt", "torchao")


def _about(results: dict[str, Any]) -> dict[str, str]:
    found = []
    for name in LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return {
        "date": datetime.date.today().isoformat(),
        "commits": runs.simulated_at(results.values()),
        "torch": version("torch"),
        "libraries": ", ".join(found),
    }


def _verdicts(options: argparse.Namespace) -> None:
    programs = tables.programs()
    by_name = {program.name: program for program in programs}
    chosen = _chosen(list(by_name), options.only)
    results = _run(options, [verdicts.job(by_name[name]) for name in chosen], verdicts.RESULTS, by_name, verdicts)
    rows = [verdicts.row_of(program, results.get(program.name)) for program in programs]
    print(dict(verdicts.counts(rows)))
    if not options.only:
        page = verdicts.page(rows, tables.explanations("verdicts"), _about(results))
        (tables.FOLDER / "verdicts.md").write_text(page)
        print("wrote evidence/published/verdicts.md")


def _accuracy(options: argparse.Namespace) -> None:
    setups = tables.setups()
    figures = [tables.settled(figure, setups.get(figure.name)) for figure in tables.figures()]
    by_name = {figure.name: figure for figure in figures}
    chosen = _chosen(list(setups), options.only)
    jobs = [job for name in chosen for job in accuracy.jobs(setups[name])]
    by_name |= {job.name: by_name[job.name.split()[0]] for job in jobs}
    results = _run(options, jobs, accuracy.RESULTS, by_name, accuracy)
    rows = [accuracy.row_of(by_name[name], setup, results) for name, setup in setups.items()]
    print("; ".join(accuracy.summary(rows)))
    if not options.only:
        page = accuracy.page(rows, figures, tables.left_out(), tables.explanations("accuracy"), _about(results))
        (tables.FOLDER / "accuracy.md").write_text(page)
        print("wrote evidence/published/accuracy.md")


def _run(options: argparse.Namespace, jobs: list[runs.Job], name: str, by_name: Any, what: Any) -> dict[str, Any]:
    path = runs.BUILD / name
    if options.page:
        have = runs.load(path)
        return {job.name: have[job.name] for job in jobs if runs.same(have.get(job.name), job)}
    if options.again and not options.only:
        path.unlink(missing_ok=True)
    forget = frozenset(job.name for job in jobs) if options.only or options.again else frozenset()
    return runs.run(
        jobs, path, options.jobs, options.timeout, lambda result: what.told(by_name[result["name"]], result), forget
    )


def _chosen(names: list[str], only: list[str]) -> list[str]:
    """All, or those that begin with one of `only`."""
    if not only:
        return names
    found = [name for name in names if any(name.startswith(prefix) for prefix in only)]
    if not found:
        raise SystemExit(f"nothing is named {', '.join(only)}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.published", description=__doc__.split("\n\n")[1])
    parser.add_argument("what", choices=("verdicts", "accuracy", "all"))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="those that begin so; writes no page")
    parser.add_argument("--again", action="store_true", help="forget what was kept")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page from what was kept")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="at a time (%(default)s)")
    parser.add_argument("--timeout", type=int, default=600, metavar="S", help="for each run (%(default)s)")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error("at least one job")
    if options.what in ("verdicts", "all"):
        _verdicts(options)
    if options.what in ("accuracy", "all"):
        _accuracy(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
