"""Section ``kinds``: the kinds of files that are read, and the options of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, get_args, get_type_hints

from tensortide.reports.blocks import Column, Document, Section, Table

if TYPE_CHECKING:
    from tensortide.importers.table import Importer

__all__ = ["document"]


def document(importers: Iterable[Importer]) -> Document:
    """List what ``importers`` read, and the options that they add to every verb."""
    options = {importer.kind: dict(_options(importer)) for importer in importers}
    helps = {name: text for added in options.values() for name, text in added.items()}
    kinds = Table(
        key="kinds",
        columns=(
            Column("kind", "Kind, recognized by its content", "text", tuple(options), fold=True),
            Column("options", "Options", "text", tuple(map(" ".join, options.values())), fold=True),
        ),
    )
    columns = (
        Column("option", "Option", "text", tuple(helps)),
        Column("help", "", "text", tuple(helps.values()), fold=True),
    )
    blocks = (kinds, Table(key="options", title="Options of these kinds", columns=columns))
    return Section("kinds", "Files", blocks=blocks).document("Files that are read")


def _options(importer: Importer) -> Iterator[tuple[str, str]]:
    hints = get_type_hints(importer.options, include_extras=True)
    for field in dataclasses.fields(importer.options):
        if (parts := get_args(hints[field.name])) and isinstance(parts[-1], str):
            yield f"--{field.name}", parts[-1]
    if importer.tables:
        yield "--table", f"Of count: another tool's table of costs ({', '.join(importer.tables)})."
