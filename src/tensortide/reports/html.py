"""The report as one HTML file that needs no network: page, style, scripts and data joined."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import re
from importlib import resources

from tensortide.graph.roles import looks
from tensortide.reports.document import Document, to_json

__all__ = ["render_frame", "render_html"]

SCRIPTS = (
    *("dom", "format", "data", "scale", "chart", "vtable"),
    *("overview", "timed", "budget", "simulation", "memory", "idle", "liveness", "modules", "ops", "about"),
)
"""Scripts of the page in the order they are joined. ``theme`` runs before them, so that no wrong colour flashes."""

PLAIN_BYTES = 1 << 16
"""Data up to this size stays readable in the page; more is compressed."""


def render_html(document: Document, *, compress: bool | None = None) -> str:
    """``document`` as a self-contained page. ``compress`` is for browsers and tools: None chooses by size."""
    data = to_json(document)
    if compress is None:
        compress = len(data) > PLAIN_BYTES
    theme, style = _read("theme.js"), _role_colors() + _read("page.css") + _read("print.css")
    script = "\n".join(_read(f"{name}.js") for name in SCRIPTS)
    parts = {
        "csp": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(theme)} {_hash(script)}",
        "title": html.escape(f"{document.overview.workload or 'Step'} - tensortide"),
        "version": html.escape(document.environment.tensortide),
        "style": style,
        "theme": theme,
        "script": script,
        "encoding": "gzip" if compress else "plain",
        "data": base64.b64encode(gzip.compress(data, 9, mtime=0)).decode() if compress else _inert(data),
    }
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], _read("page.html"))


def render_frame(document: Document, *, height: int = 900) -> str:
    """The page in a frame, for a notebook."""
    page = html.escape(render_html(document))
    return f'<iframe srcdoc="{page}" style="width: 100%; height: {height}px; border: 0" title="tensortide"></iframe>'


def _role_colors() -> str:
    """Style that gives each role its colour in both themes, under its own name."""
    light = "".join(f"--{role}: {look.light}; " for role, look in looks().items())
    dark = "".join(f"--{role}: {look.dark}; " for role, look in looks().items())
    return f':root {{ {light}}}\n:root[data-theme="dark"] {{ {dark}}}\n'


def _read(name: str) -> str:
    return resources.files("tensortide.reports").joinpath("page", name).read_text("utf-8")


def _hash(text: str) -> str:
    """``text`` as a content security policy names it: only what is ours may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _inert(data: bytes) -> str:
    """JSON in which no string can end the element it stands in."""
    return data.decode().replace("<", "\\u003c").replace(">", "\\u003e")
