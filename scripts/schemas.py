"""JSON Schemas of what is printed as JSON, and of the records of its tables: docs/schemas; its keys: docs/keys.md.

python -m scripts.schemas    # write them anew
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

import tensortide
from scripts.keys import page
from tensortide.cli.messages import Error
from tensortide.cli.show import Facts
from tensortide.reports.of_records import Field, fields, value_of
from tensortide.reports.render.json_objects import Document
from tensortide.shown import UnitName
from tensortide.write import write_file

FOLDER = Path(__file__).resolve().parent.parent / "docs/schemas"
KEYS = FOLDER.parent / "keys.md"
_PRINTED = ("Document", "Error", "Facts")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, str]:
    """The text of every schema, by the name of its file."""
    made = {"document": _document(), "records": _records()}
    return {
        f"{name}.schema.json": msgspec.json.format(msgspec.json.encode(schema), indent=1).decode() + "\n"
        for name, schema in made.items()
    }


def _document() -> dict[str, Any]:
    """Describe what a verb prints: a Document, an Error, or Facts of files that it wrote, as its ``format`` says."""
    _, parts = msgspec.json.schema_components((Document, Error, Facts), ref_template="#/$defs/{name}")
    for part in parts.values():
        part["description"] = _about(part["description"])
    formats = {part["properties"]["format"]["enum"][0]: name for name, part in parts.items() if name in _PRINTED}
    cases = [
        {"if": {"properties": {"format": {"const": value}}}, "then": {"$ref": f"#/$defs/{name}"}}
        for value, name in formats.items()
    ]
    head = {"type": "object", "required": ["format"], "properties": {"format": {"enum": [*formats]}}}
    return _headed(
        "document", "What --json prints", **head, allOf=cases, **{"$defs": _united(dict(sorted(parts.items())))}
    )


def _headed(name: str, title: str, **content: Any) -> dict[str, Any]:
    return {"$schema": _DIALECT, "$id": f"urn:tensortide:{name}:1", "title": title, **content}


def _united(part: Any) -> Any:
    """``part`` with one list of types in place of alternatives that are types alone: errors then name them."""
    if isinstance(part, list):
        return [_united(one) for one in part]
    if not isinstance(part, dict):
        return part
    among = part.get("anyOf", [{}])
    if all(one.keys() == {"type"} for one in among):
        return {"type": [one["type"] for one in among]}
    return {name: _united(one) for name, one in part.items()}


def _records() -> dict[str, Any]:
    """Every record that says how it is shown, by its name in Python: a row of a table, or facts of a section."""
    about = "Records whose fields are columns of tables and facts of sections, by their class."
    found = {f"{kind.__module__}.{kind.__qualname__}": _record(kind) for kind in records()}
    return _headed("records", "Records of tables and facts", description=about, **{"$defs": found})


def records() -> Iterator[type]:
    """The classes of the package with a field that has a Show, by module and in the order of its text."""
    sources = Path(tensortide.__file__).parent
    for path in sorted(sources.rglob("*.py")):
        if "Show(" in path.read_text("utf-8"):
            name = ".".join(path.relative_to(sources.parent).with_suffix("").parts)
            for kind in vars(importlib.import_module(name)).values():
                if inspect.isclass(kind) and kind.__module__ == name and _is_shown(kind):
                    yield kind


def _is_shown(kind: type) -> bool:
    return not issubclass(kind, enum.Enum) and any(field.declared == "shown" for field in fields(kind).values())


def _record(kind: type) -> dict[str, Any]:
    properties = {name: _field(one) for name, one in fields(kind, named=True).items()}
    return {"description": _about(kind.__doc__ or ""), "type": "object", "properties": properties}


def _about(text: str) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(inspect.cleandoc(text).partition("\n\n")[0].replace("``", "`").split())


def _field(field: Field) -> dict[str, Any]:
    title = {"title": field.show.title} if field.show.title else {}
    return {**_values(field), **title, "unit": field.unit}


def _values(field: Field) -> dict[str, Any]:
    """The type of a field's values, or all of them where they are words."""
    words = [_words(kind) for kind in field.kinds]
    if words and all(words):
        return {"enum": [*chain(*words), *[None] * field.optional]}
    every = sorted({_type(kind, field.unit) for kind in field.kinds}) + ["null"] * field.optional
    return {"type": every if len(every) > 1 else every[0]} if every else {}


def _type(kind: Any, unit: UnitName) -> str:
    if kind is bool:
        return "boolean"
    if kind is tuple and unit == "count":
        return "integer"
    if not inspect.isclass(kind) or not issubclass(kind, int | float | Fraction):
        return "string"
    return "integer" if issubclass(kind, int) or isinstance(value_of(0.5, (), unit), int) else "number"


def _words(kind: Any) -> list[Any]:
    if get_origin(kind) is Literal:
        return [*get_args(kind)]
    return [value_of(one, (), "text") for one in kind] if isinstance(kind, type) and issubclass(kind, enum.Enum) else []


def main() -> None:
    """Write every schema, and the page of keys."""
    for name, text in schemas().items():
        write_file(FOLDER / name, text)
    write_file(KEYS, page())


if __name__ == "__main__":
    main()
