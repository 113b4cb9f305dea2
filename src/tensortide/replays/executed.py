"""A Plan played: the Graph of what is really executed, recomputation and all, and its Timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tensortide.errors import GraphError, PlanError
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.plans import Plan, validate
from tensortide.plans.events.played import engine_name
from tensortide.plans.events.primitives import homes, primitives
from tensortide.plans.legal import moves, problem_of
from tensortide.replays.execution import Execution
from tensortide.replays.transfers import TransferTimeline
from tensortide.timelines.timeline import Playback, StorageTimeline, timeline

if TYPE_CHECKING:
    from tensortide.memory.workspace import Workspace
    from tensortide.plans.model import Step
    from tensortide.timing.links import Link


def executed(graph: Graph, plan: Plan) -> Graph:
    """``graph`` as ``plan`` runs it: one op per ``Compute`` step, and storages that live as long as the plan says.

    An op that runs again is marked as recomputation. The first residence of a storage keeps its index and that of its
    tensors; each later one is a storage of its own, after all others. So a plan that is an order only changes the ops'
    places and the storages' births and deaths. A residence that a fetch begins is born with the next op. Raises
    PlanError if the plan does not execute the graph. Loops are written out first: then indexes are those of
    ``unrolled(graph)``.
    """
    return _execution(graph, plan)[0]


def replay(
    graph: Graph,
    plan: Plan,
    *,
    durations_ns: Sequence[int] | None = None,
    links: Sequence[Link] | None = None,
    workspace: Workspace = True,
    budget_bytes: int | None = None,
    serial: bool = False,
) -> StorageTimeline:
    """The Timeline of ``plan``: when each of its steps runs, and the bytes resident on its lane's device meanwhile.

    ``durations_ns``: the time of each op of ``graph``. ``workspace``: the bytes that each takes only while it runs.
    ``links`` are those that plans may use: each has two copy engines, lanes beside the device's.
    ``Timeline.graph`` is ``graph`` as ``executed``. Raises PlanError as that does, GraphError if the durations do not
    fit.

    For a plan that moves storages the Timeline is a ``TransferTimeline``. ``budget_bytes``, the capacity of the device
    (None: unlimited), is what its steps wait for where they find no room, and PlanError is raised if there will be
    none. ``serial``: each step is issued when the one before has ended.
    """
    if moves(plan):
        if links is None:
            raise PlanError("the plan moves storages, at the speed of links: replay it with links=...")
        return replay_transfers(
            graph,
            plan,
            durations_ns=durations_ns,
            links=links,
            workspace=workspace,
            budget_bytes=budget_bytes,
            serial=serial,
        )
    played, playback = _execution(graph, plan, links)
    _check_durations(durations_ns, playback)
    times = None if durations_ns is None else [durations_ns[op] for op in playback.ops]
    device = plan.lanes[0].device
    lanes = (device, *(engine_name(link.name, inwards=way) for link in links or () for way in (False, True)))
    if not isinstance(workspace, bool):
        workspace = [workspace[op] for op in playback.ops]
    return timeline(played, device=device, workspace=workspace, durations_ns=times, playback=playback, lanes=lanes)


def replay_transfers(
    graph: Graph,
    plan: Plan,
    *,
    durations_ns: Sequence[int] | None = None,
    links: Iterable[Link] = (),
    workspace: Workspace = True,
    budget_bytes: int | None = None,
    serial: bool = False,
) -> TransferTimeline:
    """The Timeline of ``plan`` by the event rules, also of a plan that moves nothing: see ``replay``."""
    links = tuple(links)
    played, playback = _execution(graph, plan, links)
    _check_durations(durations_ns, playback)
    stated = problem_of(plan, playback.recorded, durations_ns=durations_ns, links=links, workspace=workspace)
    return TransferTimeline(played, playback, plan, stated, budget_bytes, serial=serial)


def _check_durations(durations_ns: Sequence[int] | None, playback: Playback) -> None:
    if durations_ns is not None and len(durations_ns) != len(playback.recorded):
        raise GraphError(f"{len(durations_ns)} durations for {len(playback.recorded)} ops")


def _execution(graph: Graph, plan: Plan, links: Iterable[Link] | None = None) -> tuple[Graph, Playback]:
    graph = unrolled(graph)
    validate(plan, graph, links=links)
    steps: Sequence[Step] = plan.lanes[0].steps
    if moves(plan):
        stated = problem_of(plan, graph)
        steps = primitives(stated, steps, homes(stated, plan.home)).steps
    return Execution(graph, steps, plan.home).play()
