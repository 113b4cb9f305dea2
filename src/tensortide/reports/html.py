"""The report of a step as one HTML file that needs no network."""

from __future__ import annotations

from tensortide.reports.document import Document, to_json
from tensortide.reports.render.html import frame, join_page

__all__ = ["render_frame", "render_html"]

SCRIPTS = (
    *("dom", "format", "data", "scale", "chart", "vtable"),
    *("overview", "timed", "memory", "idle", "liveness", "modules", "ops", "about"),
)
"""Scripts of the page in the order they are joined."""


def render_html(document: Document, *, compress: bool | None = None) -> str:
    """Write ``document`` as a self-contained page. ``compress`` is for browsers and tools: None chooses by size."""
    return join_page("page.html", SCRIPTS, document.overview.workload, to_json(document), compress=compress)


def render_frame(document: Document, *, height: int = 900) -> str:
    """Put the page into a frame, for a notebook."""
    return frame(render_html(document), height)
