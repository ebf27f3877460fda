"""Every allocation as a row of Arrow: in memory without a library, and as an IPC stream by pyarrow."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from cuptimem.errors import Error
from cuptimem.output.exports import Options, Written, events
from cuptimem.output.exports.events import Events, Origin
from cuptimem.output.exports.stacked import label
from cuptimem.output.text import words

_STACK_MOST = 1 << 16  # characters of a stack


class Allocations:
    """What `report.to_arrow()` gives: readers of the Arrow C stream interface take it as a table.

    Each reading begins at the first row. Memory is that of a batch (65,536 rows), of the live blocks and of the texts.
    """

    def __init__(self, trace: str, options: Options) -> None:
        self._trace, self._options = trace, options

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule of an ArrowArrayStream. There is one schema: a requested one is left to the reader, as the
        interface allows."""
        return stream(Events(self._trace, self._options))


class _Texts:
    """The texts of a row, once for each origin."""

    def __init__(self, source: Events) -> None:
        self._source = source
        self._stacks: dict[int, str | None] = {}

    def __call__(self, device: str, *about: Any) -> tuple[str | int | None, ...]:
        if not about:  # blocks that are only counted
            return (events.text(device), *(None,) * 7, "(compacted)", None, None, None)
        origin = Origin(device, *about)
        frame = self._source.user_frame(origin.stack)
        return (
            events.text(device),
            origin.phase,
            _known(origin.operator),
            origin.category,
            _known(origin.module),
            _known(origin.saved_by),
            None if frame is None else events.text(frame.file),
            None if frame is None else events.text(frame.function),
            self._source.where(origin),
            self._stack(origin.stack),
            self._stack(origin.origin),
            None if frame is None or frame.line < 0 else frame.line,
        )

    def _stack(self, number: int) -> str | None:
        """As collapsed stacks have it: outermost first."""
        if number not in self._stacks:
            names = [label(frame).replace(";", ":") for frame in reversed(self._source.stack(number))]
            self._stacks[number] = words.shortened(";".join(names), _STACK_MOST) if names else None
        return self._stacks[number]


def _known(name: str | None) -> str | None:
    return None if name is None else events.text(name)


def stream(source: Events) -> object:
    """A capsule that reads the source, from its start."""
    return source.start().arrow_stream(_Texts(source), source.device)


class _Capsule:
    """What pyarrow takes a stream from."""

    def __init__(self, source: Events) -> None:
        self._source = source

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return stream(self._source)


def pyarrow(name: str) -> Any:
    """A module of pyarrow. Raises Error without it."""
    try:
        return __import__(f"pyarrow.{name}" if name else "pyarrow", fromlist=["_"])
    except ImportError:
        raise Error("this format needs pyarrow: pip install cuptimem[arrow]") from None


def write_with(trace: str, path: str, options: Options, writer: Callable[[IO[bytes], Any], Any], opens: str) -> Written:
    """Writes every batch with a writer that pyarrow makes of the file and the schema."""
    module = pyarrow("")
    rows = 0
    with events.target(path, options) as file:
        source = Events(trace, options)
        reader = module.RecordBatchReader.from_stream(_Capsule(source))
        schema = described(reader.schema, source)
        with writer(file, schema) as out:
            for batch in reader:
                source.tell()
                out.write_batch(batch.replace_schema_metadata(schema.metadata))
                rows += batch.num_rows
    return Written(path, events.size(path), words.plural(rows, "allocation"), opens, events.caveats(source.report))


def described(schema: Any, source: Events) -> Any:
    """The schema with what is said of the recording."""
    report = source.report
    about = {
        "cuptimem.program": events.title(report),
        "cuptimem.state": report.state,
        "cuptimem.missing": "; ".join(events.caveats(report)),
        "cuptimem.start_realtime_ns": str(report.start_realtime_ns),
        "cuptimem.duration_ns": str(report.duration_ns),
    }
    return schema.with_metadata({key: value.encode("utf-8", "backslashreplace") for key, value in about.items()})


def write(trace: str, path: str, options: Options) -> Written:
    ipc = pyarrow("ipc")

    @contextmanager
    def writer(file: IO[bytes], schema: Any) -> Iterator[Any]:
        # A stream, not a file: an IPC file may have one dictionary for each column, batches here have their own.
        with ipc.new_stream(file, schema) as out:
            yield out

    return write_with(trace, path, options, writer, "pyarrow.ipc.open_stream, polars.read_ipc_stream, DuckDB")
