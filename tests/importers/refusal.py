"""What readers of foreign files may raise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tensortide.errors import TraceError


@contextlib.contextmanager
def refused_in_one_line(*parts: str) -> Iterator[None]:
    """The body may be refused: with one TraceError of one line that has all of ``parts``."""
    try:
        yield
    except TraceError as error:
        said = str(error)
    else:
        return
    assert all(part in said for part in parts), said
    assert "\n" not in said
