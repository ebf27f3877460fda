"""The line that gives a batch its size, by the program's source: frames from the line that makes the data outwards."""

import pytest

from cuptimem.advice.loops import batch_line
from cuptimem.report.stacks import Frame

# Each with the lines of the frames, the innermost first, and the line that is right; None: the first frame's own.
PROGRAMS = {
    "items of a loop": (
        """\
        for epoch in range(2):
            for some in order.split(ROWS):
                x = data[some].to(device)
        """,
        (3,),
        2,
    ),
    "by way of another variable": (
        """\
        for batch in loader:
            with timer:
                images, labels = batch
            images = images.to(device)
        """,
        (4,),
        1,
    ),
    "a slice where it stands": ("for i in range(9):\n    x = data[i * 8 : i * 8 + 8].to(device)\n", (2,), None),
    "a range with a size": ("for i in range(0, 90, 8):\n    x = data[i : i + 8].to(device)\n", (2,), 1),
    "of another loop's item": ("for name in names:\n    for i in range(3):\n        x = torch.rand(8)\n", (3,), None),
    "a function is given the batch": (
        """\
        def loss(model, batch):
            x = batch.to(device)
            return model(x)
        for batch in loader:
            loss(model, batch).backward()
        """,
        (2, 5),
        4,
    ),
    "its loop's size is the caller's": (
        """\
        def pages(data, rows):
            for some in torch.randperm(len(data)).split(rows):
                yield data[some].to(device)
        for page in pages(data, 8):
            model(page)
        """,
        (3, 4),
        4,
    ),
    "a function that returns it": (
        """\
        def draw():
            return torch.rand(8, 3, device=device)
        for step in range(9):
            x = draw()
        """,
        (2, 4),
        4,
    ),
    "of a caller without a loop": (
        """\
        class Memory:
            def draw(self, count):
                rows = torch.randint(0, 99, (count,))
                return [part[rows] for part in self.parts]
        def learn(memory, plan):
            states, actions = memory.draw(plan.count)
        learn(memory, plan)
        """,
        (4, 6, 7),
        6,
    ),
    "parts in a list": ("found = [look(some.to(device)) for some in pictures.split(16)]\n", (1,), None),
    "a function that makes it": (
        """\
        def step(model):
            x = torch.rand(8)
        for model in models:
            step(model)
        """,
        (2, 4),
        None,
    ),
    "other bodies": (
        """\
        for batch in loader:
            try:
                last = True
            except OSError:
                match batch:
                    case {"x": x}:
                        x = (lambda one: one)(x.to(device) if last else x)
        """,
        (7,),
        1,
    ),
    "no source": ("", (1,), None),
    "not Python": ("for x in\n", (1,), None),
}


def frames(source: str, lines: tuple[int, ...]) -> list[Frame]:
    return [Frame("/home/me/train.py", "f", line, text=(source.splitlines() or [""])[line - 1]) for line in lines]


@pytest.mark.parametrize("name", PROGRAMS)
def test_lines(name: str) -> None:
    source, lines, right = PROGRAMS[name]
    source = "\n".join(line.removeprefix(" " * 8) for line in source.split("\n"))
    made = frames(source, lines)
    found = batch_line(made, {"/home/me/train.py": source})
    assert (found or made[0]).line == (right or lines[0])
    assert found is None or found.source == source.splitlines()[found.line - 1].strip()


def test_libraries_have_no_callers() -> None:
    """PyTorch's frames are between a module's call and its forward; a trainer's loop is not the program's."""
    source = "def training_step(batch):\n    x = batch.to(device)\nfor fold in folds:\n    trainer.fit(fold)\n"
    inner, outer = frames(source, (2, 4))
    torch = Frame("/usr/lib/python3/site-packages/torch/nn/modules/module.py", "_call_impl", 7)
    other = Frame("/usr/lib/python3/site-packages/lightning/loop.py", "run", 7)
    sources = {"/home/me/train.py": source}
    assert [one.line for one in (batch_line([inner, torch, outer], sources),) if one is not None] == [3]
    assert batch_line([inner, other, outer], sources) == inner
