"""The check of a Plan: does it execute its Graph?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from msgspec.structs import replace

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.plans.events.play import check
from tensortide.plans.instance import DEVICE, Instance, instance
from tensortide.plans.model import Compute, Copy, Drop, Evict, Fetch, Offload, Plan
from tensortide.timing.links import Link


def validate(plan: Plan, graph: Graph, *, links: Iterable[Link] | None = None) -> None:
    """Check that ``plan`` executes ``graph``; raises PlanError that says which step is wrong.

    Every op is computed at least once, and finds each storage it touches resident and last written by the op that last
    wrote it in the recorded step: that covers dependencies, the order of writes and reads, recomputation of what was
    evicted, and what is fetched. A recomputed op allocates only what is not resident, and skips the updates that no
    output depends on (``graph.effects.blind_slots``). A plan that moves storages leaves them where the step does. A
    plan of a graph with loops refers to the loops written out (``graph.unrolled``). Covers plans of one
    lane; ``plans.lanes`` checks those of several.

    ``links``: those of the machine, over which alone the plan may move storages; None: whatever links it names.
    """
    graph = unrolled(graph)
    stated = problem_of(plan, graph, links=links)
    check(stated, plan.lanes[0].steps, home=plan.home, ends=moves(plan))


def moves(plan: Plan) -> bool:
    """Tell whether ``plan`` moves storages or has some of them at home elsewhere than on the device."""
    return bool(plan.home) or any(not isinstance(step, Compute | Evict) for lane in plan.lanes for step in lane.steps)


def linked(plan: Plan) -> list[str]:
    """The links that ``plan`` names, of the steps of its first lane and of homes."""
    named = {step.link for step in plan.lanes[0].steps if isinstance(step, Copy | Offload | Fetch | Drop)}
    return sorted(named | {place for place in plan.home.values() if place != DEVICE})


def problem_of(
    plan: Plan,
    graph: Graph,
    *,
    durations_ns: Sequence[int] | None = None,
    links: Iterable[Link] | None = None,
    workspace: bool | Sequence[int] = False,
) -> Instance:
    """The planning instance of ``graph``, without loops, that ``plan`` answers.

    A plan may evict any storage and move those of its device: what planners are told to leave alone is not told here.
    Raises PlanError for a plan of another graph or of several lanes, or that moves what is not on its device.
    """
    if plan.graph != graph.index.digest:
        raise PlanError("the plan was made for another graph")
    if len(plan.lanes) != 1:
        raise PlanError(f"a plan of {len(plan.lanes)} lanes, where one is needed: it is for several devices")
    device = plan.lanes[0].device
    _check_devices(plan, graph, device)
    found = [Link(name, Fraction(1), 0) for name in linked(plan)] if links is None else links
    times = [0] * len(graph) if durations_ns is None else durations_ns
    stated = instance(graph, device, times, links=found, workspace=workspace)
    return replace(stated, storages=tuple([replace(storage, pinned=False) for storage in stated.storages]))


def _check_devices(plan: Plan, graph: Graph, device: str) -> None:
    for number, step in enumerate(plan.lanes[0].steps):
        if isinstance(step, Copy | Offload | Fetch | Drop) and 0 <= step.storage < len(graph.storages):
            place = graph.storages[step.storage].device
            if place != device:
                raise PlanError(f"step {number} is {step}: the storage is on {place}, the links are those of {device}")
