"""The predicted Timeline of a step: the host that issues ops, and the device that runs them behind it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

from tensortide.graph.effects import reads_value
from tensortide.graph.model import Graph
from tensortide.shown import Show
from tensortide.timelines.events import Events, Kind
from tensortide.timelines.timeline import Timeline, timeline
from tensortide.timing.catalogue import Device
from tensortide.timing.durations import Durations
from tensortide.timing.estimates import WORST_SHARE, Estimate, Provenance
from tensortide.timing.intervals import UNMEASURED
from tensortide.timing.local import Local
from tensortide.timing.totals import total

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints

Launch: TypeAlias = Literal["eager", "graph"]

ISSUE_NS = 24_000
"""What a host takes to issue an op eagerly to a GPU: the floor of the fp32 steps of NeuSight's tables (PyTorch, six
NVIDIA GPUs), whose smallest ops wait so long for each other whatever the GPU."""
Side: TypeAlias = Literal["below", "above"]
HOST_ENDS: dict[Side, float] = {"below": 1 / 1.5, "above": 1.5}
"""Ends of the interval of that: hosts differ by a factor of 1.5."""
CPU_OVERHEAD = 0.038
"""Time between the ops of a step on a CPU, as a share of theirs: mean of eight measured training steps (1 to 7 %)."""


@dataclass(frozen=True)
class HostModel:
    """The host of a device. ``issue_ns`` is what one op takes it, 0 for a device that is the host itself. ``launch``:
    ``graph`` issues what lies between two synchronizing ops as one captured graph, with one launch. ``least`` is the
    least half-width of a step's interval."""

    issue_ns: int = ISSUE_NS
    launch: Launch = "eager"
    least: float = 0.0

    @classmethod
    def of(cls, device: Device, launch: Launch = "eager") -> HostModel:
        """The host of ``device``."""
        return cls(0 if device.kind == "cpu" else ISSUE_NS, launch, _least(device))


def _least(device: Device) -> float:
    """The least half-width of a step's interval, of which no op was measured on ``device``."""
    step = device.calibration.step_share if isinstance(device, Local) else 0.0
    calibrated = isinstance(device, Local) and device.same
    return max(step, UNMEASURED) if device.kind == "cpu" and not calibrated else step


class OpTimes(NamedTuple):
    """Times that each op takes the host and the device, in nanoseconds, and whether the host waits for its result.

    ``after`` is the host's work after an op on a device that is the host itself.
    """

    host: Sequence[int]
    device: Sequence[int]
    waits: Sequence[bool]
    after: Sequence[int]


class StepTimeline(Timeline):
    """A predicted step: lane 0 is the device, lane 1 the host, if it is another machine.

    ``busy_ns``: the device runs ops; ``issuing_ns``: the host issues them; ``syncs``: ops whose result the host waits
    for. The rest of ``makespan_ns`` the device waits for the host. ``estimate`` is the makespan with its interval.
    """

    busy_ns: Annotated[int, Show("Busy", at_width=90)]
    issuing_ns: int
    syncs: int
    estimate: Estimate

    def __init__(self, graph: Graph, clocks: OpTimes, ops: Estimate, host: HostModel, device: str) -> None:
        self.clocks = clocks
        self.host = host
        lanes = (device, "host") if host.issue_ns else (device,)
        super().__init__(graph, device, self._events, lanes)
        self.busy_ns = sum(clocks.device)
        self.issuing_ns = sum(clocks.host)
        self.syncs = sum(clocks.waits)
        self.ops = ops
        self.estimate = _with_interval(self)

    @property
    def waiting_ns(self) -> Annotated[int, Show("Idle")]:
        """Time in which the device does not run ops: it waits for the host, or the framework works between ops."""
        return max(0, round(self.estimate.time_ns) - self.busy_ns)

    def end_ns(self, *, device: float = 1.0, host: float = 1.0) -> int:
        """The makespan, at least 1, if ops took ``device`` times as long, and the host ``host`` times to issue each."""
        clocks = self.clocks._replace(
            device=[round(ns * device) for ns in self.clocks.device], host=[round(ns * host) for ns in self.clocks.host]
        )
        return max(1, walk_end(clocks, self.host))

    def halves(self) -> dict[Side, float]:
        """Half-widths of the makespan's interval, in natural logarithms, where the host's time is known.

        None is below ``least`` of the host, by which whole steps were missed where they were measured; the share of
        the time that stored measurements tell is left out of it.
        """
        ops, ns = self.ops, self.end_ns()
        stored = sum(ops.by_provenance_ns.get(kind, 0.0) for kind in (Provenance.MEASURED, Provenance.INTERPOLATED))
        least = self.host.least * (1 - stored / ops.time_ns if ops.time_ns else 1.0)
        ends: dict[Side, float] = {"below": ops.low_ns, "above": ops.high_ns}
        return {
            side: max(least, abs(math.log(self.end_ns(device=end / ops.time_ns if ops.time_ns else 1.0) / ns)))
            for side, end in ends.items()
        }

    def _events(self) -> Events:
        import numpy as np

        issued, started, ended = walk(self.clocks, self.host)
        resident = timeline(self.recorded, device=self.device).resident
        ops = np.arange(len(self.recorded))
        runs: tuple[Ints, ...] = (0 * ops + Kind.RUN, ops, 0 * ops, started, ended, resident)
        if len(self.lanes) == 1:
            return Events(*runs)
        issues = (0 * ops + Kind.ISSUE, ops, 0 * ops + 1, issued - np.array(self.clocks.host), issued, resident)
        return Events(*(np.concatenate(pair) for pair in zip(runs, issues, strict=True)))


def step_timeline(graph: Graph, durations: Durations, device: Device, launch: Launch = "eager") -> StepTimeline:
    """Play the ops of ``graph`` (without loops) one after the other.

    The host issues an op and goes on; the device runs it when it has been issued and the one before is done. Where the
    host reads a result, it waits.

    Raises GraphError if the durations are of another graph.
    """
    durations.check(graph)
    host = HostModel.of(device, launch)
    name = graph.index.main_device
    return StepTimeline(graph, clocks(graph, durations, host, name), total(durations, range(len(graph))), host, name)


def step_ns(graph: Graph, durations: Durations, device: Device, launch: Launch = "eager") -> int:
    """The time of ``step_timeline`` alone, for those who ask for many."""
    durations.check(graph)
    host = HostModel.of(device, launch)
    return walk_end(clocks(graph, durations, host, graph.index.main_device), host)


def walk(clocks: OpTimes, host: HostModel) -> tuple[Ints, Ints, Ints]:
    """Return when each op has been issued, starts and ends."""
    import numpy as np

    own, device, after = (np.array(column, np.int64) for column in (clocks.host, clocks.device, clocks.after))
    taken = device + after
    issued, started = np.zeros_like(own), np.zeros_like(own)
    issuing = running = 0
    ends = [index + 1 for index, waits in enumerate(clocks.waits) if waits]
    for begin, end in itertools.pairwise([0, *ends, len(own)]):  # the host waits at the end of each but the last
        if begin == end:
            continue
        part = slice(begin, end)
        issued[part] = issuing + np.cumsum(own[part])
        before = np.cumsum(taken[part]) - taken[part]
        ready = issued[part] - before if host.issue_ns else np.full(end - begin, running)
        started[part] = before + np.maximum.accumulate(np.maximum(ready, running))
        running = int(started[end - 1] + taken[end - 1])
        issuing = max(int(issued[end - 1]), running)
    return issued, started, started + device


def clocks(graph: Graph, durations: Durations, host: HostModel, name: str) -> OpTimes:
    """Times of the ops of ``graph`` (without loops) on the device ``name``, whose host is ``host``.

    The device's part is that of the durations, but for ops that launch nothing there: views, and ops on the CPU.
    """
    if not host.issue_ns:
        return OpTimes((0,) * len(graph), durations.ns, (False,) * len(graph), _after(durations))
    facts = _facts(graph)
    there = [not view and (name in devices or not devices) for view, _, devices in facts]
    waits = [
        ran and (reads or (len(devices) > 1 and "cpu" in devices))
        for ran, (_, reads, devices) in zip(there, facts, strict=True)
    ]
    issue = [_view_ns(durations, i) if facts[i][0] else host.issue_ns for i in range(len(graph))]
    if launches_once(graph, host):
        issue = [host.issue_ns * (not i or waits[i - 1]) for i in range(len(graph))]
    device = [ns * ran for ns, ran in zip(durations.ns, there, strict=True)]
    return OpTimes(issue, device, waits, (0,) * len(graph))


def launches_once(graph: Graph, host: HostModel) -> bool:
    """Tell whether the host issues at once what lies between two ops whose result it waits for."""
    return host.launch == "graph" or _compiled_whole(graph)


def _compiled_whole(graph: Graph) -> bool:
    """Tell whether the step is one executable of XLA, as every jitted function is: the host issues it at once."""
    return len(graph) > 0 and all(view.name.startswith("jax.") for view in graph)


def _after(durations: Durations) -> list[int]:
    """The work of a CPU after each op: calibrated, else a share of the op's time."""
    rows, found = (durations.forecast.rows, durations.forecast.index) if durations.forecast is not None else ((), ())
    if any(row.host_ns for row in rows):
        return [round(rows[row].host_ns) for row in found]
    return [round(CPU_OVERHEAD * ns) for ns in durations.ns]


def _facts(graph: Graph) -> list[tuple[bool, bool, frozenset[str]]]:
    """Tell of each op whether it is a view and reads a value, and its devices."""
    places = [graph.storages[tensor.storage].device for tensor in graph.tensors]
    return [
        (view.is_view, reads_value(view), frozenset([places[tensor] for tensor in op.inputs + op.outputs]))
        for view, op in zip(graph, graph.ops, strict=True)
    ]


def _view_ns(durations: Durations, op: int) -> int:
    """Return what a view takes the host: its predicted time; measured ones have none on the device."""
    return durations.ns[op] if durations.forecast is not None else 0


def _with_interval(line: StepTimeline) -> Estimate:
    """The makespan, with what it becomes at the ends of the intervals of ops and host; both are independent."""
    ns, ops = line.end_ns(), line.ops
    ends = {
        side: math.hypot(half, math.log(line.end_ns(host=HOST_ENDS[side]) / ns)) for side, half in line.halves().items()
    }
    provenance = ops.provenance
    if line.host.issue_ns and ns - sum(line.clocks.device) > WORST_SHARE * ns:
        provenance = max(provenance, Provenance.EXTRAPOLATED)
    found = Estimate.of(ns, ends["below"], ends["above"], min(provenance, Provenance.PHYSICS), "step")
    return found if not ops.unknown else found + Estimate(unknown=ops.unknown)


def walk_end(clocks: OpTimes, host: HostModel) -> int:
    """Return when the step is over: for the device and for the host."""
    issued, _, ended = walk(clocks, host)
    if not len(ended):
        return 0
    return int(max(issued[-1], ended[-1] + clocks.after[-1]))
