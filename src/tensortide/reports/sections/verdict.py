"""Section ``verdict``: on which GPUs a step fits, how fast it is there, and what dominates its peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table
from tensortide.reports.of_records import column, facts, table
from tensortide.reports.render.values import value_text
from tensortide.reports.sections import Step
from tensortide.reports.sections.whole_card import card_table
from tensortide.studies.fit.deciding import deciding, doubt
from tensortide.studies.fit.verdict import COMMON, Fits, OnDevice, Verdict, verdict
from tensortide.timing.catalogue import device
from tensortide.units import format_bytes, format_percent

if TYPE_CHECKING:
    from tensortide.studies.fit.largest import Largest
    from tensortide.studies.fit.model import ModelVerdict

ORDER = 5

_BRIEF: dict[Fits, str] = {"too large": "too large for", "unsure": "unsure on", "fits": "fits"}
_ON: dict[Fits, str] = {"fits": "fits", "unsure": "unsure on", "too large": "does not fit"}
_INTO: dict[Fits, str] = {"fits": "fits into", "unsure": "unsure in", "too large": "does not fit into"}
_KINDS: dict[Fits, Literal["verdict", "warning", "failure"]]
_KINDS = {"fits": "verdict", "unsure": "warning", "too large": "failure"}
_REMEDIES = {
    "loss": " (a cross entropy by chunks never has them whole)",
    "kept": " (y = checkpoint(block, x, use_reentrant=False) keeps what goes into each block alone)",
}


def of_step(step: Step) -> Section | None:
    """Make the section of a report, from the step's one Graph."""
    graph = step.graph
    if not len(graph) or not step.eager.peak_bytes:
        return None
    on_gpu = step.eager.device.startswith("cuda")
    asked = device(graph.meta.machine) if graph.meta.machine and step.card is None else None
    found = verdict(
        graph,
        asked=asked,
        card=step.card,
        durations=step.durations if asked is not None else None,
        line=step.eager,
        reserved_bytes=step.pool.peak_reserved if on_gpu else None,
        timed=False,  # on other devices than that of the report: ``tensortide fit`` has the time for it
        resolver=step.resolver,
    )
    return section(found, in_report=True)


def of_model(found: ModelVerdict) -> Document:
    """Show whether the step of a model fits, under its head, and what was taken for the loss."""
    subject, made = found.fit.subject, section(found.fit.verdict)
    if found.loss:
        made = replace(made, blocks=(*made.blocks, Note(key="loss", text=f"loss: {found.loss}", kind="advice")))
    return Step(subject.graph, card=None if subject.timed else subject.card).document(made)


def section(found: Verdict, *, in_report: bool = False) -> Section:
    """Make the section alone; ``in_report``, which has the time of the step."""
    return Section("verdict", "Verdict", blocks=tuple(blocks(found, brief=True, timed=not in_report)))


def blocks(
    found: Verdict,
    samples: int | None = None,
    largest: Largest | None = None,
    *,
    brief: bool = False,
    timed: bool = True,
) -> Iterator[AnyBlock]:
    """State the verdict, say what would decide it, show the GPUs, and name what dominates.

    ``samples``: those of a step, for their rate.
    ``brief``: text has the GPUs in a line. ``timed``: the verdict has the time.
    """
    yield facts(found, "peak_bytes", "reserved_bytes", "least_bytes", "most_bytes", data=True)
    if found.asked is not None:
        yield facts(
            found.asked,
            "fits",
            "usable_bytes",
            "most_usable_bytes",
            "step_ns",
            "step_low_ns",
            "step_high_ns",
            data=True,
        )
    yield _headline(found, samples, timed=timed)
    if found.card is not None and found.asked is not None and found.asked.step_ns is None:
        yield Note(text=f"{found.card.no_time[0].upper()}{found.card.no_time[1:]}.")
    off, ways = doubt(found), [*deciding(found, largest)]
    if off and ways:
        yield Note(text=off)
    if ways:
        yield Note(text="\n- ".join(["What would decide it:", *ways]), kind="advice")
    every = _by_verdict(found)
    if brief and (found.asked is not None or len(every["fits"]) < len(found.on_devices)):  # else the headline says it
        own = "" if found.card is None else found.card.name.removesuffix("GB")  # of which the headline speaks
        sizes = ((words, [size for size in every[fits] if size != own]) for fits, words in _BRIEF.items())
        told = (f"{words} {', '.join(some)} GB" for words, some in sizes if some)
        yield Note(text="; ".join(told), kind="advice", only="text")
    yield _devices(found, only="page" if brief else "")
    yield from () if brief else card_table(found.whole_card)
    if found.dominant is not None:
        share = format_percent(found.dominant.nbytes, found.peak_bytes)
        sentence = f"{found.dominant.sentence}{_REMEDIES.get(found.dominant.kind, '')}"
        text = f"{share} of the peak, {format_bytes(found.dominant.nbytes)}: {sentence}"
        yield Note(key="dominant", text=text, kind="advice")
    if off and not ways:
        yield Note(text=off)


def _by_verdict(found: Verdict) -> dict[Fits, list[str]]:
    """The common sizes of GPUs by what holds for them."""
    every: dict[Fits, list[str]] = {fits: [] for fits in _BRIEF}
    for size, one in zip(COMMON, found.on_devices, strict=True):
        every[one.fits].append(str(size))
    return every


def _between(least: int, most: int | None) -> str:
    """An interval of bytes: ``19.71 to 21.92 GiB``."""
    low = format_bytes(least)
    if most is None:
        return f"at least {low}"
    high = format_bytes(most)
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number if unit == high.partition(' ')[2] else low} to {high}"


def _headline(found: Verdict, samples: int | None, *, timed: bool) -> Note:
    needs = f"needs {_between(found.least_bytes, found.most_bytes)}"
    own = found.asked
    if own is None:
        every = _by_verdict(found)
        if sizes := every["fits"]:
            return Note(text=f"{needs}: fits GPUs from {sizes[0]} GB on", kind="verdict")
        if sizes := every["unsure"]:
            return Note(text=f"{needs}: unsure on GPUs from {sizes[0]} GB on", kind="warning")
        return Note(text=f"{needs}: fits none of these GPUs", kind="failure")
    text = f"{_judged(found, own)}: {needs}{_margin(found, own)}"
    if own.step_ns is not None and timed:
        text += f"; a step takes {value_text(own.step_ns, 'ns')}{_interval(own)}"
        text += f" on {own.device}" if found.card is not None else ""
        text += f", {samples * 1e9 / own.step_ns:,.0f} samples/s" if samples and own.step_ns else ""
    return Note(text=text, kind=_KINDS[own.fits])


def _interval(own: OnDevice) -> str:
    """The 80 % interval of the time, if it is known."""
    if own.step_low_ns is None:
        return ""
    low = value_text(own.step_low_ns, "ns")
    high = "more" if own.step_high_ns is None else value_text(own.step_high_ns, "ns")
    return f" (80 % interval {low} {'or' if own.step_high_ns is None else 'to'} {high})"


def _judged(found: Verdict, own: OnDevice) -> str:
    """The verdict in words: ``does not fit T4``, ``unsure on a 24GB GPU``, ``fits into 24.00 GiB``."""
    card = found.card
    if card is not None and not card.of_size:
        return f"{_INTO[own.fits]} {card.name}"
    return f"{_ON[own.fits]} {own.device if card is None else f'a {card.name} GPU'}"


def _margin(found: Verdict, own: OnDevice) -> str:
    """The memory that is usable, and by how much the step fits or does not."""
    into = found.card is not None and not found.card.of_size  # which the words before say
    has = "" if into else f", has {_between(own.usable_bytes, own.most_usable_bytes)}"
    if own.fits != "unsure":
        return has
    spare = format_bytes(own.most_usable_bytes - found.least_bytes)
    if found.most_bytes is None:
        return f"{has}: at most {spare} to spare"
    return f"{has}: {spare} to spare to {format_bytes(found.most_bytes - own.usable_bytes)} too much"


def _devices(found: Verdict, only: Literal["", "page"]) -> Table:
    memory = Column("memory", "GPU size", "text", tuple(f"{size} GB" for size in COMMON))
    several = sum(one.step_ns is not None for one in found.on_devices) > 1  # that of one device is said in words
    shown = (
        "device",
        "usable_bytes",
        "taken_share",
        "fits",
        column(OnDevice, found.on_devices, "step_ns", data=not several),
    )
    return table(OnDevice, found.on_devices, memory, *shown, key="devices", only=only)
