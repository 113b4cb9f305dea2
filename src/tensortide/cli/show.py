"""Results of every verb on standard output: text or JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tensortide.cli.source import OutputOptions, console

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document


def show(document: Document, out: OutputOptions, *, wrote: Path | None = None) -> None:
    """Print ``document`` as ``out`` asks, then name the file that the verb ``wrote``."""
    if out.json:
        from tensortide.reports.render.json import render_json

        sys.stdout.write(render_json(document))
        return
    from tensortide.reports.render.terminal import render_terminal

    screen = console()
    render_terminal(document, screen)
    if wrote is not None and not out.quiet:
        screen.print(f"wrote {wrote}", soft_wrap=True)
