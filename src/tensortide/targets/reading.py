"""Options of all importers, as a request."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from tensortide.importers.table import importers
from tensortide.request import Opt, Request


@dataclass(frozen=True, kw_only=True)
class ReadingRequest(Request):
    """Options of all importers. The help of a verb does not show them; ``capture --kinds`` lists them."""

    def values(self) -> dict[str, object]:
        """The options that are not at their default."""
        return {one.field.name: getattr(self, one.field.name) for one in self.given()}


SHARED = ("step",)
"""Options of importers that also apply to other targets, and are fields of CaptureRequest."""


def _fields() -> dict[str, tuple[str, Any, Any]]:
    found: dict[str, tuple[str, Any, Any]] = {}
    for importer in importers():
        hints = get_type_hints(importer.options, include_extras=True)
        for field in dataclasses.fields(importer.options):
            parts = get_args(hints[field.name])
            if field.name not in SHARED and parts and isinstance(parts[-1], str):
                kinds = tuple(each.kind for each in importers() if each.has(field.name))
                hidden = Opt(parts[-1], hidden=True, of=kinds)
                found.setdefault(field.name, (field.name, Annotated[parts[0], hidden], field.default))
    return found


if not TYPE_CHECKING:
    made = dataclasses.make_dataclass(
        "ReadingRequest", _fields().values(), bases=(ReadingRequest,), frozen=True, kw_only=True
    )
    made.__module__ = __name__  # else it passes for a built-in type
    ReadingRequest = made
