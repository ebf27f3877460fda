"""Pages from within a program: Report.show()."""

import argparse
import tempfile
from typing import TYPE_CHECKING

from cuptimem.errors import Error
from cuptimem.output.pages import timeline as timeline_page
from cuptimem.output.pages import writing

if TYPE_CHECKING:
    from cuptimem.report.model import Report


def timeline(report: "Report", path: str | None, open_it: bool) -> str:
    """Writes the page, opens it if asked and possible, and returns its path."""
    if path is not None:  # the same rules as for `cuptimem timeline -o`, before the trace is read again
        path = writing.target(argparse.Namespace(output=path, force=False, file=report.path), path)
    content = writing.encode(timeline_page.page(report))
    if path is None:
        path = _temporary(content)
    else:
        writing.write(path, content)
    if open_it:
        writing.open_browser(path)
    return path


def _temporary(content: bytes) -> str:
    """A new file that only the user may read."""
    try:
        with tempfile.NamedTemporaryFile(prefix="cuptimem-timeline-", suffix=".html", delete=False) as file:
            file.write(content)
    except OSError as error:
        raise Error(f"{tempfile.gettempdir()}: {error.strerror}") from None
    return file.name
