"""evidence/attribution/results.md: the rate of each question, and every miss."""

from collections.abc import Iterable, Mapping, Sequence

from evidence.attribution.judge import Check
from evidence.attribution.suite import Program

INTRODUCTION = """\
# Attribution

How often the words beside the bytes are right: `make attribution`, {date}, {commit}, torch {torch}, Python {python}.

{programs} programs, {libraries} of them with real libraries ({names}), {cuda} on the simulated CUDA device.
Their [source and truth](programs) lie side by side. NAME.toml is what its author wrote
before any run: verdict, line and holder of a leak, steps, sums of shapes. NAME.json is what
[account.py](account.py) counted without cuptimem: storages, by a TorchDispatchMode, with
PyTorch's own stacks of autograd nodes. PyTorch's profiler, on CUDA its allocator, counts the sum once more;
where that is more, operators allocate it inside of themselves.

What is right:

- **peak**: within 1 %.
- **biggest line**: the line of the program with the most bytes at the peak (or 98 % of the most), and its bytes
  within 1 % of the peak. Bytes of backward belong to the forward line. `table`: the first of `table --by line`;
  `closing lines`: the first that `run` ends with.
- **category**: within 1 % of the peak; asked where the truth or the answer is more than 1 %. Bytes under a
  wrong word count twice: as missing, and as too much. Words whose border is open (are an average's weights
  parameters or kept?) are judged as a sum, and so are activations with temporaries where a peak has both.
- **steps**: the number of batches, or of updates where gradients are accumulated, of all loops of a kind.
- **verdict**: leak, no leak, or the process grows while tensors do not. "Cannot tell" counts as
  no leak. **leak's line**: of the first leak the
  line that makes it or that keeps it. **leak's holder**: the first holder's path has the name that the program
  keeps it by.
- **diff**: the line that changed most at the peak between two settings of a program, and by how many bytes,
  within 1 % of the peak.

## Rates
"""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def kind(question: str) -> str:
    """Categories that are judged as a sum are one row."""
    return "category: a sum of several" if " + " in question else question


def rates(checks: Sequence[Check]) -> list[Sequence[str]]:
    """A row for each question, and for all categories and all steps together."""

    def row(name: str, among: Sequence[Check]) -> Sequence[str]:
        right = sum(check.right for check in among)
        return name, str(right), str(len(among)), f"{right / len(among):.0%}"

    names = list(dict.fromkeys(kind(check.question) for check in checks))
    found: list[Sequence[str]] = []
    for name in sorted(names, key=lambda n: (names.index(next(x for x in names if x[:5] == n[:5])), n)):
        group = name.split(":")[0]
        if ":" in name and group in ("category", "steps") and not any(r[0] == f"**{group}**" for r in found):
            found.append(row(f"**{group}**", [c for c in checks if c.question.startswith(f"{group}:")]))
        found.append(row(name, [c for c in checks if kind(c.question) == name]))
    return [*found, row("**all**", checks)]


def libraries(programs: Sequence[Program]) -> list[str]:
    return sorted({name for program in programs for name in program.truth.get("libraries", ())})


def page(
    programs: Sequence[Program], checks: Sequence[Check], failed: Mapping[str, str], about: Mapping[str, str]
) -> str:
    introduction = INTRODUCTION.format(
        **about,
        programs=len(programs),
        libraries=sum("libraries" in program.truth for program in programs),
        names=", ".join(libraries(programs)),
        cuda=sum(program.device == "cuda" for program in programs),
    )
    misses = [(c.program, c.question, c.expected, c.given) for c in checks if not c.right]
    lines = [introduction, *table(("question", "right", "of", "rate"), rates(checks)), "", "## Misses", ""]
    lines += [f"`{name}` was not judged: {why}\n" for name, why in failed.items()]
    lines += table(("program", "question", "right", "given"), misses)
    lines += ["", "## Peaks that are not asked about", ""]
    lines += table(("program", "why"), ((p.name, p.truth["moment"]) for p in programs if "moment" in p.truth))
    lines += ["", "## Programs", ""]
    lines += table(("program", "device", "what it does"), ((p.name, p.device, p.about) for p in programs))
    return "\n".join(lines) + "\n"
