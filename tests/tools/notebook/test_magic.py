"""%%cuptimem in a real kernel: the cell runs as without it, and its end ends the recording."""

import re

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed here; `make demo` makes an environment with it")

from tests.tools.notebook.kernels import Kernel

pytestmark = pytest.mark.torch

MIB = 1 << 20


def test_a_cell_runs_as_without_the_magic(kernel: Kernel) -> None:
    outputs = kernel.run("%%cuptimem -o r\nx = torch.zeros(1 << 18)\nprint('said')\nx.sum()")
    assert outputs.stdout == "said\n"
    assert outputs.data("execute_result") == ["tensor(0.)"]
    assert len([one for one in outputs if one.get("name") != "stderr"]) == 3  # a busy kernel may have said something
    assert outputs[-1].data["text/plain"] == kernel.value("r").strip()
    assert kernel.value("tuple(x.shape)") == "(262144,)"
    assert kernel.value("[block.bytes for block in r.kept_blocks if block.bytes > 100]") == f"[{MIB}]"
    assert kernel.value("r.peak.contributors[0].frame.place").startswith("In[")


def test_its_lines_are_those_of_the_cell_on_the_screen(kernel: Kernel) -> None:
    kernel.run("%%cuptimem -o r -q\n# two\n# three\ny = torch.zeros(3 << 18)")
    number = kernel.number
    kept = "max(r.kept_blocks, key=lambda block: block.bytes)"
    assert kernel.value(f"{kept}.stack[0].place, {kept}.stack[0].source") == str(
        (f"In[{number}]:4", "y = torch.zeros(3 << 18)")
    )


def test_an_exception_goes_on_with_its_own_traceback(kernel: Kernel) -> None:
    outputs = kernel.run(
        "%%cuptimem\ndef divided(by):\n    big = torch.ones(1 << 18)\n    return 1 / by\n\ndivided(0)\nprint('never')"
    )
    assert outputs.error == "ZeroDivisionError"
    assert "never" not in outputs.stdout
    bare = re.sub(r"\x1b\[[0-9;]*m", "", outputs.traceback)
    assert "----> 6 divided(0)" in bare and "----> 4     return 1 / by" in bare
    assert "cuptimem" not in bare
    assert "the traceback of the last exception" in outputs.report
    assert kernel.value("__import__('cuptimem.record.recorder').record.recorder.active()") == "False"


def test_a_wrong_option_is_one_line_and_runs_nothing(kernel: Kernel) -> None:
    for line, said in (
        ("--bogus", "unrecognized arguments: --bogus"),
        ("-o 3x", "'3x' is no variable's name"),
        ("--save 'x", "No closing quotation"),
        ("--save /no/such/folder/x.cmem", "is not a directory"),
    ):
        outputs = kernel.run(f"%%cuptimem {line}\nnever_bound = 1")
        assert outputs.stderr.startswith("UsageError: %%cuptimem: ") and said in outputs.stderr
        assert outputs.stderr.count("\n") == 1
        assert not outputs.data("display_data")
    assert kernel.value("'never_bound' in globals()") == "False"


def test_help(kernel: Kernel) -> None:
    assert "--save FILE" in kernel.run("%%cuptimem --help\nnever_bound = 1").stderr
    assert kernel.value("'never_bound' in globals()") == "False"
    assert kernel.value("'--save FILE' in get_ipython().magics_manager.magics['cell']['cuptimem'].__doc__") == "True"


def test_an_interrupt_ends_the_recording_and_shows_it(kernel: Kernel) -> None:
    outputs = kernel.run(
        "%%cuptimem -o r\nimport signal, time\nz = torch.zeros(2 << 18)\n"
        "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\nnever_bound = 1"
    )
    assert outputs.error == "KeyboardInterrupt"
    assert "2.0 MiB" in outputs.report
    assert kernel.value("[block.bytes for block in r.kept_blocks if block.bytes > 100]") == f"[{2 * MIB}]"
    assert kernel.value("__import__('cuptimem.record.recorder').record.recorder.active()") == "False"
    assert kernel.value("'never_bound' in globals()") == "False"


def test_a_cell_run_again_makes_a_new_report_and_keeps_no_tensor(kernel: Kernel) -> None:
    cell = "%%cuptimem -o r\nw = torch.zeros(1 << 18)"
    kernel.run(cell)
    kernel.run("import weakref\nfirst, old = r, weakref.ref(w)")
    kernel.run(cell)
    assert kernel.value("gc.collect() and False or (old() is None, r is not first)") == "(True, True)"


def test_who_holds_what_is_alive(kernel: Kernel) -> None:
    outputs = kernel.run(
        "%%cuptimem -o r\nhistory = [torch.zeros(1 << 18) for _ in range(3)]\n"
        "class Box: pass\nbox = Box()\nbox.inside = {'deep': (torch.zeros(5 << 18),)}\ntorch.zeros(7 << 18)"
    )
    number = kernel.number
    alive = outputs.report.split("Alive at the end of")[1]
    rows = dict(re.findall(r"<td[^>]*><b>([\d.]+ \w+)</b></td>.*?<code>([^<]*)</code>", alive))
    assert rows["3.0 MiB"] == "history"
    assert rows["5.0 MiB"] == "box"
    assert rows["7.0 MiB"] == f"Out[{number}], _"
    later = kernel.run("%%cuptimem\npass").report
    assert f"Out[{number}]" in later and "7.0 MiB in 1 tensor of an earlier cell" in later
    kernel.run("%reset -f out")
    assert "of an earlier cell" not in kernel.run("%%cuptimem\npass").report


def test_who_holds_a_leak(kernel: Kernel) -> None:
    html = kernel.run(
        "%%cuptimem -o r\nlosses = []\nlayer = torch.nn.Linear(64, 64)\nsgd = torch.optim.SGD(layer.parameters(), 1)\n"
        "for _ in range(24):\n    loss = layer(torch.ones(8, 64)).sum()\n    loss.backward()\n    sgd.step()\n"
        "    losses.append(torch.zeros(512))"
    ).report
    number = kernel.number
    assert f"The leak of In[{number}]:9 is held by losses" in html
    assert "held by losses in the notebook → list[0:24]" in html
    assert kernel.value("[leak.where for leak in r.leaks]") == f"['In[{number}]:9']"
    assert f"counted by the optimizer&#x27;s step at In[{number}]:8" in html


def test_saved_traces_are_replaced_and_can_be_opened(kernel: Kernel) -> None:
    for count in (1, 2):
        kernel.run(f"%%cuptimem --save kept.cmem -q -o r\nv = [torch.zeros(1 << 18) for _ in range({count})]")
        assert kernel.value("cuptimem.open('kept.cmem').peak.bytes == r.peak.bytes") == "True"
        assert kernel.value("cuptimem.open('kept.cmem').contents('kept').bytes") == str(count * MIB)


def test_a_cell_with_a_profile_that_is_run_again_replaces_its_trace(kernel: Kernel) -> None:
    cell = "with cuptimem.profile('block.cmem') as prof:\n    v = [torch.zeros(1 << 18) for _ in range({})]"
    decorated = (
        "@cuptimem.profile('call.cmem')\ndef make(n):\n    return torch.zeros(n << 18)\nmake({0}); _ = make({0})"
    )
    for count in (1, 2):
        assert not kernel.run(cell.format(count)).error and not kernel.run(decorated.format(count)).error
        for name in ("block.cmem", "call.cmem", "call-2.cmem"):
            allocated = f"cuptimem.open('{name}').device('cpu').allocated"
            assert kernel.value(allocated) == str(count * MIB), (name, count)
        assert kernel.value("os.path.basename(prof.path), os.path.basename(make.profile.path)") == (
            "('block.cmem', 'call-2.cmem')"
        )
    assert kernel.value("sorted(n for n in os.listdir() if n.startswith(('block', 'call')))") == (
        "['block.cmem', 'call-2.cmem', 'call.cmem']"
    )
    assert kernel.value("len(repr(prof.report)) <= 120 < len(str(prof.report))") == "True"


def test_quiet_shows_nothing_of_ours(kernel: Kernel) -> None:
    outputs = kernel.run("%%cuptimem -q -o r\n40 + 2")
    assert [one.output_type for one in outputs] == ["execute_result"]


@pytest.mark.parametrize(
    ("cell", "result"),
    [
        ("%%cuptimem -q\nimport asyncio\nawait asyncio.sleep(0)\n'awaited'", "'awaited'"),
        ("%%cuptimem -q\nfrom __future__ import annotations\n'future'", "'future'"),
        ("%%cuptimem -q\n'''\n%%cuptimem\n'''", "'\\n%%cuptimem\\n'"),
        ("'''\n%%cuptimem -q\n'''", "'\\n%%cuptimem -q\\n'"),
        ("%%cuptimem -q\n%time 5", "5"),
        ("\n\n%%cuptimem -q\n6", "6"),
        ("%%time\n%%cuptimem -q\n7", "7"),
    ],
)
def test_cells_of_many_kinds(kernel: Kernel, cell: str, result: str) -> None:
    outputs = kernel.run(cell)
    assert not outputs.error, outputs.traceback
    assert outputs.data("execute_result") == [result]
    assert kernel.value("__import__('cuptimem.record.recorder').record.recorder.active()") == "False"


def test_an_empty_cell_and_one_that_does_not_compile(kernel: Kernel) -> None:
    assert "0 allocations" in kernel.run("%%cuptimem").report
    assert kernel.run("%%cuptimem\nthis is no python").error == "SyntaxError"
    assert kernel.value("__import__('cuptimem.record.recorder').record.recorder.active()") == "False"


def test_a_profile_shows_itself_after_its_block(kernel: Kernel) -> None:
    outputs = kernel.run("with cuptimem.profile() as prof:\n    u = torch.zeros(1 << 18)\nprof")
    (html,) = outputs.data("execute_result", "text/html")
    assert "1.0 MiB" in html and "<img" in html
    assert outputs.data("execute_result")[0] == kernel.value("prof.report")
    inside = kernel.run("with cuptimem.profile() as prof:\n    display(prof)")
    assert inside.data("display_data", "text/html") == []
    assert kernel.run("prof.report.peaks[0:1]").error == ""


def test_unloaded_it_is_no_magic_any_more(kernel: Kernel) -> None:
    kernel.run("%unload_ext cuptimem")
    assert "UsageError" in kernel.run("%%cuptimem\nnever_bound = 1").stderr
    kernel.run("%load_ext cuptimem")
    assert kernel.run("%%cuptimem -q\n8").data("execute_result") == ["8"]
