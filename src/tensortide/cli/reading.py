"""Options of importers on the command line: every verb takes them, ``tensortide capture --help`` shows them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from cyclopts import Group, Parameter

from tensortide.errors import WorkloadError
from tensortide.importers.table import importers

__all__ = ["KINDS", "ReadingOptions"]

KINDS = "; ".join(importer.kind for importer in importers())
"""The files that are read, for help."""


@dataclass(frozen=True)
class ReadingOptions:
    """Options of reading a file: those of all importers, each in a group of its own."""

    def given(self) -> dict[str, object]:
        """Return those that are not at their default."""
        fields = dataclasses.fields(self)
        return {field.name: value for field in fields if (value := getattr(self, field.name)) != field.default}

    def refuse(self, target: str) -> None:
        """Raise WorkloadError if one is given: ``target`` is no file."""
        for name in self.given():
            kinds = " or ".join(importer.kind for importer in importers() if importer.has(name))
            raise WorkloadError(f"{target} is a workload: --{name} goes with {kinds}")


def _fields() -> dict[str, tuple[str, Any, Any]]:
    found: dict[str, tuple[str, Any, Any]] = {}
    for importer in importers():
        hints = get_type_hints(importer.options, include_extras=True)
        group = Group(importer.kind[0].upper() + importer.kind[1:])
        for field in dataclasses.fields(importer.options):
            if (parts := get_args(hints[field.name])) and isinstance(parts[-1], str):
                shown = Parameter(group=group, help=parts[-1], negative=(), show_default=False)
                found.setdefault(field.name, (field.name, Annotated[parts[0], shown], field.default))
    return found


if not TYPE_CHECKING:
    made = dataclasses.make_dataclass("ReadingOptions", _fields().values(), bases=(ReadingOptions,), frozen=True)
    made.__module__ = __name__  # else it passes for a built-in type
    ReadingOptions = made
