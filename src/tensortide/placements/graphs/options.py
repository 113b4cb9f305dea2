"""Options of placing a captured step, as Python and the command line take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Annotated, ClassVar

from tensortide.errors import RequestError
from tensortide.memory.lifetimes import Rule
from tensortide.memory.workspace import Workspace
from tensortide.parallelism.shards import Shard
from tensortide.placements.graphs.hosts import Launch
from tensortide.placements.graphs.schedules import Priority, ScheduleName
from tensortide.placements.graphs.units import REPLICAS, STEPS, Grouping
from tensortide.request import Opt, Request
from tensortide.units import parse_bytes

_SIMULATION = f"{STEPS}: the simulation"


@dataclass(frozen=True)
class PlaceOptions(Request):
    """Options of a placement.

    The graph is the step of one micro-batch. ``pins``: device names by unit or module. ``in_flight``: a limit
    (``schedules.MicroBatchSchedule``). ``workspace``: what memory counts (``tables.step_of``). ``shards``: modules that
    are divided first, each of whose shards is a unit (``parallelism.shards``). ``overlap``: groups of ``data`` exchange
    gradients beside the computation (``replicas.replica_groups``).
    """

    grouping: Grouping = field(default_factory=Grouping)
    pins: Mapping[str, str] = field(default_factory=dict)
    schedule: Annotated[ScheduleName, Opt("Order of the micro-batches.")] = "recorded"
    micro_batches: Annotated[int, Opt("Passes of the captured step before one update.", least=1)] = 1
    priority: Annotated[
        Priority,
        Opt(
            "Which ready op runs first: the earliest recorded, or that with most after it; auto is the second on "
            "several devices, if it fits their memory.",
            group=_SIMULATION,
        ),
    ] = "auto"
    in_flight: int | None = None
    rule: Annotated[
        Rule,
        Opt(
            "When a tensor is released: last_use, after its last use; eager, when eager mode releases it, as memory "
            "and scale count.",
            "--lifetimes",
            group=_SIMULATION,
        ),
    ] = "last_use"
    workspace: Workspace = True
    staging: Annotated[bool, Opt("A transfer needs a second buffer where it starts.", group=_SIMULATION)] = False
    shards: tuple[Shard, ...] = ()
    data: Annotated[
        int,
        Opt("Groups of equal devices, in the order of the file, each with the step on its part of the batch.", least=1),
    ] = 1
    overlap: bool = True
    bucket_bytes: Annotated[
        int | None,
        Opt(
            "Size of the buckets in which groups exchange gradients as they become ready (default: 25MiB, the first "
            "1MiB); 0: each gradient by itself.",
            read=parse_bytes,
            least=0,
        ),
    ] = None
    launch: Annotated[
        Launch,
        Opt(
            "The host of each device issues its ops one by one, or in captured graphs; none: in no time.",
            group=_SIMULATION,
        ),
    ] = "eager"

    GROUP: ClassVar[str] = REPLICAS

    def __post_init__(self) -> None:
        """Raise RequestError for an option that has no such value, and for bytes of workspaces that cannot be."""
        super().__post_init__()
        workspace: object = self.workspace
        given = workspace if isinstance(workspace, Iterable) and not isinstance(workspace, str) else (workspace,)
        if not all(isinstance(nbytes, Integral) and int(nbytes) >= 0 for nbytes in given):
            raise RequestError(f"the workspace is True, False or the bytes of each op, not {self.workspace!r}")
