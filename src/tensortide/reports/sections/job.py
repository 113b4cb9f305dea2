"""Document of a job: memory and time of one rank of each stage, the joined step, and what ranks exchange."""

from __future__ import annotations

from tensortide.parallelism.joined import ExchangeRow
from tensortide.reports.blocks import AnyBlock, Document, Fact, Facts, Note, Section
from tensortide.reports.of_records import table
from tensortide.studies.job import Job, RankRow, WaitRow
from tensortide.units import format_bytes, format_seconds

_LIKE = "Ranks that are not captured are taken to do as those of the same stage; the last rank was compared."
_BESIDE = "An op waits for a collective or message only if it needs the same data; those of a group are in turn."


def document(found: Job) -> Document:
    """Show the ranks that were captured, and what they do together."""
    fullest = found.fullest
    ends = [format_bytes(fullest.least_bytes)]
    ends += [] if fullest.most_bytes in (None, fullest.least_bytes) else [format_bytes(fullest.most_bytes)]
    need = f"rank {fullest.rank} needs most memory: {' to '.join(ends)}, {format_bytes(fullest.peak_bytes)} at its peak"
    if len(found.graphs) < found.ranks:
        need = f"of the captured ranks {need}"
    if found.machine and fullest.fits is not None:
        need += f", {fullest.fits.replace('fits', 'which fits').replace('unsure', 'unsure to fit')}"
    blocks: list[AnyBlock] = [Note(text=f"{need}.", kind="verdict" if fullest.fits != "too large" else "failure")]
    if (time := found.step_time) is not None:
        low, high = (format_seconds(ns / 1e9) for ns in (time.low_ns, time.high_ns))
        unknown = f"; times of {time.unknown} ops are unknown" if time.unknown else ""
        text = f"A step takes {format_seconds(time.time_ns / 1e9)} ({low} to {high}){unknown}."
        blocks.append(Note(text=text, kind="verdict"))
        times = {"step_ns": time.time_ns, "step_low_ns": time.low_ns, "step_high_ns": time.high_ns}
        blocks.append(Facts(rows=tuple(Fact(key, key, round(ns), "ns", data=True) for key, ns in times.items())))
    blocks.append(table(RankRow, found.rows, key="ranks", title="One rank of each stage", note=_LIKE))
    if waits := found.waits:
        blocks.append(table(WaitRow, waits, key="waits", title="What they wait for"))
    if found.joined is not None and (rows := found.joined.exchanged):
        blocks.append(table(ExchangeRow, rows, key="exchanged", title="Exchanged by them", note=_BESIDE))
    section = Section("job", "Job", blocks=tuple(blocks))
    return section.document(found.name, f"{found.ranks:,} ranks" + (f" on {found.machine}" if found.machine else ""))
