"""Variables that hold what nothing reads again."""

import ast
import json

from cuptimem.simulation.changes import sources
from cuptimem.simulation.changes.change import Change
from cuptimem.simulation.deletions import Deletions, delete
from cuptimem.simulation.places import is_programs


class Release(Change):
    """del of variables behind the statements of their last uses, in the source of the program.

    value: names and lines by file, as JSON; "" for all that can be deleted. What is in lists that are read again, and
    in objects of the program, stays.
    """

    why_not = "no variable of the program holds at the peak what is not read again"

    def install(self) -> None:
        self._places: dict[str, list[tuple[str, int]]] | None = json.loads(self.value) if self.value else None
        sources.edit(is_programs if self._places is None else self._places.__contains__, self._edited)

    def _edited(self, tree: ast.Module, source: str | bytes, file: str, is_script: bool) -> bool:
        places = self._places[file] if self._places is not None else list(Deletions(source, file, is_script).all())
        count = delete(tree, source, places)
        self.applied += count
        return count > 0
