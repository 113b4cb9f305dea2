"""A Document as one HTML file that needs no network: page, style, scripts and data joined."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import os
import re
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from tensortide.graph.roles import looks
from tensortide.reports.blocks import Document
from tensortide.reports.render import series
from tensortide.reports.render.json import builtins, encode
from tensortide.write import write_file

SCRIPTS = ("dom", "format", "units", "scale", "vtable", "table", "icicle", "curve", "lanes", "plots", "blocks")
"""Scripts of the page in the order they are joined. ``theme`` runs before them, so that no wrong colour flashes."""
PLAIN_BYTES = 1 << 16
"""Data up to this size stays readable in the page; more is compressed."""
REPEATED = 64
"""Lists of so many values or more are written shorter."""


class Page:
    """A Document as a page: a notebook shows it in a frame."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, in folders that are made where they are missing. Raises OutputError."""
        return write_file(path, render_html(self.document), folders=True)

    def _repr_html_(self) -> str:
        return render_frame(self.document)

    def __repr__(self) -> str:
        return f"<Page {self.document.summary()}>"


def render_html(document: Document, *, compress: bool | None = None) -> str:
    """Write ``document`` as a self-contained page: the template with its style, scripts and data, and allowed nothing
    else. ``compress`` is for browsers and tools: None chooses by size."""
    from tensortide import __version__

    data = encode(_packed(builtins(document.full())))
    if compress is None:
        compress = len(data) > PLAIN_BYTES
    theme, style = _read("theme.js"), _colors() + _read("page.css") + _read("print.css")
    script = "\n".join(_read(f"{name}.js") for name in SCRIPTS).replace("{{series}}", _series())
    parts = {
        "csp": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(theme)} {_hash(script)}",
        "title": html.escape(f"{document.title or 'Step'} - tensortide"),
        "version": html.escape(__version__),
        "style": style,
        "theme": theme,
        "script": script,
        "encoding": "gzip" if compress else "plain",
        "data": base64.b64encode(gzip.compress(data, 9, mtime=0)).decode() if compress else _inert(data),
    }
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], _read("blocks.html"))


def render_frame(document: Document, *, height: int = 900) -> str:
    """Put the page into a frame of ``height`` pixels, for a notebook."""
    page = html.escape(render_html(document))
    return f'<iframe srcdoc="{page}" style="width: 100%; height: {height}px; border: 0" title="tensortide"></iframe>'


def _packed(value: Any) -> Any:
    """Write long lists of plain values shorter: texts and numbers that repeat as ``{"of": distinct ones, "at":
    positions}``, whole numbers as ``{"by": differences}``. The page undoes it."""
    if isinstance(value, dict):
        return {key: _packed(one) for key, one in value.items()}
    if not isinstance(value, list | tuple):
        return value
    kinds = set(map(type, value))
    if len(value) < REPEATED or kinds & {list, tuple, dict}:
        return [_packed(one) for one in value]
    if kinds == {int}:
        return {"by": [value[0], *(b - a for a, b in pairwise(value))]}
    keys = value if kinds == {str} else [(type(one), one) for one in value]
    place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    if 2 * len(place) > len(value):
        return value
    of = list(place) if kinds == {str} else [one for _, one in place]
    return {"of": of, "at": [place[key] for key in keys]}


def _colors() -> str:
    """Give each role its colour in both themes, under its own name, and each series under its number."""
    named = [*looks().items(), *((f"p{number}", look) for number, look in enumerate(series.LOOKS))]
    light, dark = (
        "".join(f"--{name}: {getattr(look, theme)}; " for name, look in named) for theme in ("light", "dark")
    )
    return f':root {{ {light}}}\n:root[data-theme="dark"] {{ {dark}}}\n'


def _series() -> str:
    """Write how the page draws series: as figures do."""
    found = [
        {"dashes": look.dashes, "marker": look.marker, "width": series.width(n)} for n, look in enumerate(series.LOOKS)
    ]
    return json.dumps({"looks": found, "many": series.MANY, "ends": series.ENDS, "reasons": series.REASONS})


def _read(name: str) -> str:
    return resources.files("tensortide.reports").joinpath("page", name).read_text("utf-8")


def _hash(text: str) -> str:
    """Name ``text`` as a content security policy does: only what is ours may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _inert(data: bytes) -> str:
    """Write JSON in which no string can end the element it stands in."""
    return data.decode().replace("<", "\\u003c").replace(">", "\\u003e")
