"""The Timeline: everything that happens when a step is played, with its times and the bytes resident meanwhile."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from types import NoneType
from typing import TYPE_CHECKING, Annotated, NamedTuple

from tensortide.errors import GraphError, NoSuchOp, check_argument
from tensortide.graph.model import Graph, Phase, Role
from tensortide.graph.roles import WORKSPACE
from tensortide.graph.validate import require_graph
from tensortide.memory.lifetimes import Lifetimes, Rule
from tensortide.memory.lifetimes import lifetimes as lifetimes_of
from tensortide.memory.rounding import EXACT, Rounding
from tensortide.memory.workspace import Workspace, workspace_bytes
from tensortide.shown import Show, Shown
from tensortide.timelines.diff import TimelineFigures
from tensortide.timelines.events import Events, Kind
from tensortide.timelines.resident import Resident, resident

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tensortide.memory.lifetimes import Ints


class Timeline(Shown):
    """Timeline of playing the step ``recorded``: its ``events``, and the bytes resident on ``device``.

    Predicted, simulated and measured Timelines are of this type, so that any two can be compared (``timelines.diff``).
    ``lanes`` are the queues on which events run: the device's own is number 0; copy engines of links and further
    devices follow. A Timeline without durations has ``timed`` False and 0 for all times.
    """

    SECTION = "difference"

    def __init__(self, recorded: Graph, device: str, events: Callable[[], Events], lanes: tuple[str, ...] = ()) -> None:
        self.recorded = recorded
        self.device = device
        self.lanes = lanes or (device,)
        self._make_events = events

    @functools.cached_property
    def events(self) -> Events:
        """Everything that happens, in order."""
        return self._make_events()

    # The ops that run

    @functools.cached_property
    def _runs(self) -> Ints:
        """Positions among the events of those that run an op."""
        return (self.events.kind <= Kind.RECOMPUTE).nonzero()[0]

    @functools.cached_property
    def run_op(self) -> Ints:
        """For each op run the op of ``recorded`` (-1: one of an earlier step)."""
        return self.events.index[self._runs]

    @functools.cached_property
    def is_recompute(self) -> NDArray[np.bool_]:
        """For each op run whether it recomputes a value."""
        flags: NDArray[np.bool_] = self.events.kind[self._runs] == Kind.RECOMPUTE
        return flags

    @functools.cached_property
    def run_start_ns(self) -> Ints:
        """For each op run its start."""
        return self.events.start_ns[self._runs]

    @functools.cached_property
    def run_ns(self) -> Ints:
        """For each op run its duration."""
        return (self.events.end_ns - self.events.start_ns)[self._runs]

    @functools.cached_property
    def resident(self) -> Ints:
        """Bytes resident during each op run, workspace included."""
        return self.events.resident_bytes[self._runs]

    # In numbers

    @property
    def timed(self) -> bool:
        """True if durations are known."""
        return bool(self.events.end_ns.any())

    @property
    def peak_bytes(self) -> int:
        """Most bytes resident during any op run (0 if there is none)."""
        return int(self.resident.max()) if len(self.resident) else 0

    @property
    def peak_op(self) -> Annotated[int, Show(unit="op", data=True)]:
        """Position of the first op run during which ``peak_bytes`` are resident (-1 if there is none)."""
        return int(self.resident.argmax()) if len(self.resident) else -1

    @property
    def makespan_ns(self) -> int:
        """Time from the first start to the last end."""
        events = self.events
        return int(events.end_ns.max() - events.start_ns.min()) if len(events) else 0

    @property
    def figures(self) -> TimelineFigures:
        """The Timeline in a few numbers."""
        recomputed = self.is_recompute
        return TimelineFigures(
            peak_bytes=self.peak_bytes,
            evictions=int((self.events.kind == Kind.EVICT).sum()),
            recomputations=int(recomputed.sum()),
            base_ns=int(self.run_ns[~recomputed].sum()),
            recompute_ns=int(self.run_ns[recomputed].sum()),
        )


class Playback(NamedTuple):
    """Recorded step as a Plan executes it: for each op that runs its number in ``recorded`` (``ops``) and whether it is
    ``recomputed``; and ``evicted``, storages of ``recorded`` with the number of ops that ran before."""

    recorded: Graph
    ops: Sequence[int]
    recomputed: Sequence[bool]
    evicted: Sequence[tuple[int, int]]


class StorageTimeline(Timeline):
    """A Timeline that follows from the lifetimes of storages; see ``timeline`` and ``replays.replay``, which make it.

    ``graph`` is the step as it is executed: its ops are the op runs, and all series have an entry for each. A storage
    is resident during op *k* if it was allocated before or by *k* and is released after *k*: outputs and the inputs
    they are computed from count together. Series are int64 arrays.
    """

    def __init__(
        self,
        graph: Graph,
        lives: Lifetimes,
        rule: Rule,
        rounding: Rounding,
        device: str,
        workspace: Workspace,
        durations_ns: Sequence[int] | None = None,
        playback: Playback | None = None,
        lanes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(graph if playback is None else playback.recorded, device, self._events, lanes)
        if durations_ns is not None and len(durations_ns) != len(graph):
            raise GraphError(f"{len(durations_ns)} durations for {len(graph)} ops")
        if durations_ns is not None and any(ns < 0 for ns in durations_ns):
            raise GraphError("durations cannot be less than 0 ns")
        self.graph = graph
        self.lifetimes: Rule = rule
        self.rounding = rounding
        self.durations_ns = None if durations_ns is None else tuple(durations_ns)
        self._lives = lives
        self._with_workspace = workspace
        self._playback = playback

    def _events(self) -> Events:
        import numpy as np

        count, played = len(self.graph), self._playback
        ops = np.arange(count) if played is None else np.array(played.ops, np.int64)
        kinds = np.zeros(count, np.int64) if played is None else np.array(played.recomputed, np.int64)
        ends = np.cumsum(np.array(self.durations_ns or (0,) * count, np.int64))
        starts = np.concatenate([ends[:0], [0], ends[:-1]])[:count].astype(np.int64)
        columns = [kinds, ops, np.zeros(count, np.int64), starts, ends, self.resident]
        if played is not None and played.evicted:
            at, storages = np.array(played.evicted, np.int64).T
            clock, levels = np.append(starts, ends[-1:] if count else [0]), self.before
            rows = (np.full(len(at), Kind.EVICT), storages, 0 * at, clock[at], clock[at], levels[at])
            columns = [np.insert(column, at, row) for column, row in zip(columns, rows, strict=True)]
        return Events(*columns)

    @functools.cached_property
    def workspace(self) -> Ints:
        """Bytes that the kernel of each op takes beside its inputs and outputs, as far as known."""
        return workspace_bytes(self.graph, self.device, self._with_workspace)

    @functools.cached_property
    def _on_device(self) -> Ints:
        """Indexes of the storages on this device."""
        import numpy as np

        return np.flatnonzero([storage.device == self.device for storage in self.graph.storages])

    @functools.cached_property
    def _local(self) -> Lifetimes:
        """Lifetimes of the storages on this device."""
        on_device, lives = self._on_device, self._lives
        return Lifetimes(lives.births[on_device], lives.deaths[on_device], lives.nbytes[on_device])

    def _series(self, births: Ints, deaths: Ints, nbytes: Ints) -> Ints:
        """Bytes of such storages that are resident during each op."""
        import numpy as np

        change = np.zeros(len(self.graph) + 2, np.int64)
        np.add.at(change, np.maximum(births, 0), nbytes)
        np.subtract.at(change, deaths, nbytes)
        return np.cumsum(change)[: len(self.graph)]

    @functools.cached_property
    def resident(self) -> Ints:
        """Bytes resident during each op, workspace included."""
        local = self._local
        return self._series(local.births, local.deaths, local.nbytes) + self.workspace

    @functools.cached_property
    def by_role(self) -> Mapping[str, Ints]:
        """``resident`` split by the role of the storages (those that occur), and ``workspace`` if there is any."""
        import numpy as np

        order, local = list(Role), self._local
        roles = np.array([order.index(self.graph.storages[index].role) for index in self._on_device.tolist()], np.int64)
        split: dict[str, Ints] = {}
        for number in np.unique(roles):
            own = roles == number
            split[order[number]] = self._series(local.births[own], local.deaths[own], local.nbytes[own])
        if self.workspace.any():
            split[WORKSPACE] = self.workspace
        return split

    @property
    def peak_bytes(self) -> Annotated[int, Show("Peak memory")]:
        """Most bytes resident during any op; for a step without ops, ``start_bytes``."""
        return super().peak_bytes if len(self.graph) else self.start_bytes

    @property
    def peak_by_phase(self) -> dict[Phase, int]:
        """Most bytes resident during any op of each phase that occurs."""
        phases = [op.phase for op in self.graph.ops]
        return {phase: int(self.resident[[one is phase for one in phases]].max()) for phase in Phase if phase in phases}

    @property
    def footprint_bytes(self) -> Annotated[int, Show("all storages", level=1)]:
        """Sum of the bytes of all storages of the step on this device, whether or not resident together."""
        return int(self._local.nbytes.sum())

    @functools.cached_property
    def allocated(self) -> Ints:
        """Bytes that each op allocates and that outlive its kernel."""
        return self._sums(self._local.births)[1:-2]

    @functools.cached_property
    def released(self) -> Ints:
        """Bytes released right after each op, before the next one starts."""
        return self._sums(self._local.deaths)[2:-1]

    @functools.cached_property
    def before(self) -> Ints:
        """Bytes resident just before each op starts, and as a last entry those after the step."""
        import numpy as np

        return np.cumsum(np.append([self.start_bytes], self.allocated - self.released)).astype(np.int64)

    def _sums(self, moments: Ints) -> Ints:
        """Bytes of the storages on this device by their moment, from -1 (before the step) to beyond its end."""
        import numpy as np

        sums = np.zeros(len(self.graph) + 3, np.int64)
        np.add.at(sums, moments + 1, self._local.nbytes)
        return sums

    @property
    def persistent_bytes(self) -> Annotated[int, Show("persistent", level=1)]:
        """Bytes resident throughout, which exist before the step and after it: model, optimizer state, inputs that the
        caller keeps, gradients that are accumulated into."""
        local = self._local
        return int(local.nbytes[(local.births < 0) & (local.deaths > len(self.graph))].sum())

    @property
    def start_bytes(self) -> int:
        """Bytes resident when the first op starts: of what exists before the step that which no ``zero_grad`` or the
        like releases first."""
        return int(self._local.nbytes[(self._local.births < 0) & (self._local.deaths > 0)].sum())

    @property
    def end_bytes(self) -> int:
        """Bytes resident just after the step."""
        return int(self._local.nbytes[self._local.deaths > len(self.graph)].sum())

    @functools.cached_property
    def devices(self) -> Mapping[str, StorageTimeline]:
        """One Timeline per device of the graph, this one among them; the largest footprint first."""
        others = {
            device: timeline(
                self.graph,
                lifetimes=self.lifetimes,
                rounding=self.rounding,
                device=device,
                workspace=self._with_workspace is True,
                durations_ns=self.durations_ns,
            )
            for device in self.graph.index.devices
            if device != self.device
        }
        return {name: others.get(name, self) for name in self.graph.index.devices} or {self.device: self}

    @property
    def total_resident(self) -> Ints:
        """Bytes resident during each op, summed over all devices."""
        return sum((t.resident for t in self.devices.values()), start=0 * self.resident)

    def storages(self) -> Iterator[tuple[int, int, int, int]]:
        """Index, counted bytes, birth and death of each storage on this device (see ``lifetimes.Lifetimes``)."""
        columns = (self._on_device, self._local.nbytes, self._local.births, self._local.deaths)
        return zip(*(column.tolist() for column in columns), strict=True)

    def alive(self, at: int | None = None, top: int | None = None) -> tuple[Resident, ...]:
        """Storages resident during op ``at`` (default: the peak), largest first, at most ``top`` of them.

        Their bytes sum to ``resident[at]`` less the workspace. Raises NoSuchOp if there is no op ``at``.
        """
        import numpy as np

        at = self.peak_op if at is None else at
        if not 0 <= at < len(self.graph):
            raise NoSuchOp(f"there is no op {at}: the step has {len(self.graph)} ops")
        local = self._local
        rows = np.flatnonzero((local.births <= at) & (at < local.deaths))
        rows = rows[np.argsort(-local.nbytes[rows], kind="stable")][:top]
        paths = {module.path: i for i, module in enumerate(self.graph.modules)}
        found = zip(*(column[rows].tolist() for column in (self._on_device, local.nbytes, local.deaths)), strict=True)
        return tuple(resident(self.graph, index, nbytes, death, paths) for index, nbytes, death in found)


def timeline(
    graph: Graph,
    *,
    lifetimes: Rule = "eager",
    rounding: Rounding | None = None,
    device: str | None = None,
    workspace: Workspace = True,
    durations_ns: Sequence[int] | None = None,
    playback: Playback | None = None,
    lanes: tuple[str, ...] = (),
) -> StorageTimeline:
    """The Timeline of ``graph`` as recorded: the bytes resident on ``device`` during each op, and its times.

    ``lifetimes``: ``eager`` releases storages when the recorded step did; ``last_use`` right after their last use,
    as a compiler could (see ``memory.lifetimes``). ``rounding`` is the allocator's (default: bytes as requested).
    ``device``: default ``Index.main_device``; ``Timeline.devices`` has all. ``workspace`` adds what kernels are known
    to take inside an op (``memory.workspace``). ``durations_ns``: the time of each op, one after the other.
    ``playback`` and ``lanes``: of a graph that a plan executes (``replays.replay``). Linear in ops and storages.

    Raises GraphError if the graph has no such device, or has loops, and for durations that do not fit.
    """
    require_graph(graph, "timeline")
    check_argument("rounding", rounding, (Rounding, NoneType), "a Rounding of tensortide.memory, or None")
    check_argument("workspace", workspace, (bool, Sized), "True, False or the bytes of each op")
    check_argument("durations_ns", durations_ns, (Sized, NoneType), "the time of each op, or None")
    check_argument("playback", playback, (Playback, NoneType), "a Playback, or None")
    device = graph.index.device(device)
    rounding = rounding or EXACT
    lives = lifetimes_of(graph, lifetimes)
    lives = Lifetimes(lives.births, lives.deaths, rounding(lives.nbytes))
    return StorageTimeline(graph, lives, lifetimes, rounding, device, workspace, durations_ns, playback, lanes)
