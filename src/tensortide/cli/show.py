"""Results of every verb: on standard output as text or JSON, and in files of other formats."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypedDict, get_args, get_type_hints

import msgspec

from tensortide.cli.console import console, is_stdout, is_terminal, reader_may_leave
from tensortide.cli.messages import cleaned, one_line
from tensortide.errors import OutputError
from tensortide.request import Opt, Option, Request, exclusive, options
from tensortide.write import check_writable, write_file, write_files

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document


class Format(NamedTuple):
    """A format of output: ``check`` refuses a path before any work is done; ``write`` takes the Document, the path,
    the main table and the keys of the blocks to draw."""

    check: Callable[[Path], object]
    write: Callable[[Document, Path, str, Sequence[str]], object]


def _rendered(name: str, *, folders: bool = False) -> Format:
    """The format that ``reports/render/<name>.py`` renders as one file; with ``folders``, those missing are made."""

    def write(document: Document, path: Path, *_: object) -> None:
        render = getattr(import_module(f"tensortide.reports.render.{name}"), f"render_{name}")
        write_file(path, render(document), folders=folders)

    return Format(partial(check_writable, folders=folders), write)


def _traced(document: Document, path: Path, *_: object) -> None:
    from tensortide.reports.pictures import Curve, Spans
    from tensortide.reports.render.trace import render_trace

    if not any(isinstance(block, Spans | Curve) for section in document.sections for block in section.blocks):
        raise OutputError("there is nothing to trace: the result has no times of ops.")
    write_file(path, render_trace(document))


def _is_folder(path: Path) -> bool:
    return path.is_dir() or not (path.suffix or path.exists())


def _check_figure(path: Path) -> None:
    from tensortide.reports.render.figure import check_figure

    if _is_folder(path):
        check_figure(path / "figure.png", folders=True)
    else:
        check_figure(path)


def _draw(document: Document, path: Path, _: str, keys: Sequence[str]) -> None:
    from tensortide.reports.render.figure import render_each, render_figure

    (render_each if _is_folder(path) else render_figure)(document, path, keys)


def _check_csv(path: Path) -> None:
    if not _is_folder(path):
        check_writable(path)
    elif not path.parent.is_dir():
        raise OutputError(f"cannot write to {path}: it is in {path.parent}, which does not exist.")
    else:
        check_writable(path / "table.csv", folders=True)


def _write_csv(document: Document, path: Path, table: str, _: object) -> None:
    from tensortide.reports.render.csv import render_csv, tables

    if not _is_folder(path):
        write_file(path, render_csv(document, table))
        return
    names = {full: full.partition(".")[2] for full in tables(document)}
    short = {full: key if [*names.values()].count(key) == 1 else full for full, key in names.items()}
    write_files({path / f"{name}.csv": render_csv(document, full) for full, name in short.items()})


_CSV = Format(_check_csv, _write_csv)


@dataclass(frozen=True, kw_only=True)
class OutputRequest(Request):
    """Printing of a result, and of the progress to it."""

    GROUP = "Output"

    json: Annotated[bool, Opt("Print JSON instead of text.", common=True)] = False
    quiet: Annotated[
        bool,
        Opt(
            "Print the answer alone: no progress, no names of written files, nothing that a script prints.",
            "--quiet -q",
        ),
    ] = False
    verbose: Annotated[
        bool,
        Opt("Print on standard error all that is tried, and what is assumed or skipped, and why.", "--verbose"),
    ] = False

    RULES = (exclusive("quiet", "verbose"),)


@dataclass(frozen=True, kw_only=True)
class Files(Request):
    """Files to which a verb writes the Document that it shows; a format is one field.

    They are written in this order: figures first, as there may be nothing to draw.
    """

    GROUP = "Output"

    figure: Annotated[
        Path | None,
        Opt("Draw the result (.png, .svg, .pdf); to a name without a suffix, a folder of each figure.", writes=True),
        Format(_check_figure, _draw),
    ] = None
    html: Annotated[
        Path | None,
        Opt(
            "Write one HTML page that works offline, such as step.html; its folder is made if missing.",
            writes=True,
            common=True,
        ),
        _rendered("html", folders=True),
    ] = None
    csv: Annotated[
        tuple[str, ...],
        Opt(
            "Write the main table as CSV; TABLE=FILE another; to a name without a suffix, a folder of all tables.",
            writes=True,
            value="FILE",
        ),
        _CSV,
    ] = ()
    markdown: Annotated[
        Path | None, Opt("Write a summary to paste into a pull request.", writes=True), _rendered("markdown")
    ] = None
    trace: Annotated[
        Path | None,
        Opt("Write a trace for Perfetto or chrome://tracing.", writes=True),
        Format(check_writable, _traced),
    ] = None

    def _asked(self) -> Iterator[tuple[Option, Format, str, Path]]:
        """Yield the option, the format, the table that is named ("": the main one) and the path of each file."""
        hints = get_type_hints(type(self), include_extras=True)
        for option in options(type(self)):
            format_ = next(one for one in get_args(hints[option.field.name]) if isinstance(one, Format))
            value = self.get(option.field.name)
            if isinstance(value, Path):
                yield option, format_, "", value
            elif value:
                for text in value:
                    table, _, path = text.partition("=") if re.match(r"[\w.]+=", text) else ("", "", text)
                    yield option, format_, table, Path(path)

    def named_files(self) -> Iterator[tuple[Option, Path]]:
        """The files that options name."""
        for option, _, _, path in self._asked():
            yield option, path

    def check_files(self) -> None:
        """Raise OutputError if one of them cannot be written; call it before any work is done."""
        for option, format_, _, path in self._asked():
            if not path.name:
                raise OutputError(f"{option.name} needs the name of a file.")
            format_.check(path)

    def write(self, document: Document, *, table: str, keys: Sequence[str] = ()) -> list[Path]:
        """Write ``document``, as CSV its ``table``, as figure the blocks called ``keys`` (default: all).

        Raises OutputError before anything is written if there is no table of a name.
        """
        from tensortide.reports.render.csv import table_named

        for _, format_, named, path in self._asked():
            if format_ is _CSV and not _is_folder(path):
                table_named(document, named or table)
        for _, format_, named, path in self._asked():
            format_.write(document, path, named or table, keys)
        return [path for _, path in self.named_files()]


class Facts(TypedDict):
    """Facts of what a verb wrote, under names of their own beside these."""

    format: Literal["tensortide.facts"]
    schema_version: Literal[1]


def tell(data: Mapping[str, object], lines: Iterable[str], out: OutputRequest) -> None:
    """Print ``data`` (structs, dataclasses, plain data) as JSON if ``out`` asks, else ``lines`` unless it is quiet."""
    with reader_may_leave():
        if out.json:
            facts = {**Facts(format="tensortide.facts", schema_version=1), **data}
            sys.stdout.write(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode() + "\n")
        elif not out.quiet:
            for line in lines:
                console().print(one_line(line), markup=False, soft_wrap=True)


def show(
    document: Document,
    out: OutputRequest,
    *,
    wrote: Sequence[Path] = (),
    text: str | None = None,
    then: Iterable[str] = (),
    full: bool = False,
) -> None:
    """Print ``document`` as ``out`` asks, then name the files that the verb ``wrote`` and the commands to run ``then``,
    one a line; nothing if one of them is stdout.

    ``text`` is printed in place of a document that is data only; ``full``: every section, also where there is an
    answer. What says yes or no is printed again, last, where it may have left the screen of a terminal.
    """
    if any(map(is_stdout, wrote)):
        return
    with reader_may_leave():
        if out.json:
            from tensortide.reports.render.json import render_json

            sys.stdout.write(render_json(document))
            return
        from tensortide.reports.render.terminal import render_terminal, render_verdicts

        screen, lines = console(), 0
        if text is None:
            lines = render_terminal(document.full() if full else document, screen)
        else:
            screen.print(cleaned(text), markup=False, soft_wrap=True)
        after = [*(f"wrote {path}" for path in wrote), *(f"next: {command}" for command in then if command)]
        tell({}, after, out)
        if document.verdicts and is_terminal() and lines + len(after) * (not out.quiet) >= screen.height:
            render_verdicts(document, screen)
