"""Results of every verb: on standard output as text or JSON, and in files of other formats."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.source import OutputOptions, console, is_stdout, option
from tensortide.errors import OutputError
from tensortide.write import check_writable, write_file, write_files

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document

__all__ = ["Files", "show"]


@Parameter(name="*")
@dataclass(frozen=True)
class Files:
    """Files to which a verb writes the Document that it shows, one of each format."""

    html: Annotated[Path | None, option("--html", "Write one offline HTML page; its folder is made if missing.")] = None
    figure: Annotated[
        Path | None,
        option(
            "--figure", "Draw the result (.png, .svg, .pdf); or, to a name without a suffix, a folder of each figure."
        ),
    ] = None
    csv: Annotated[
        Path | None, option("--csv", "Write the main table; or, to a name without a suffix, a folder of all tables.")
    ] = None
    markdown: Annotated[Path | None, option("--markdown", "Write a summary to paste into a pull request.")] = None
    trace: Annotated[Path | None, option("--trace", "Write a trace for Perfetto or chrome://tracing.")] = None

    def check(self) -> None:
        """Raise OutputError if one of them cannot be written: before work that would be lost."""
        for path in filter(None, (self.html, self.markdown, self.trace)):
            check_writable(path, folders=path == self.html)
        if self.figure is not None:
            from tensortide.reports.render.figure import check_figure

            check_figure(Path(f"{self.figure}.png") if _is_folder(self.figure) else self.figure)
        if self.csv is not None and not _is_folder(self.csv):
            check_writable(self.csv)
        elif self.csv is not None and not self.csv.parent.is_dir():
            raise OutputError(f"cannot write to {self.csv}: it is in {self.csv.parent}, which does not exist.")

    def write(self, document: Document, *, table: str, keys: Sequence[str] = ()) -> list[Path]:
        """Write ``document``, as CSV its ``table``, as figure the blocks called ``keys`` (default: all)."""
        if self.html is not None:
            from tensortide.reports.render.html import render_html

            write_file(self.html, render_html(document), folders=True)
        if self.figure is not None:
            from tensortide.reports.render.figure import render_each, render_figure

            (render_each if _is_folder(self.figure) else render_figure)(document, self.figure, keys)
        if self.csv is not None:
            _write_csv(document, self.csv, table)
        if self.markdown is not None:
            from tensortide.reports.render.markdown import render_markdown

            write_file(self.markdown, render_markdown(document))
        if self.trace is not None:
            from tensortide.reports.render.trace import render_trace

            write_file(self.trace, render_trace(document))
        return list(filter(None, (self.html, self.figure, self.csv, self.markdown, self.trace)))


def _is_folder(path: Path) -> bool:
    return path.is_dir() or not (path.suffix or path.exists())


def _write_csv(document: Document, path: Path, table: str) -> None:
    from tensortide.reports.render.csv import render_csv, tables

    if not _is_folder(path):
        write_file(path, render_csv(document, table))
        return
    names = {full: full.partition(".")[2] for full in tables(document)}
    short = {full: key if [*names.values()].count(key) == 1 else full for full, key in names.items()}
    write_files({path / f"{name}.csv": render_csv(document, full) for full, name in short.items()})


def show(document: Document, out: OutputOptions, *, wrote: Sequence[Path] = ()) -> None:
    """Print ``document`` as ``out`` asks, then name the files that the verb ``wrote``; nothing if one is stdout."""
    if any(map(is_stdout, wrote)):
        return
    if out.json:
        from tensortide.reports.render.json import render_json

        sys.stdout.write(render_json(document))
        return
    from tensortide.reports.render.terminal import render_terminal

    screen = console()
    render_terminal(document, screen)
    if not out.quiet:
        for path in wrote:
            screen.print(f"wrote {path}", soft_wrap=True)
