"""The verdict on one step: on which common GPUs it fits, how fast it is there, and what dominates its peak."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec

from tensortide.cost import Resolver, count
from tensortide.graph.model import Graph
from tensortide.memory import reserve
from tensortide.memory.allocators import expandable
from tensortide.shown import Show
from tensortide.studies.fit.dominant import Dominant, dominant
from tensortide.studies.fit.margins import Margin, margin
from tensortide.studies.fit.trial import Taken, taken, taken_ns
from tensortide.studies.fit.whole_card import CardRow, whole_card
from tensortide.timelines import StorageTimeline, timeline
from tensortide.timing import Durations
from tensortide.timing.cards import Card
from tensortide.timing.catalogue import Device, device

COMMON = {
    16: "T4",
    24: "L4",
    40: "A100-SXM-40GB",
    48: "L40S",
    80: "H100-SXM-80GB",
    141: "H200-SXM-141GB",
    192: "MI300X",
}
"""A device of each common size of memory, by the GB that it is sold with."""

Fits: TypeAlias = Literal["fits", "unsure", "too large"]


class OnDevice(msgspec.Struct, frozen=True):
    """A device and the step on it: ``usable_bytes`` of its memory, ``taken_share`` the most of them that the step needs
    (the least, where nobody knows the most), and the time of a step (None: not predicted).

    ``most_usable_bytes`` are more where the device is of a size alone: cards of that size differ. ``step_low_ns`` and
    ``step_high_ns`` are the 80 % interval of a time that is asked for; the upper end is None where ops are unknown.
    """

    device: Annotated[str, Show("for example")]
    usable_bytes: Annotated[int, Show("usable")]
    most_usable_bytes: int
    taken_share: Annotated[float, Show("needed", bar=70)]
    fits: Annotated[Fits, Show()]
    step_ns: Annotated[int | None, Show("step")]
    step_low_ns: int | None = None
    step_high_ns: int | None = None


class Verdict(msgspec.Struct, frozen=True):
    """Answer to whether a step fits: it needs ``least_bytes`` to ``most_bytes`` (None: nobody knows) of a device.

    ``on_devices`` has a GPU of each common size. ``asked`` is what was asked for: a device, or with
    ``card`` a GPU of which only the memory counts.
    """

    peak_bytes: int
    reserved_bytes: int
    least_bytes: int
    most_bytes: int | None
    peak_op: int
    on_devices: tuple[OnDevice, ...]
    asked: OnDevice | None
    card: Card | None
    dominant: Dominant | None
    on_gpu: bool
    """True for a step that was captured for a GPU, or recorded on one."""
    margin: Margin
    whole_card: tuple[CardRow, ...] = ()
    """The memory of the card by what takes it, its total last; empty for a step that was not captured for a GPU."""
    expandable_bytes: int | None = None
    """What the allocator would reserve with expandable segments, where that might decide; None if it has them."""

    @property
    def cut_off(self) -> bool:
        """True for a recording that ends where memory ran out, so that the step takes more than its peak."""
        return self.most_bytes is None

    @property
    def judged_bytes(self) -> int:
        """The most memory that what was asked for may have."""
        assert self.asked is not None
        return self.asked.most_usable_bytes

    def judged(self, peak_bytes: int, reserved_bytes: int) -> Fits:
        """Tell whether the step with other figures fits what was asked for."""
        assert self.asked is not None
        least, most = self.margin.least_bytes(peak_bytes), self.margin.most_bytes(reserved_bytes)
        return fits(least, most, self.asked.usable_bytes, self.asked.most_usable_bytes)


def fits(least_bytes: int, most_bytes: int | None, usable_bytes: int, most_usable_bytes: int | None = None) -> Fits:
    """Tell whether a step that needs ``least_bytes`` to ``most_bytes`` (None: nobody knows) fits into
    ``usable_bytes``, or where that is not known any better into ``usable_bytes`` to ``most_usable_bytes``."""
    if most_bytes is not None and most_bytes <= usable_bytes:
        return "fits"
    return "unsure" if least_bytes <= (most_usable_bytes or usable_bytes) else "too large"


def verdict(
    graph: Graph,
    *,
    asked: Device | None = None,
    card: Card | None = None,
    durations: Durations | None = None,
    line: StorageTimeline | None = None,
    reserved_bytes: int | None = None,
    timed: bool = True,
    resolver: Resolver | None = None,
) -> Verdict:
    """Judge the step ``graph`` (without loops).

    ``asked`` is a device that is judged too, with its ``durations`` of the ops if they are known; ``card`` is memory in
    place of its own, or without it a GPU of which nothing else is known, and on which the step has no time. ``line``
    and ``reserved_bytes`` are the Timeline and the allocator's peak if they are known. Without ``timed`` only the step
    on ``asked`` has a time; one of which no op's cost is known has none.
    """
    line = timeline(graph) if line is None else line
    if reserved_bytes is None:
        reserved_bytes = reserve(graph).peak_reserved if line.device.startswith("cuda") else line.peak_bytes
    coverage = count(graph, resolver=resolver).coverage
    on_gpu = margin(graph, coverage)
    own = on_gpu if asked is None or asked.kind != "cpu" else margin(graph, coverage, on_gpu=False)
    made = _Step(line.peak_bytes, reserved_bytes)
    priced = coverage.covered > 0
    time = Taken()
    if asked is not None and priced:
        time = taken(graph, asked, durations=durations, resolver=resolver)
    on_devices = []
    for row in map(device, COMMON.values()):
        common = Taken()
        if asked is not None and row.name == asked.name:
            common = Taken(time.ns)
        elif timed and priced:
            common = Taken(taken_ns(graph, row, resolver=resolver))
        on_devices.append(made.on(row.name, row.usable_bytes or 0, on_gpu, common))
    judged = made.asked(asked, card, own, time)
    return Verdict(
        peak_bytes=line.peak_bytes,
        reserved_bytes=reserved_bytes,
        least_bytes=own.least_bytes(line.peak_bytes),
        most_bytes=own.most_bytes(reserved_bytes),
        peak_op=line.peak_op,
        on_devices=tuple(on_devices),
        asked=judged,
        card=card,
        dominant=dominant(graph, line),
        on_gpu=line.device.startswith("cuda"),
        margin=own,
        whole_card=whole_card(graph, line, reserved_bytes, own),
        expandable_bytes=_expandable_bytes(graph) if judged is not None and judged.fits == "unsure" else None,
    )


def _expandable_bytes(graph: Graph) -> int | None:
    """What the allocator would reserve with expandable segments for a step on a GPU that has none."""
    own = graph.meta.allocator
    if expandable(own) == own or not graph.index.main_device.startswith("cuda"):
        return None
    return reserve(graph, expandable(own)).peak_reserved


class _Step(NamedTuple):
    """A step of these figures."""

    peak_bytes: int
    reserved_bytes: int

    def on(self, name: str, usable: int, by: Margin, time: Taken, *, most_usable: int | None = None) -> OnDevice:
        """Judge it on a device of these usable bytes."""
        most_usable = usable if most_usable is None else most_usable
        least, most = by.least_bytes(self.peak_bytes), by.most_bytes(self.reserved_bytes)
        share = (self.reserved_bytes if most is None else most) / usable
        return OnDevice(name, usable, most_usable, share, fits(least, most, usable, most_usable), *time)

    def asked(self, row: Device | None, card: Card | None, by: Margin, time: Taken) -> OnDevice | None:
        """Judge it on what is asked for: the card if one is given, else the device; None if its memory is unknown."""
        name = row.name if row is not None else card.name if card is not None else ""
        if card is not None:
            return self.on(name, card.least_bytes, by, time, most_usable=card.most_bytes)
        if row is None or row.usable_bytes is None:
            return None
        return self.on(name, row.usable_bytes, by, time)
