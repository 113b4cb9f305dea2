"""Names for sizes, as the command line takes them."""

from __future__ import annotations

from collections.abc import Iterable

from tensortide.errors import WorkloadError


def bindings(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Split ``PATTERN=dim,dim`` texts into dims by pattern. Raises WorkloadError for a text of another form."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        pattern, _, dims = text.rpartition("=")
        found[pattern] = tuple(map(str.strip, dims.split(",")))
        if not pattern or not all(found[pattern]):
            raise WorkloadError(f"--bind takes PATTERN=dim,dim,..., not {text!r}")
    return found
