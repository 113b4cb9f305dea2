"""What is shown of liveness, as frozen data: what ``--json`` prints and the HTML page reads.

``*_byte_ns`` is memory-time: bytes times nanoseconds. By ``step_ns`` it is bytes on average over the step.
"""

from __future__ import annotations

import msgspec

from tensortide.reports.columns import Ints
from tensortide.reports.document import Document
from tensortide.reports.simulation.records import Place
from tensortide.timelines import Hideable

FORMAT = "tensortide.liveness/1"


class RoleTime(msgspec.Struct, frozen=True, kw_only=True):
    """Storages of one role, and their memory-time: in use, idle between two uses, and unused for the rest."""

    role: str
    count: int
    nbytes: int
    active_byte_ns: int
    idle_byte_ns: int
    unused_byte_ns: int

    @property
    def total_byte_ns(self) -> int:
        return self.active_byte_ns + self.idle_byte_ns + self.unused_byte_ns

    @property
    def inactive_share(self) -> float:
        """Of its memory-time."""
        return (self.idle_byte_ns + self.unused_byte_ns) / self.total_byte_ns if self.total_byte_ns else 0.0


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A storage (a tensor in mode ``compat``): what it is called, and where it comes from.

    ``op`` is the op that fills it, or for what exists before the step the first that uses it (-1: none); ``source`` is
    the line of code of that op.
    """

    index: int
    name: str
    role: str
    tensor: str
    nbytes: int
    module: str
    op: int
    op_name: str
    source: str
    code: str


class OffloadRow(msgspec.Struct, frozen=True, kw_only=True):
    """Storages alike (``indexes``; ``first`` stands for them, ``modules`` is theirs with a * for each
    number that differs) that the link can take away: in ``periods`` periods of
    together ``hideable_byte_ns``. ``nbytes`` is the sum of theirs, ``peak_bytes`` of those that are away at the peak.
    ``transfer_ns`` is what all these moves take one way."""

    first: Stored
    modules: str
    indexes: Ints
    nbytes: int
    peak_bytes: int
    periods: int
    idle_ns: int
    hideable_ns: int
    hideable_byte_ns: int
    transfer_ns: int


class RecomputeRow(msgspec.Struct, frozen=True, kw_only=True):
    """Storages alike that can be evicted for their longest period and recomputed, in ``cost_ns`` for all; ``ops`` are
    the names of the ops that it takes for the first, ``random`` of those that draw random numbers."""

    first: Stored
    modules: str
    indexes: Ints
    nbytes: int
    peak_bytes: int
    idle_ns: int
    idle_byte_ns: int
    cost_ns: int
    ops: tuple[str, ...]
    random: tuple[str, ...]


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """What is alive while most bytes are: in use, idle, and of that in periods that hide a move over the link."""

    at: Place | None
    live_bytes: int
    active_bytes: int
    idle_bytes: int
    hideable_bytes: int


class LivenessCurves(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes over time, an entry for each of a few hundred stretches of equal numbers of ops: when it starts, its op
    with most bytes alive, these bytes by role, and the most bytes in use."""

    start_ns: Ints
    op: Ints
    live_bytes: Ints
    active_bytes: Ints
    live_by_role: dict[str, Ints]


class Points(msgspec.Struct, frozen=True, kw_only=True):
    """Inactive periods as columns; if there are too many, those of most memory-time and an even sample of the rest.
    ``storage`` is the storage that ``index`` is about, which is itself but in mode ``compat``."""

    index: Ints
    storage: Ints
    nbytes: Ints
    ns: Ints
    start: Ints
    end: Ints


class LifeBar(msgspec.Struct, frozen=True, kw_only=True):
    """The life of one of the largest storages in nanoseconds: it is alive from ``birth_ns`` to ``death_ns``, in use in
    the intervals ``used_ns`` (of hundreds, those are joined between which no gap would be seen), and ``idle_ns`` in
    total."""

    stored: Stored
    birth_ns: int
    death_ns: int
    idle_ns: int
    used_ns: tuple[tuple[int, int], ...]


class LivenessView(msgspec.Struct, frozen=True, kw_only=True):
    """How long the memory of one step lies idle.

    ``durations`` says how the times of ops are known, ``assumptions`` what had to be assumed of the step.
    ``footprint_bytes`` sums all storages ever allocated (which is no memory pressure), ``peak`` those alive at
    once. ``active_share_*``: bytes in use by an op, by the bytes of the peak. ``resident_*``: of the step as it
    ran, which releases later than after the last use; None where every tensor counts for itself. ``longer_than``:
    nanoseconds, and how many periods last longer. ``links``: what each link could hide; the advice is for the link
    called ``link``. ``quantile_ns``: lengths of periods at equal shares of their number.
    """

    format: str = FORMAT
    workload: str
    hyperparameters: dict[str, str | int | float | bool | None]
    framework: str
    ops: int
    mode: str
    device: str
    durations: str
    assumptions: tuple[str, ...]
    step_ns: int
    storages: int
    persistent: int
    footprint_bytes: int
    peak: Peak
    active_peak_bytes: int
    active_peak_at: Place | None
    active_share_mean: float
    active_share_median: float
    resident_peak_bytes: int | None
    resident_byte_ns: int | None
    total: RoleTime
    roles: tuple[RoleTime, ...]
    periods: int
    longer_than: tuple[tuple[int, int], ...]
    link: str
    links: tuple[Hideable, ...]
    verdict: str
    advice: tuple[str, ...]
    offload: tuple[OffloadRow, ...]
    recompute: tuple[RecomputeRow, ...]
    quantile_ns: Ints
    curves: LivenessCurves
    points: Points
    lives: tuple[LifeBar, ...]

    @property
    def chosen(self) -> Hideable:
        """What the link that the advice is for could hide."""
        return next(item for item in self.links if item.link == self.link)


class WithLiveness(Document, frozen=True, kw_only=True):
    """A report of a step, and how long its memory lies idle."""

    liveness: LivenessView


def with_liveness(document: Document, view: LivenessView) -> WithLiveness:
    """``document`` and ``view`` in one report."""
    fields = {name: getattr(document, name) for name in Document.__struct_fields__}
    return WithLiveness(**fields, liveness=view)
