"""Results of a study: a flat table of runs, and its curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec

from tensortide.replays.remat.simulation import Deallocation, Status
from tensortide.shown import Show

Kind: TypeAlias = Literal["sweep", "ablation", "banishing", "accesses", "growth"]
"""Experiments."""


class Cell(msgspec.Struct, frozen=True):
    """One run to be made of a step. ``exhaustive``: without bounds that rule candidates out."""

    policy: Annotated[str, Show("policy")]
    budget_bytes: Annotated[int, Show("budget")]
    overhead_limit: Annotated[float, Show("limit")]
    deallocation: Annotated[Deallocation, Show("deallocation")] = "eager"
    exhaustive: Annotated[bool, Show("exhaustive")] = False


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one run; see ``Simulation``. A run that failed has the figures of the moment it was given up.

    ``evaluations``: candidates among which something to evict was chosen. ``accesses``: them, and whatever was looked
    at around them to know their cost; None where the plain engine played, which does not count that.
    """

    status: Annotated[Status, Show("status")]
    overhead: Annotated[float, Show("overhead")]
    clock_ns: Annotated[int, Show("time")]
    remat_ns: Annotated[int, Show("recomputation")]
    peak_bytes: Annotated[int, Show("peak")]
    evictions: Annotated[int, Show("evictions")]
    recomputations: Annotated[int, Show("recomputed ops")]
    evaluations: Annotated[int, Show("evaluations")]
    accesses: Annotated[int | None, Show("accesses")]
    eviction_hash: Annotated[str, Show("eviction hash")]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a step, known before any run.

    ``durations``: their source. ``baseline_bytes``: peak without a budget. ``constant_bytes``: storages that cannot
    be recomputed. ``bottleneck_bytes``: the most that one op needs beside it, for what it reads and makes.
    """

    name: Annotated[str, Show("Step", fold=True)]
    device: Annotated[str, Show("Device")]
    ops: Annotated[int, Show("Ops")]
    durations: Annotated[str, Show("Durations", fold=True, dim=True)]
    compat: Annotated[bool, Show("--compat", data=True)]
    model_ns: Annotated[int, Show("Sum of op times")]
    baseline_bytes: Annotated[int, Show("Peak")]
    constant_bytes: Annotated[int, Show("constants")]
    bottleneck_bytes: Annotated[int, Show("one op")]


class Trial(msgspec.Struct, frozen=True):
    """A row of the table: the run of ``step`` that ``cell`` describes.

    It belongs to ``curve`` in the panel of that number. ``at`` is its place there: the ratio of the budget to the peak
    without one, or the number of layers of a linear network.
    """

    panel: int
    curve: Annotated[str, Show("curve")]
    at: Annotated[float, Show("ratio")]
    step: Step
    cell: Cell
    run: Run


class Row(msgspec.Struct, frozen=True):
    """The runs at one place of a curve: one, or one per seed. ``number`` is what their study is about, the mean of the
    overhead for most; None where a run failed."""

    at: float
    budget_bytes: int
    runs: tuple[Run, ...]
    number: float | None

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
    def cell(self) -> float | str:
        """The number, or why there is none: ``oom``, of some of several runs ``oom 1/10``."""
        several = f" {self.failed}/{len(self.runs)}" if 0 < self.failed < len(self.runs) else ""
        return self.status + several if self.number is None else self.number


class Study(msgspec.Struct, frozen=True):
    """Runs in ``panels``: one for each step, or, of ``growth``, for each rule that gives linear networks budgets."""

    kind: Kind
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
        return {
            curve: [Row(*place, tuple(runs), self._number(runs)) for place, runs in rows.items()]
            for curve, rows in found.items()
        }

    def _number(self, runs: Sequence[Run]) -> float | None:
        if any(run.status != "ok" for run in runs):
            return None
        if self.kind in ("growth", "accesses"):
            return runs[0].remat_ns if self.kind == "growth" else runs[0].accesses
        return sum(run.overhead for run in runs) / len(runs)
