"""Results of a study: a flat table of runs, and its curves."""

from __future__ import annotations

import msgspec

from tensortide.replays.remat.simulation import Deallocation, Status


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


class Trial(msgspec.Struct, frozen=True):
    """A row of the table: the run of ``step`` that ``cell`` describes.

    It belongs to ``curve`` in the panel of that number. ``at`` is its place there: the ratio of the budget to the peak
    without one, or the number of layers of a linear network.
    """

    panel: int
    curve: str
    at: float
    step: Step
    cell: Cell
    run: Run


class Row(msgspec.Struct, frozen=True):
    """The runs at one place of a curve: one, or one per seed."""

    at: float
    budget_bytes: int
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
    def overhead(self) -> float:
        """Mean over the runs."""
        return sum(run.overhead for run in self.runs) / len(self.runs)


class Study(msgspec.Struct, frozen=True):
    """Runs in ``panels``: one for each step, or for each rule that linear networks get their budgets by (``growth``).

    ``kind``: ``sweep``, ``ablation``, ``banishing``, ``accesses`` or ``growth``.
    """

    kind: str
    panels: tuple[str, ...]
    trials: tuple[Trial, ...]

    @property
    def overhead_limit(self) -> float:
        """Overhead at which runs were given up."""
        return self.trials[0].cell.overhead_limit

    @property
    def compat(self) -> bool:
        """True if any run was played by the rules of DTR's simulator."""
        return any(trial.step.compat for trial in self.trials)

    def steps(self) -> list[Step]:
        """The step of each panel; that of its first run where there are several."""
        found = {trial.panel: trial.step for trial in reversed(self.trials)}
        return [found[panel] for panel in range(len(self.panels))]

    def curves(self, panel: int) -> dict[str, list[Row]]:
        """The rows of each curve of ``panel``, in the order of the trials."""
        found: dict[str, dict[tuple[float, int], list[Run]]] = {}
        for trial in self.trials:
            if trial.panel == panel:
                rows = found.setdefault(trial.curve, {})
                rows.setdefault((trial.at, trial.cell.budget_bytes), []).append(trial.run)
        return {curve: [Row(*place, tuple(runs)) for place, runs in rows.items()] for curve, rows in found.items()}
