"""Errors, warnings and notes on standard error: text from files, names and other programs cannot steer a terminal."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypedDict

_KEPT = "\n\t"
"""Characters that are not printable, and may stand in a message."""


class Error(TypedDict):
    """An error as ``--json`` prints it, in place of a Document. ``kind`` is the name of its class; ``exit_status`` of 1
    or 4 is an answer."""

    format: Literal["tensortide.error"]
    schema_version: Literal[1]
    kind: str
    message: str
    exit_status: int


def cleaned(text: str) -> str:
    r"""``text`` with what a terminal would obey as escapes: control codes, marks that turn the direction of writing,
    and bytes that are no text.

    >>> print(cleaned("\x1b]0;owned\x07.json"), cleaned("gpj\u202e.py"))
    \x1b]0;owned\x07.json gpj\u202e.py
    """
    return "".join(
        char if char.isprintable() or char in _KEPT else char.encode("unicode_escape").decode("ascii") for char in text
    )


def one_line(text: str) -> str:
    """``text``, cleaned and on one line: a name must not look like a message of its own."""
    return cleaned(text.replace("\n", "\\n"))


def brief(text: str) -> str:
    """``text``, cleaned, and names that are thousands of characters long cut."""
    return cleaned(re.sub(r"(\S{200})\S{100,}(\S{50})", r"\1...\2", text))


def say(kind: str, message: object) -> None:
    """Print a message of this ``kind``: error, warning, note. It is lost where standard error is full."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{kind}: {brief(str(message))}\n")


def without_line_breaks(text: str, names: Sequence[str]) -> str:
    r"""``text`` with the line breaks escaped that are in ``names``, as they were typed.

    >>> print(without_line_breaks("cannot read a/b\nerror: c: no such file\nCreate it.", ["--html=./a/b\nerror: c"]))
    cannot read a/b\nerror: c: no such file
    Create it.
    """
    for part in {part for name in names for part in re.findall(r"[^/=:\n]*\n[^/=:]*", name)}:
        text = text.replace(part, part.replace("\n", "\\n"))
    return text


@contextlib.contextmanager
def clean_warnings() -> Iterator[None]:
    """Have warnings that Python prints cleaned, too."""
    plain = warnings.formatwarning

    def clean(*arguments: Any, **named: Any) -> str:
        return cleaned(plain(*arguments, **named))

    warnings.formatwarning = clean
    try:
        yield
    finally:
        warnings.formatwarning = plain
