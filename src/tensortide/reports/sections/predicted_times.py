"""Columns and texts of predicted times, with their 80 % intervals, and the legend that explains both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensortide.reports.blocks import Column, Note
from tensortide.timing.estimates import Estimate, Provenance
from tensortide.units import format_count, format_seconds


def times_columns(
    key: str, label: str, times: Sequence[Estimate | None], without: Sequence[int] = (), interval: int | None = None
) -> Iterator[Column]:
    """A column of times, and one of their 80 % intervals from the width ``interval`` on (None: none); ends as data.

    ``without``: nanoseconds to add that no interval is known of. None: there is no such time.
    """
    pairs = list(zip(times, without or [0] * len(times), strict=True))
    known = tuple(None if time is None else round(time.time_ns) + ns for time, ns in pairs)
    yield Column(f"{key}_ns", label, "ns", known, before=tuple("~" * bool(time and time.unknown) for time in times))
    if interval is not None:
        text = tuple(interval_text(time, ns) if time and time.time_ns else "" for time, ns in pairs)
        yield Column(f"{key}_interval_text", "80 % interval", "text", text, at_width=interval, dim=True)
    for side, end in enumerate(("low", "high")):
        ends = tuple(None if time is None else ends_ns(time, ns)[side] for time, ns in pairs)
        yield Column(f"{key}_{end}_ns", "", "ns", ends, data=True)


def rates_columns(
    key: str, label: str, times: Sequence[Estimate], sizes: Sequence[int], *, interval: bool = False, at_width: int = 0
) -> Iterator[Column]:
    """Columns of samples per second, ``sizes`` in each of ``times``, to the digits that are known."""

    def rates(ends: Sequence[float]) -> tuple[float | None, ...]:
        return tuple(float(f"{n * 1e9 / ns:.4g}") if ns else None for n, ns in zip(sizes, ends, strict=True))

    low, high = rates([0.0 if time.unknown else time.high_ns for time in times]), rates([t.low_ns for t in times])
    yield Column(key, label, "amount", rates([time.time_ns for time in times]), at_width=at_width)
    if interval:
        pairs = [(a and format_count(a), format_count(b or 0)) for a, b in zip(low, high, strict=True)]
        text = tuple(f"{least} to {most}" if least else f"up to {most}" for least, most in pairs)
        yield Column(f"{key}_interval_text", "80 % interval", "text", text, dim=True)
    yield Column(f"{key}_low", "", "amount", low, data=True)
    yield Column(f"{key}_high", "", "amount", high, data=True)


def ends_ns(time: Estimate, missing: int = 0) -> tuple[int, int | None]:
    """The ends of the 80 % interval of a sum, with ``missing`` nanoseconds of ops of unknown time: with such ops the
    upper end is not known."""
    return round(time.low_ns) + missing, None if time.unknown else round(time.high_ns) + missing


def interval_text(time: Estimate, missing: int = 0) -> str:
    """Say in what interval a sum is, as ``ends_ns`` has it."""
    low, high = ends_ns(time, missing)
    least = format_seconds(low / 1e9)
    return f"{least} or more" if high is None else f"{least} to {format_seconds(high / 1e9)}"


def prediction_text(whole: Estimate, missing: int = 0) -> str:
    """Say in what interval a sum is, with ``missing`` nanoseconds of ops of unknown time, and what it rests on."""
    known = f"80 % interval {interval_text(whole, missing)}" if whole.time_ns else "no interval"
    return f"{known}; {whole.provenance}"


def legend(found: Iterable[Provenance]) -> Note:
    """Explain the 80 % interval and the bases of predicted times that are shown."""
    meanings = "; ".join(f"{one}: {one.meaning}" for one in sorted(set(found)))
    return Note(
        key="legend", text=f"Times are predicted. 80 % interval: 8 of 10 measured times should lie inside. {meanings}."
    )
