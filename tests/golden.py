"""Golden texts: what the program printed when a person last read it. ``python -m scripts.goldens`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

REWRITE = "TENSORTIDE_REWRITE_GOLDENS"


def assert_golden(text: str, path: Path) -> None:
    """Assert that a text is the golden one in a file; where they are written anew, write it there."""
    if os.environ.get(REWRITE):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")
