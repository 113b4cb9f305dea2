"""A memory snapshot as a Graph: an op for every allocation, and a storage that lives as its block did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tensortide.errors import TraceError
from tensortide.graph import Graph, GraphBuilder, Phase, Role, validate
from tensortide.importers.memory_snapshot.records import Event, Snapshot, Stack, asked, holder
from tensortide.timing.durations import Durations, identity

OUT_OF_MEMORY = "memory.out_of_memory"
ASSUMED = (
    "each op is an allocation, named after the op of PyTorch that asked for it: what the step computes is unknown",
    "sizes are the bytes that were asked for; lifetimes are those of the blocks, phases and roles follow from stacks",
)


@dataclass
class Life:
    """A storage: its bytes, device, address, stack; the op that allocated it (None: before the recording), its end."""

    nbytes: int
    device: int
    address: int
    stack: Stack
    birth: int | None
    death: int | None = None


@dataclass
class Recorded:
    """A recording taken apart: the events that are ops, the lives of blocks, events without an allocation."""

    ops: list[Event] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)

    def add(self, event: Event, live: dict[tuple[int, int], Life]) -> None:
        """Play one event; ``live`` are the blocks by device and address."""
        place = event.device, event.address
        if event.action == "oom":
            self.ops.append(event)
        elif event.action == "alloc":
            if (lost := live.get(place)) is not None:  # its release is missing: the recording keeps so many events
                lost.death = len(self.ops)
            life = Life(event.asked_bytes, event.device, event.address, event.stack, len(self.ops))
            self.ops.append(event)
            self.lives.append(life)
            live[place] = life
        elif event.action == "free_completed":
            if (life_ended := live.pop(place, None)) is None:
                life_ended = Life(event.asked_bytes, event.device, event.address, (), None)
                self.lives.append(life_ended)
            life_ended.death = len(self.ops)


def play(snapshot: Snapshot) -> Recorded:
    """Take a recording apart. Blocks that are active at its end and that it does not allocate were there before it."""
    recorded, live = Recorded(), dict[tuple[int, int], Life]()
    for event in snapshot.events:
        recorded.add(event, live)
    for segment in snapshot.segments:
        for block in segment.blocks:
            if block.active and (segment.device, block.address) not in live:
                recorded.lives.append(Life(block.nbytes, segment.device, block.address, block.stack, None))
    return recorded


def graph_of(snapshot: Snapshot) -> tuple[Graph, Durations]:
    """Make the Graph and the time from each allocation to the next. Raises TraceError for a recording without any."""
    recorded = play(snapshot)
    if not recorded.ops:
        raise TraceError(
            f"{snapshot.path} has no allocations: call torch.cuda.memory._record_memory_history() before the step, and "
            "_dump_snapshot after it"
        )
    roles = list(_roles(recorded))
    builder = GraphBuilder(snapshot.path.rpartition("/")[2], framework="torch.cuda.memory snapshot")
    builder.assume(*ASSUMED)
    born: dict[int, int] = {}
    given: list[int] = []
    for at, life in enumerate(recorded.lives):
        if life.birth is None:
            given.append(at)
        else:
            born[life.birth] = at
    order = [*given]
    for at in given:
        life = recorded.lives[at]
        with builder.on(f"cuda:{life.device}"):
            builder.value(_name(life), (life.nbytes,), "uint8", role=Role.INPUT)
    for op, event in enumerate(recorded.ops):
        _add(builder, event, recorded, born.get(op), roles)
        if op in born:
            order.append(born[op])
    graph = _with_lives(builder.build(), recorded, order, roles)
    validate(graph)
    return graph, _durations(graph, recorded.ops)


def _name(life: Life) -> str:
    return holder(asked(life.stack).source) if life.stack else ""


def _add(builder: GraphBuilder, event: Event, recorded: Recorded, at: int | None, roles: Sequence[Role]) -> None:
    """Append the op of an allocation, or of the failure of one."""
    by = asked(event.stack)
    name = OUT_OF_MEMORY if event.action == "oom" else f"memory.{by.op or 'alloc'}"
    source = by.source
    place = ("", 0, "") if source is None else (source.file, source.line, source.function)
    with builder.phase(by.phase), builder.source(*place), builder.on(f"cuda:{event.device}"):
        if at is None:
            builder.ops(name, arguments={"nbytes": event.asked_bytes, "device_free": event.device_free_bytes})
        else:
            builder.op(name, out=(event.asked_bytes,), dtype="uint8", role=roles[at])


def _with_lives(graph: Graph, recorded: Recorded, order: Sequence[int], roles: Sequence[Role]) -> Graph:
    """Give the storages, which are in ``order``, the lifetimes of their blocks."""
    from msgspec.structs import replace

    storages = tuple(
        replace(storage, death=recorded.lives[at].death, role=roles[at])
        for storage, at in zip(graph.storages, order, strict=True)
    )
    return replace(graph, storages=storages)


def _roles(recorded: Recorded) -> Iterator[Role]:
    """Tell the role of each life from its stack, and from what it outlives.

    What the optimizer allocates and keeps is its state; what the backward pass leaves behind are gradients; what the
    forward pass leaves are activations.
    """
    phases = [asked(event.stack).phase for event in recorded.ops]
    ends = _run_ends(phases)
    for life in recorded.lives:
        by = asked(life.stack)
        after = life.death is None or life.birth is None or life.death > ends[life.birth]
        if by.library:
            yield Role.LIBRARY
        elif by.building and by.phase is Phase.FORWARD:
            yield Role.PARAMETER
        elif life.birth is None:
            yield Role.INPUT
        elif not after:
            yield Role.TEMPORARY
        elif by.phase is Phase.OPTIMIZER:
            yield Role.OPTIMIZER_STATE
        elif by.phase is Phase.BACKWARD:
            yield Role.GRADIENT
        else:
            yield Role.ACTIVATION if "forward" in by.calls or life.death is not None else Role.INPUT


def _run_ends(phases: Sequence[Phase]) -> list[int]:
    """For each op the end of the run of ops of its phase that it is in."""
    ends = [len(phases)] * len(phases)
    for op in range(len(phases) - 2, -1, -1):
        ends[op] = ends[op + 1] if phases[op] is phases[op + 1] else op + 1
    return ends


def _durations(graph: Graph, ops: Sequence[Event]) -> Durations:
    times = [event.time_us for event in ops]
    ns = tuple(1000 * max(0, later - time) for time, later in zip(times, [*times[1:], times[-1]], strict=True))
    return Durations(ns, "from each allocation of the recording to the next", "recorded", 0, identity(graph))
