"""What is shown of a step under a memory budget, as frozen data: what ``--json`` prints and the HTML page reads."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from tensortide.replays.remat.telemetry import Counters
from tensortide.reports.columns import Ints
from tensortide.reports.document import Document

FORMAT = "tensortide.simulation/1"


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """Memory before and after, with an entry per op that is executed, in order.

    ``op`` is its number in the step; it is computed again where ``again`` is 1; it starts at ``start_ns``.
    ``after_bytes`` are resident while it runs. ``before_bytes`` are resident without a budget, while the op of the step
    runs that comes next (or is this one). Of the bytes after, ``pinned_bytes`` must stay and ``locked_bytes`` are in
    use; the rest may be evicted. These two are empty for a plan, which does not tell.
    """

    op: Ints
    again: Ints
    start_ns: Ints
    before_bytes: Ints
    after_bytes: Ints
    pinned_bytes: Ints = ()
    locked_bytes: Ints = ()

    def thinned(self, points: int = 480) -> Curves:
        """At most ``points`` entries: of each stretch the one with most bytes after."""
        count = len(self.op)
        if count <= points:
            return self
        edges = pairwise(count * i // points for i in range(points + 1))
        kept = [max(range(a, b), key=self.after_bytes.__getitem__) for a, b in edges]
        columns = {name: getattr(self, name) for name in self.__struct_fields__}
        return Curves(**{name: tuple(column[i] for i in kept) if column else () for name, column in columns.items()})


class Recomputed(msgspec.Struct, frozen=True, kw_only=True):
    """Ops that were computed again, ``count`` times together in ``ns``: those of one module (modules that differ only
    by number together), or those of one kind. ``ops`` are distinct ops; ``share`` is of all recomputation."""

    name: str
    count: int
    ops: int
    ns: int
    share: float


class Evicted(msgspec.Struct, frozen=True, kw_only=True):
    """``storages`` alike, of ``nbytes`` each: how often they made room together (``forced``) and came back
    (``remats``)."""

    name: str
    module: str
    role: str
    nbytes: int
    storages: int
    forced: int
    remats: int


class HeldBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Storages of one role that could not be evicted: their number, bytes that had to stay (``pinned_bytes``) and bytes
    in use by the ops that waited (``locked_bytes``)."""

    role: str
    storages: int
    pinned_bytes: int
    locked_bytes: int


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """An op of the step: its number, name, module, and line of code ("" if unknown)."""

    op: int
    name: str
    module: str
    source: str


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run was given up: ``at`` was to run next, for the sake of ``goal``, while ``waiting`` ops had some of
    their inputs in use. It asked for ``asked_bytes`` on top of what was ``held``."""

    at: Place
    goal: Place
    waiting: int
    asked_bytes: int
    held: tuple[HeldBytes, ...]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """Another run of the same step: what it was, and what came of it."""

    policy: str
    budget_bytes: int
    status: str
    overhead: float
    peak_bytes: int


class SimulationView(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a step under a budget.

    ``policy`` played by ``rules``, or is the name of a plan, which has none.

    ``status`` is ``ok``, ``oom`` (out of memory), ``thrash`` (too much was computed again) or ``over`` (a plan that
    needs more than the budget). ``baseline_bytes`` is the step's own peak, which ratios refer to; ``least_bytes`` is
    what its most demanding op, ``least_op``, needs with what must stay: nothing runs in less. ``overhead`` is
    ``clock_ns / model_ns``. ``smallest`` is the run with the smallest budget found with which the policy ends (its
    status says so if even the step's own peak is too little), ``instead`` what other policies make of this budget
    (``auto``: all that were tried).
    """

    format: str = FORMAT
    workload: str
    hyperparameters: dict[str, str | int | float | bool | None]
    framework: str
    ops: int
    device: str
    durations: str
    policy: str
    rules: str
    budget_bytes: int | None
    overhead_limit: float | None
    status: str
    verdict: str
    advice: tuple[str, ...]
    baseline_bytes: int
    peak_bytes: int
    least_bytes: int
    least_op: Place | None
    model_ns: int
    clock_ns: int
    remat_ns: int
    overhead: float
    recomputed: int
    counters: Counters | None
    modules: tuple[Recomputed, ...]
    kinds: tuple[Recomputed, ...]
    evicted: tuple[Evicted, ...]
    stopped: Stopped | None
    smallest: Attempt | None
    instead: tuple[Attempt, ...]
    curves: Curves


class Simulated(Document, frozen=True, kw_only=True):
    """A report of a step, and of a run of it under a budget."""

    simulation: SimulationView


def with_simulation(document: Document, view: SimulationView) -> Simulated:
    """``document`` and ``view`` in one report."""
    fields = {name: getattr(document, name) for name in Document.__struct_fields__}
    return Simulated(**fields, simulation=view)
