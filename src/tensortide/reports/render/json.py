"""A Document as JSON that is easy to ask: ``.sections.memory.facts.peak_bytes``; see ``docs/schemas.md``."""

from __future__ import annotations

import json
import operator
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from tensortide.reports.base import Number
from tensortide.reports.blocks import Block, Document, Facts, Note, Section, Table
from tensortide.reports.pictures import Curve, Scatter, Series, Spans
from tensortide.reports.render import json_objects
from tensortide.reports.render.csv import columns_of
from tensortide.reports.render.values import data_key


def render_json(document: Document) -> str:
    """Write the values of ``document`` under their names, indented."""
    sections = {section.key: _section(section) for section in document.sections}
    head = (document.format, document.schema_version, document.title, document.subtitle, document.settings)
    whole = json_objects.Document(*head, sections)
    return encode(whole, indent=1).decode() + "\n"


def encode(value: object, *, indent: int | None = None) -> bytes:
    """Encode ``value``, structs included, as JSON: compact, or indented by ``indent``."""
    try:
        data = msgspec.json.encode(value, enc_hook=_number)
        return data if indent is None else msgspec.json.format(data, indent=indent)
    except UnicodeEncodeError:  # a name with half a character, which only escapes can write
        separators = (",", ":") if indent is None else None
        return json.dumps(builtins(value), separators=separators, indent=indent).encode()


def builtins(value: object) -> Any:
    """Return ``value`` as dicts, lists and plain values; a Size or Quotient becomes the number that it is."""
    return msgspec.to_builtins(value, enc_hook=_number)


def _number(value: Any) -> int | float:
    """Return the plain number of one that carries an expression."""
    return float(value) if isinstance(value, float) else operator.index(value)


def _section(section: Section) -> json_objects.Section:
    kinds: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for block in section.blocks:
        if not isinstance(block, Note):
            name, values = _block(block)
            kinds[name] |= values
    notes = tuple(json_objects.Note(one.kind, one.text) for one in section.blocks if isinstance(one, Note))
    return json_objects.Section(section.title, section.about, notes, **kinds)


def _block(block: Block) -> tuple[str, dict[str, Any]]:
    """Return the kind of ``block`` in the plural, and its values by name."""
    match block:
        case Facts():
            return "facts", {fact.key: fact.value for fact in block.rows}
        case Table():
            return "tables", {block.key: columns_of(block)}
        case Curve():
            return "curves", {block.key: _curve(block)}
        case Scatter():
            x, y = (json_objects.Axis(axis.label, axis.unit) for axis in (block.x, block.y))
            drawn = {name: getattr(block, name) for name in ("points", "across", "down", "ranges")}
            return "scatters", {block.key: json_objects.Scatter(x, y, **drawn)}
        case Spans():
            return "spans", {block.key: json_objects.Spans(block.x_unit, block.lanes, block.arrows)}
    raise TypeError(f"no block: {block!r}")


def _curve(block: Curve) -> json_objects.Curve:
    def values(series: Sequence[Series]) -> dict[str, tuple[Number, ...]]:
        return {data_key(one.key, block.unit): one.values for one in series}

    drawn: dict[str, Any] = {name: getattr(block, name) for name in ("ops", "marks", "limits", "shades", "bands")}
    drawn[f"x_{block.x_unit}"] = block.x
    return json_objects.Curve(stack=values(block.stack), lines=values(block.lines), **drawn)
