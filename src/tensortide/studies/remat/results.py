"""Results of experiments: runs, in rows of one budget, in curves of one policy, in studies of one step."""

from __future__ import annotations

import functools

import msgspec

from tensortide.replays.remat.outcome import Deallocation, Status

__all__ = ["Cell", "Curve", "Experiment", "Growth", "GrowthPoint", "Row", "Run", "Step", "Study"]


class Cell(msgspec.Struct, frozen=True):
    """One run to be made of a step. ``exhaustive``: without bounds that rule candidates out."""

    policy: str
    budget_bytes: int
    overhead_limit: float
    deallocation: Deallocation = "eager"
    exhaustive: bool = False


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one run; see ``Simulation``. A run that failed has the figures of the moment it was given up.

    ``evaluations``: candidates among which something to evict was chosen. ``accesses``: them, and whatever was looked
    at around them to know their cost; None where the plain engine played, which does not count that.
    """

    status: Status
    overhead: float
    clock_ns: int
    remat_ns: int
    peak_bytes: int
    evictions: int
    recomputations: int
    evaluations: int
    accesses: int | None
    eviction_hash: str


class Row(msgspec.Struct, frozen=True):
    """The runs under one budget: one, or one per seed. ``ratio``: to the peak without a budget."""

    budget_bytes: int
    ratio: float
    runs: tuple[Run, ...]

    @property
    def status(self) -> Status:
        """``ok`` if all runs are; out of memory goes before thrashing."""
        found = {run.status for run in self.runs}
        return "oom" if "oom" in found else "thrash" if "thrash" in found else "ok"

    @property
    def failed(self) -> int:
        """Number of failed runs."""
        return sum(run.status != "ok" for run in self.runs)

    @property
    def overheads(self) -> list[float]:
        """Overhead of each run."""
        return [run.overhead for run in self.runs]

    @property
    def overhead(self) -> float:
        """Mean over the runs."""
        return sum(self.overheads) / len(self.runs)


class Curve(msgspec.Struct, frozen=True):
    """One policy over all budgets, the largest first. ``policies``: what was played, one per run of a row."""

    name: str
    policies: tuple[str, ...]
    deallocation: Deallocation
    exhaustive: bool
    rows: tuple[Row, ...]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a step, known before any run.

    ``durations``: their source. ``baseline_bytes``: peak without a budget. ``constant_bytes``: storages that cannot
    be recomputed. ``bottleneck_bytes``: the most that one op needs beside it, for what it reads and makes.
    """

    name: str
    device: str
    ops: int
    durations: str
    compat: bool
    model_ns: int
    baseline_bytes: int
    constant_bytes: int
    bottleneck_bytes: int


class Study(msgspec.Struct, frozen=True):
    """One step, played in every way of an experiment."""

    step: Step
    curves: tuple[Curve, ...]


class Experiment(msgspec.Struct, frozen=True):
    """Steps over budgets. ``kind``: ``sweep``, ``ablation``, ``banishing`` or ``accesses``."""

    kind: str
    overhead_limit: float
    studies: tuple[Study, ...]


class GrowthPoint(msgspec.Struct, frozen=True):
    """A linear network of ``n`` layers under the budget that ``rule`` gives it, played by ``policy``."""

    n: int
    rule: str
    budget_bytes: int
    policy: str
    run: Run


class Growth(msgspec.Struct, frozen=True, dict=True):
    """Linear networks of growing length: every op takes 1 ns, every tensor 1 byte."""

    compat: bool
    overhead_limit: float
    sizes: tuple[int, ...]
    rules: tuple[str, ...]
    policies: tuple[str, ...]
    points: tuple[GrowthPoint, ...]

    def point(self, n: int, rule: str, policy: str) -> GrowthPoint:
        """The one of these coordinates. Raises KeyError."""
        return self._by_place[n, rule, policy]

    @functools.cached_property
    def _by_place(self) -> dict[tuple[int, str, str], GrowthPoint]:
        return {(point.n, point.rule, point.policy): point for point in self.points}
