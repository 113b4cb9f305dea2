"""The files a report can be written to, by name: what the command line offers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from tensortide.reports.document import Document, to_json
from tensortide.reports.html import render_html
from tensortide.reports.sheets import render_markdown, render_modules_csv, render_ops_csv
from tensortide.reports.snapshot import render_snapshot
from tensortide.reports.trace import render_trace
from tensortide.write import write_file

__all__ = ["FORMATS", "render_json", "write"]


def render_json(document: Document) -> bytes:
    """The whole document, indented."""
    return msgspec.json.format(to_json(document), indent=1) + b"\n"


FORMATS: dict[str, Callable[[Document], str | bytes]] = {
    "html": render_html,
    "json": render_json,
    "trace": render_trace,
    "memory-viz": render_snapshot,
    "ops-csv": render_ops_csv,
    "modules-csv": render_modules_csv,
    "markdown": render_markdown,
}
"""``html``: one page that needs no network. ``trace``: for Perfetto. ``memory-viz``: for pytorch.org/memory_viz."""


def write(document: Document, format: str, path: str | os.PathLike[str]) -> Path:
    """Write ``document`` to ``path`` in one of ``FORMATS``; the whole file or nothing.

    Raises:
        OutputError: it cannot be written there.
    """
    return write_file(path, FORMATS[format](document))
