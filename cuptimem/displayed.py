"""Objects that a notebook shows as a picture and tables. Part of every recording: imports nothing."""

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from typing import Any


class Displayed:
    """Objects that a notebook shows as a picture and tables, and a terminal as text."""

    __slots__ = ()

    def __str__(self) -> str:
        """The text that a notebook without HTML shows."""
        from cuptimem.notebook import display

        return display.as_text(self)

    def _repr_mimebundle_(self, include: "Any" = None, exclude: "Any" = None) -> "dict[str, str]":
        from cuptimem.notebook import display

        return display.bundle(self, include, exclude)

    def _repr_pretty_(self, printer: "Any", cycle: bool) -> None:
        """For subclasses of tuple: IPython's own printer of tuples goes before the bundle, and prints megabytes."""
        from cuptimem.notebook import display

        printer.text(display.as_text(self))

    def _repr_html_(self) -> "str | None":
        from cuptimem.notebook import display

        return None if display.is_open(self) else display.markup_of(self)
