"""Results and how they are shown: which of their fields are columns or facts, and the Document that a whole one is.

A record says once how its fields look; tables, facts, JSON, CSV and the schemas in the docs are made of that
(``reports/of_records.py``)::

    class Trial(msgspec.Struct, frozen=True):
        batch: Annotated[int, Show("Batch")]
        peak_bytes: Annotated[int, Show("Peak")]
        lost: Annotated[float, Show("lost", "share", bar=90)]
        captures: int  # for data alone: JSON and CSV have it

        @property
        def spare_bytes(self) -> Annotated[int, Show("spare", at_width=110)]: ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

TextUnit: TypeAlias = Literal["text", "name", "path", "code", "role", "flag"]
AmountUnit: TypeAlias = Literal["bytes", "ns", "s", "byte_ns", "flops", "macs", "count", "amount", "number", "op"]
RateUnit: TypeAlias = Literal["ratio", "share", "change", "factor", "flops_per_s", "bytes_per_s", "flops_per_byte"]
UnitName: TypeAlias = Literal[TextUnit, AmountUnit, RateUnit]
"""Rows of ``UNITS`` in ``reports/render/values.py``: texts, then numbers, which are aligned right."""
MEASURES: tuple[UnitName, ...] = (
    *("flops_per_byte", "flops_per_s", "bytes_per_s", "byte_ns", "bytes", "ns", "s", "flops", "macs"),
)
"""Units in which names of values end."""


class Show(NamedTuple):
    """The look of a field of a record, in an ``Annotated`` of its type or of what a property returns.

    A field without one is for data alone: JSON and CSV have it. ``title`` is the head of its column and the label of
    its fact. ``unit`` is by default text for a str; else what its name ends in (a measure, ``share``, ``change``,
    ``factor``, ``op``), or that of its type: a count for an int, a number for a float, a flag for a bool. The other
    fields are those of a Column (``at_width``, ``bar``, ``fold``, ``dim``, ``zero``, ``sum``, ``pick``), of a Fact
    (``level``, ``remark``) or of both (``data``). A tuple shows its members, or with the unit ``count`` their number.

    ``before`` and ``after`` name the fields that have the signs around it, ``times`` that of the number of what a row
    stands for, a mark such as x3 after it; with ``if_any`` a column without any value but 0, False and no text is for
    data alone.
    """

    title: str = ""
    unit: UnitName | None = None
    at_width: int = 0
    bar: int = 0
    fold: bool = False
    dim: bool = False
    zero: str | None = None
    sum: bool = False
    pick: bool = False
    level: int = 0
    before: str = ""
    after: str = ""
    times: str = ""
    if_any: bool = False
    data: bool = False
    remark: str = ""


class Shown:
    """A result shown by ``document(result)`` of ``reports/sections/<SECTION>.py``, loaded when it is first shown, or by
    the function ``of_found`` of ``SECTION = "answers.of_found"``.

    A class mixes it in before its data: ``class Found(Shown, msgspec.Struct, frozen=True): SECTION = "found"``.
    """

    __slots__ = ()

    SECTION: ClassVar[str]

    def document(self) -> Any:
        """Return the Document of this result."""
        module, _, function = self.SECTION.partition(".")
        return getattr(import_module(f"tensortide.reports.sections.{module}"), function or "document")(self)

    def page(self) -> Any:
        """Return the page: a notebook shows it in a frame, and ``.save("step.html")`` writes it."""
        return self.document().page()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.document()

    def _repr_html_(self) -> str:
        return str(self.document()._repr_html_())

    def __str__(self) -> str:
        return str(self.document())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.document().summary()}>"
