"""Result of planning under a budget: the Plan, its time, a proven bound over a stated class of plans, and the gap."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from tensortide.plans.model import Plan
from tensortide.plans.proofs import Proof
from tensortide.plans.remat.schedule import Recording
from tensortide.plans.under_budget.idle import Least
from tensortide.plans.under_budget.known import Rival
from tensortide.shown import Show, Shown
from tensortide.timing.links import Link

FirstRuns: TypeAlias = Literal["recorded", "free"]
"""Order of the first runs of the ops: that of the recorded step, or any that their dependencies allow."""
Status: TypeAlias = Literal["fits", "infeasible", "none found"]
"""``fits``: there is a plan; ``infeasible``: it is proved that none of the class fits; ``none found``: neither."""


class Planned(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The fastest plan found for a step under ``budget_bytes`` on ``device``.

    ``step_ns`` and ``peak_bytes`` are those of ``plan`` as replayed; all three are None unless ``status`` is ``fits``.
    ``base_ns``: the time of the step without a budget, ``recorded_peak_bytes`` its peak then. No plan of ``plan_class``
    takes less than ``bound_ns``, which ``proof`` proves (``verify``); ``bound_name`` says by what. ``least``: bytes
    that any plan of the class needs. ``source``: where the plan comes from. ``work``: plans that the search evaluated;
    ``complete``: neither the time limit nor ``watch`` has ended it early. ``unfollowed_ns``: the time of a faster plan,
    or of this one if no other was found, which exceeds the budget in a run of the program, with what that cannot evict;
    None if there is none. ``run_bytes``: the peak of a run of the program that follows the plan, with what that cannot
    evict; None where none can, or where that is not known.
    ``may_help``: where there is no plan, the options with which one is not excluded, ``--offload host`` and ``--order
    free``. ``one_op``: an op needs more than the budget by itself, which no plan of any class changes.
    ``enough_bytes``: where there is no plan, the least budget for which one was found; None if that was not looked for.
    ``step`` is what was planned, over these ``links`` (None: a part of a search).
    """

    SECTION = "planned.of_plan"
    status: Status
    plan: Plan | None
    step_ns: Annotated[int | None, Show("Step", at_width=90)]
    peak_bytes: Annotated[int | None, Show("Peak")]
    base_ns: int
    bound_ns: int
    plan_class: str
    bound_name: str
    proof: Proof
    least: Least
    rivals: tuple[Rival, ...]
    budget_bytes: Annotated[int, Show("Budget")]
    recorded_peak_bytes: int
    device: str
    source: str = ""
    work: int = 0
    complete: bool = True
    search_s: float = 0.0
    enough_bytes: int | None = None
    may_help: tuple[str, ...] = ()
    one_op: bool = False
    unfollowed_ns: int | None = None
    run_bytes: Annotated[int | None, Show("In a run", data=True)] = None
    step: Recording | None = None
    links: tuple[Link, ...] = ()

    def __repr__(self) -> str:
        names = ("status", "step_ns", "peak_bytes", "base_ns", "bound_ns", "budget_bytes", "source")
        return f"<Planned {' '.join(f'{name}={getattr(self, name)!r}' for name in names)}>"

    @property
    def budget_share(self) -> Annotated[float | None, Show("of peak")]:
        """The budget as a part of the peak without one."""
        return self.budget_bytes / self.recorded_peak_bytes if self.recorded_peak_bytes else None

    @property
    def gap_share(self) -> Annotated[float | None, Show("Gap")]:
        """Return how much longer than the bound the plan takes, at most, as a part of the bound; None without a
        plan."""
        if self.step_ns is None:
            return None
        return self.step_ns / self.bound_ns - 1 if self.bound_ns else 0.0

    @property
    def extra_share(self) -> Annotated[float | None, Show("Time added")]:
        """The time that the plan adds to the step without a budget, as a part of that; None without a plan."""
        return self.extra_of(self.step_ns)

    @property
    def bound_share(self) -> Annotated[float | None, Show("at least")]:
        """The time that any plan of the class adds at least, as a part of the step without a budget."""
        return self.extra_of(self.bound_ns)

    def extra_of(self, ns: int | None) -> float | None:
        """The time by which ``ns`` is more than the step without a budget, as a part of that; None for None."""
        return None if ns is None else ns / self.base_ns - 1 if self.base_ns else 0.0

    @property
    def proved(self) -> bool:
        """True if no plan of the class is faster, or if there is none."""
        return self.step_ns == self.bound_ns or self.status == "infeasible"

    @property
    def found_by(self) -> Annotated[str, Show("Found by", fold=True)]:
        """The search that found the plan; ``as above`` if it is that of a smaller budget; the status without a plan."""
        given = any(rival.kind == "given" and rival.name == self.source for rival in self.rivals)
        return "as above" if given else self.source or self.status


class Frontier(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """Plans from the least budget that any was found for to the peak of the recorded step, the smallest budget first.

    Time never rises with the budget. ``step`` is what was planned.
    """

    SECTION = "frontier.of_frontier"
    points: tuple[Planned, ...]
    step: Recording | None = None

    @property
    def knee(self) -> int:
        """Number of the point farthest from the line between the ends, both axes scaled to 1; -1 without points."""
        fitting = [(i, p.peak_bytes, p.step_ns) for i, p in enumerate(self.points) if p.status == "fits"]
        known = [(i, nbytes, ns) for i, nbytes, ns in fitting if nbytes is not None and ns is not None]
        if not known:
            return -1
        (_, low, slow), (_, high, fast) = known[0], known[-1]
        width, height = max(high - low, 1), max(slow - fast, 1)
        return min(known, key=lambda p: (p[1] - low) / width + (p[2] - fast) / height)[0]
