"""Results that show themselves: in a terminal, in a notebook, and in one line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


class Shown:
    """A result shown by ``document(result)`` of ``reports/sections/<SECTION>.py``, loaded when it is first shown.

    A class mixes it in before its data: ``class Found(Shown, msgspec.Struct, frozen=True): SECTION = "found"``.
    """

    __slots__ = ()

    SECTION: ClassVar[str]

    def document(self) -> Any:
        """Return the Document of this result."""
        return import_module(f"tensortide.reports.sections.{self.SECTION}").document(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.document()

    def _repr_html_(self) -> str:
        return str(self.document()._repr_html_())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.document().summary()}>"
