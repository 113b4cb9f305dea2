"""A Document as JSON that is easy to ask: ``.sections.memory.facts.peak_bytes``; see ``docs/schemas.md``."""

from __future__ import annotations

import json
import operator
from typing import Any

import msgspec

from tensortide.reports.blocks import Block, Document, Facts, Note, Section, Table
from tensortide.reports.pictures import Curve, Scatter, Spans
from tensortide.reports.render.csv import columns_of
from tensortide.reports.render.values import data_key


def render_json(document: Document) -> str:
    """Write the values of ``document`` under their names, indented."""
    whole = {
        "format": document.format,
        "title": document.title,
        "subtitle": document.subtitle,
        "settings": document.settings,
        "sections": {section.key: _section(section) for section in document.sections},
    }
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


def _section(section: Section) -> dict[str, Any]:
    made: dict[str, Any] = {"title": section.title, "about": section.about}
    for block in section.blocks:
        name, value = _block(block)
        if isinstance(block, Note):
            made.setdefault(name, []).append(value)
        else:
            made.setdefault(name, {}).update(value if isinstance(block, Facts) else {block.key: value})
    return made


def _block(block: Block) -> tuple[str, Any]:
    """Return the kind of ``block`` in the plural, and its values."""
    match block:
        case Facts():
            return "facts", {data_key(fact.key, fact.unit): fact.value for fact in block.rows}
        case Table():
            return "tables", columns_of(block)
        case Curve():
            return "curves", {
                f"x_{block.x_unit}": block.x,
                **({"ops": block.ops} if block.ops else {}),
                "stack": {data_key(one.key, block.unit): one.values for one in block.stack},
                "lines": {data_key(one.key, block.unit): one.values for one in block.lines},
                **{name: getattr(block, name) for name in ("marks", "limits", "shades", "bands")},
            }
        case Scatter():
            axes = {name: {"label": one.label, "unit": one.unit} for name, one in (("x", block.x), ("y", block.y))}
            return "scatters", axes | {name: getattr(block, name) for name in ("points", "across", "down", "ranges")}
        case Spans():
            arrows = {"arrows": block.arrows} if block.arrows else {}
            return "spans", {"unit": block.x_unit, "lanes": block.lanes, **arrows}
        case Note():
            return "notes", {"kind": block.kind, "text": block.text}
    raise TypeError(f"no block: {block!r}")
