"""Blocks: what a capability shows, as frozen data that every medium renders.

A Document is a title and Sections; a Section is a title and blocks: Facts, Table, Curve, Scatter, Spans, Note.
To add a section write one file, ``sections/<capability>.py``, with a function that makes it from a result::

    def section(result: Result) -> Section:
        verdict = Note(text="12 % of the peak is fragmentation.", kind="verdict")
        peak = fact(result, "peak_bytes", remark="at op 17")
        ops = table(Op, result.ops, key="ops", top=15)
        return Section("waste", "Waste", blocks=(verdict, facts(result, peak), ops))

``of_records.py`` makes facts and tables of records, whose fields say how they are shown; a Column or Fact is made by
hand where it depends on data, as one for each device. Values are raw: ints of bytes, of ns, of FLOPs; shares as
fractions; text as it is; None where a value is unknown. The unit of a value (``render/values.py``) says how it is
printed and aligned; the terminal, HTML page, CSV, JSON, Markdown, figures and traces need no further code.
A section that has ``of_step(step)`` and ``ORDER`` stands in every report: see ``sections/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import msgspec

from tensortide.python_object import near
from tensortide.reports.base import Block as Block
from tensortide.reports.base import Data, Ints, NoteKind, Strings, check_named
from tensortide.reports.base import UnitName as UnitName
from tensortide.reports.base import Value as Value
from tensortide.reports.pictures import Curve, Scatter, Spans

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from tensortide.reports.render.html import Page

T = TypeVar("T")


class Fact(Data, frozen=True):
    """One named value. A fact of ``level`` 1 details the fact of level 0 above it; ``before`` is ``>=`` or ``~``.

    ``data`` keeps it to JSON, for what the page says in other words.
    """

    key: str
    label: str
    value: Value
    unit: UnitName = "text"
    remark: str = ""
    level: int = 0
    before: str = ""
    data: bool = False

    def __post_init__(self) -> None:
        check_named(self.key, self.unit)


class Column(Data, frozen=True):
    """A column of a Table. ``fold`` wraps text; ``dim`` is for text of less weight.

    ``at_width`` is the least terminal width at which it is shown; ``bar`` that at which a bar shows its share beside it
    (0: no bar). ``before`` and ``after`` are signs around each cell, such as ``~`` or ``*``; ``zero`` stands for 0.
    ``data`` keeps it to JSON, CSV and traces. ``sum``: the page sums it over the rows that a search leaves. ``pick``:
    the page has a button for each of its texts, which leaves the rows with it.
    """

    key: str
    label: str
    unit: UnitName
    values: tuple[Value, ...]
    at_width: int = 0
    bar: int = 0
    fold: bool = False
    dim: bool = False
    before: Strings = ()
    after: Strings = ()
    zero: str | None = None
    data: bool = False
    sum: bool = False
    pick: bool = False

    def __post_init__(self) -> None:
        check_named(self.key, self.unit)


class Facts(Block, frozen=True, kw_only=True):
    """Named values. ``compact`` puts them into running lines, for settings and machines."""

    rows: tuple[Fact, ...]
    compact: bool = False

    @property
    def shown(self) -> tuple[Fact, ...]:
        """The facts that are not for data alone."""
        return tuple(fact for fact in self.rows if not fact.data)


class Table(Block, frozen=True, kw_only=True):
    """Rows as columns of equal length.

    The terminal shows ``top`` rows (None: all; 0: it leaves the table out) if it is ``at_width`` columns wide, then
    ``rest`` ("and 7 more rows" if empty). ``note`` stands below the table in every medium. The first ``heads`` columns
    name a row: a terminal too narrow for all columns shows the others in parts, each beside these. On the page a click
    on a row shows the op that its first column of unit ``op`` numbers in the table called ``leads_to``.

    With ``depth`` it is a tree: rows are nested, in depth-first order, and text shows those down to ``to_depth``. The
    page also draws it as nested bars: their lengths are the columns ``areas``, of which one is shown at a time, their
    colours the texts of the column ``kind``.

    A row under the pointer on the page highlights its partners: the rows of other tables that have its value in the
    column called ``linked``, which is theirs too. A table ``beside`` stands right of the one before it.
    """

    columns: tuple[Column, ...]
    top: int | None = None
    rest: str = ""
    note: str = ""
    at_width: int = 0
    heads: int = 0
    leads_to: str = ""
    depth: Ints | None = None
    to_depth: int = 3
    areas: Strings = ()
    kind: str = ""
    linked: str = ""
    beside: bool = False

    def __post_init__(self) -> None:
        if len({len(column.values) for column in self.columns}) > 1:
            raise ValueError(f"columns of table {self.key!r} differ in length")
        if len({column.key for column in self.columns}) < len(self.columns):
            raise ValueError(f"two columns of table {self.key!r} have one key")
        if self.depth is not None and len(self.depth) != len(self):
            raise ValueError(f"tree {self.key!r} needs a depth for each row")

    def __len__(self) -> int:
        return len(self.columns[0].values) if self.columns else 0

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that are not for data alone."""
        return tuple(column for column in self.columns if not column.data)

    def __getitem__(self, key: str) -> tuple[Value, ...]:
        """Return the values of a column. Raises KeyError, which names those that there are."""
        return _named(key, {column.key: column.values for column in self.columns}, f"column of table {self.key!r}")

    def head(self, most: int | None) -> tuple[Sequence[int], str]:
        """Return the first ``most`` rows that text shows (None: all), and the words for the others."""
        every = range(len(self))
        rows = every if self.depth is None else [i for i in every if self.depth[i] <= self.to_depth]
        count = len(rows) - len(rows[:most])
        return rows[:most], (self.rest or f"and {count:,} more row{'s' * (count > 1)}") if count else ""


class Note(Block, frozen=True, kw_only=True):
    """A sentence or more. ``failure`` is a verdict that says no."""

    text: str
    kind: NoteKind = "remark"


AnyBlock: TypeAlias = Facts | Table | Curve | Scatter | Spans | Note


class Section(Data, frozen=True):
    """Blocks of one capability. Keys of its blocks are unique, and so are those of its facts.

    Markdown closes a section that is ``folded`` behind its title.
    """

    key: str
    title: str
    about: str = ""
    blocks: tuple[AnyBlock, ...] = ()
    folded: bool = False

    def __post_init__(self) -> None:
        facts = [fact.key for block in self.blocks if isinstance(block, Facts) for fact in block.rows]
        keys = [block.key for block in self.blocks if block.key]
        for names in (facts, keys):
            if double := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"section {self.key!r} has two of {', '.join(double)}")
        if any(not block.key and not isinstance(block, Facts | Note) for block in self.blocks):
            raise ValueError(f"section {self.key!r} has a block without a key")

    def document(self, title: str, *subtitle: str, settings: Mapping[str, Value] | None = None) -> Document:
        """Make a Document of this section alone."""
        return Document(title=title, subtitle=subtitle, settings=dict(settings or {}), sections=(self,))

    def __getitem__(self, key: str) -> AnyBlock:
        """Return the block called ``key``. Raises KeyError, which names those that there are, as do the others."""
        return _named(key, {block.key: block for block in self.blocks if block.key}, f"block of section {self.key!r}")

    def table(self, key: str) -> Table:
        """Return the Table called ``key``."""
        tables = {block.key: block for block in self.blocks if isinstance(block, Table)}
        return _named(key, tables, f"table of section {self.key!r}")

    def fact(self, key: str) -> Value:
        """Return the value of the fact called ``key``."""
        rows = (fact for block in self.blocks if isinstance(block, Facts) for fact in block.rows)
        return _named(key, {fact.key: fact.value for fact in rows}, f"fact of section {self.key!r}")


class Document(Data, frozen=True, kw_only=True):
    """Sections under one title. ``subtitle`` are lines below it; ``settings`` name what the step was made with.

    A terminal and a cell of a notebook show ``answer``, where there is one, in place of the sections; every other
    medium has the sections, and ``full()`` shows them everywhere.
    ``schema_version`` changes when a reader of the old form could misread the new one.
    """

    format: Literal["tensortide.document"] = "tensortide.document"
    schema_version: Literal[1] = 1
    title: str
    subtitle: Strings = ()
    settings: dict[str, Value] = msgspec.field(default_factory=dict)
    sections: tuple[Section, ...]
    answer: Section | None = None

    def __post_init__(self) -> None:
        if len({section.key for section in self.sections}) < len(self.sections):
            raise ValueError("two sections of a document have one key")

    def __getitem__(self, key: str) -> Section:
        """Return the section called ``key``. Raises KeyError, which names those that there are."""
        return _named(key, {section.key: section for section in self.sections}, "section")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from tensortide.reports.render.terminal import parts

        yield from parts(self, options)

    def __str__(self) -> str:
        from tensortide.reports.render.terminal import render_text

        return render_text(self)

    def _repr_html_(self) -> str:
        from tensortide.reports.render.cell import render_cell

        return render_cell(self)

    def full(self) -> Document:
        """Return the Document that shows all its sections, also where it would show its answer."""
        return msgspec.structs.replace(self, answer=None)

    def page(self) -> Page:
        """Return the page: a notebook shows it in a frame, and ``.save("step.html")`` writes it."""
        from tensortide.reports.render.html import Page

        return Page(self)

    @property
    def shown(self) -> tuple[Section, ...]:
        """The sections that a terminal and a cell show."""
        return self.sections if self.answer is None else (self.answer,)

    @property
    def verdicts(self) -> tuple[Note, ...]:
        """The notes in these that say yes or no."""
        notes = (block for section in self.shown for block in section.blocks if isinstance(block, Note))
        return tuple(note for note in notes if note.kind in ("verdict", "failure"))

    def summary(self) -> str:
        """Return the title, then the verdict or else the first facts, on one line."""
        from tensortide.reports.render.values import fact_text

        blocks = [block for section in self.sections for block in section.blocks]
        facts = [fact for block in blocks if isinstance(block, Facts) for fact in block.shown if not fact.level]
        verdicts = [note.text for note in self.verdicts]
        chosen = verdicts[:1] or [f"{fact.label} {fact_text(fact)}" for fact in facts[:3]]
        return shorten(": ".join(part for part in (self.title, ", ".join(chosen)) if part), 160, placeholder="...")

    def __repr__(self) -> str:
        return f"<Document {self.summary()}>"


def _named(key: str, known: Mapping[str, T], what: str) -> T:
    """The one called ``key``; else say which it may be, or which there are."""
    if key not in known:
        raise KeyError(f"there is no {what} called {key!r}{near(str(key), known)}")
    return known[key]
