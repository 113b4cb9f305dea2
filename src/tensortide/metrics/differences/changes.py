"""Words for a change of a figure: from one value to another, in percent, with its sign."""

from __future__ import annotations

from collections.abc import Callable


def change_text(before: int, after: int, text: Callable[[float], str]) -> str:
    """Write a change: ``+12.4 % (3.17 T → 3.56 T)``, or ``0 → 3 GiB``."""
    values = text(before), text(after)
    shown = f"{values[0]} → {values[1]}" if values[0] != values[1] else signed(after - before, text)
    return f"{percent_text(before, after)} ({shown})".lstrip()


def percent_text(before: int, after: int) -> str:
    """Write a change in percent, as a factor if it is large; nothing for what was 0."""
    if not before:
        return ""
    ratio = after / before
    return (
        f"{ratio:.1f}x"
        if ratio >= 3
        else f"{100 * (ratio - 1):+.2g} %"
        if abs(ratio - 1) < 0.01
        else f"{100 * (ratio - 1):+.1f} %"
    )


def signed(value: int, text: Callable[[float], str]) -> str:
    """Write a value with its sign."""
    return f"{'+' if value > 0 else ''}{text(value)}"
