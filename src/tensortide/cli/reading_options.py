"""Options of all importers as options of the command line."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from cyclopts import Parameter

from tensortide.errors import WorkloadError
from tensortide.importers.table import importers


@dataclass(frozen=True)
class ReadingOptions:
    """Options of all importers. The help of a verb does not show them; ``capture --kinds`` lists them."""

    def given(self) -> dict[str, object]:
        """Return those that are not at their default."""
        fields = dataclasses.fields(self)
        return {field.name: value for field in fields if (value := getattr(self, field.name)) != field.default}

    def refuse(self, target: str) -> None:
        """Raise WorkloadError if one is given for a ``target`` that is not a file; the text says what it is."""
        for name in self.given():
            kinds = " or ".join(importer.kind for importer in importers() if importer.has(name))
            raise WorkloadError(f"{target}: --{name} goes with {kinds}")


SHARED = ("step",)
"""Options of importers that also apply to other targets, and are fields of CaptureOptions."""


def _fields() -> dict[str, tuple[str, Any, Any]]:
    found: dict[str, tuple[str, Any, Any]] = {}
    for importer in importers():
        hints = get_type_hints(importer.options, include_extras=True)
        for field in dataclasses.fields(importer.options):
            if field.name in SHARED:
                continue
            if (parts := get_args(hints[field.name])) and isinstance(parts[-1], str):
                hidden = Parameter(show=False, help=parts[-1], negative=())
                found.setdefault(field.name, (field.name, Annotated[parts[0], hidden], field.default))
    return found


if not TYPE_CHECKING:
    made = dataclasses.make_dataclass("ReadingOptions", _fields().values(), bases=(ReadingOptions,), frozen=True)
    made.__module__ = __name__  # else it passes for a built-in type
    ReadingOptions = made
