"""Collapsed stacks: `outer;inner 4096`, a line per stack, bytes at its end (flamegraph.pl, speedscope, inferno)."""

from cuptimem.output.exports import Options, Written, events
from cuptimem.output.exports.stacked import labels, root
from cuptimem.output.text import words


def write(trace: str, path: str, options: Options) -> Written:
    what = options.what or "peak"
    report = events.report(trace, options, () if what == "peak" else (what,))
    devices = [report.device(options.device)] if options.device is not None else list(report.devices)
    lines: dict[str, int] = {}
    total = 0
    for device in devices:
        contents = report.contents(what, device.name)
        rows = [(labels(c), c.bytes) for c in contents.contributors]
        if contents.rest_bytes:
            rows.append((("(compacted)",), contents.rest_bytes))
        for names, size in rows:
            # One device is not worth a level of its own, several are.
            path_of = (root(device.name), *names) if len(devices) > 1 else names
            line = ";".join(name.replace(";", ":") for name in path_of)
            lines[line] = lines.get(line, 0) + size
        total += contents.bytes
    with events.target(path, options) as file:
        for line, size in lines.items():
            if size > 0:
                file.write(f"{line} {size}\n".encode())
    return Written(
        path,
        events.size(path),
        f"{words.plural(len(lines), 'stack')}, {words.size(total)} ({what})",
        "speedscope.app, flamegraph.pl or any reader of collapsed stacks",
        events.caveats(report),
    )
