"""Bytes resident during each op of a step: the series, its peak, and what was alive there."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tensortide.errors import NoSuchOp
from tensortide.graph.model import Graph, Phase, Role
from tensortide.graph.roles import WORKSPACE
from tensortide.memory.lifetimes import Lifetimes, Rule
from tensortide.memory.lifetimes import lifetimes as lifetimes_of
from tensortide.memory.resident import Resident, resident
from tensortide.memory.rounding import EXACT, Rounding
from tensortide.memory.workspace import workspace_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tensortide.memory.lifetimes import Ints


class Timeline:
    """Bytes resident on ``device`` during each op of ``graph``; see ``timeline``, which makes it.

    A storage is resident during op *k* if it was allocated before or by *k* and is released after *k*: outputs and
    the inputs they are computed from count together. Series are int64 arrays with one entry per op.
    """

    def __init__(
        self, graph: Graph, lives: Lifetimes, rule: Rule, rounding: Rounding, device: str, workspace: bool
    ) -> None:
        self.graph = graph
        self.lifetimes: Rule = rule
        self.rounding = rounding
        self.device = device
        self._lives = lives
        self._with_workspace = workspace

    @functools.cached_property
    def workspace(self) -> Ints:
        """Bytes that the kernel of each op takes beside its inputs and outputs, as far as known."""
        import numpy as np

        if self._with_workspace:
            return workspace_bytes(self.graph, self.device)
        return np.zeros(len(self.graph), np.int64)

    @functools.cached_property
    def _here(self) -> Ints:
        """Indexes of the storages on this device."""
        import numpy as np

        return np.flatnonzero([storage.device == self.device for storage in self.graph.storages])

    @functools.cached_property
    def resident(self) -> Ints:
        """Bytes resident during each op, workspace included."""
        return _series(self._lives, self._here, len(self.graph)) + self.workspace

    @functools.cached_property
    def by_role(self) -> Mapping[str, Ints]:
        """``resident`` split by the role of the storages (those that occur), and ``workspace`` if there is any."""
        import numpy as np

        order = list(Role)
        numbers = {role: i for i, role in enumerate(order)}
        roles = np.fromiter((numbers[s.role] for s in self.graph.storages), np.int64, len(self.graph.storages))
        roles = roles[self._here]
        split: dict[str, Ints] = {
            order[i]: _series(self._lives, self._here[roles == i], len(self.graph)) for i in np.unique(roles)
        }
        if self.workspace.any():
            split[WORKSPACE] = self.workspace
        return split

    @property
    def peak_bytes(self) -> int:
        """Most bytes resident during any op; for a step without ops, ``at_start``."""
        return int(self.resident.max()) if len(self.graph) else self.at_start

    @property
    def peak_op(self) -> int:
        """Index of the first op during which ``peak_bytes`` are resident (-1 for a step without ops)."""
        return int(self.resident.argmax()) if len(self.graph) else -1

    @property
    def peak_by_phase(self) -> dict[Phase, int]:
        """Most bytes resident during any op of each phase that occurs."""
        import numpy as np

        order = list(Phase)
        numbers = {phase: i for i, phase in enumerate(order)}
        phases = np.fromiter((numbers[op.phase] for op in self.graph.ops), np.int64, len(self.graph))
        return {order[i]: int(self.resident[phases == i].max()) for i in np.unique(phases)}

    @property
    def footprint_bytes(self) -> int:
        """Sum of the bytes of all storages of the step on this device, whether or not resident together."""
        return int(self._lives.nbytes[self._here].sum())

    @functools.cached_property
    def allocated(self) -> Ints:
        """Bytes that each op allocates and that outlive its kernel."""
        return self._sums(self._lives.births, range(len(self.graph)))

    @functools.cached_property
    def released(self) -> Ints:
        """Bytes released right after each op, before the next one starts."""
        return self._sums(self._lives.deaths, range(1, len(self.graph) + 1))

    @functools.cached_property
    def before(self) -> Ints:
        """Bytes resident just before each op starts, and as a last entry those after the step."""
        import numpy as np

        levels = np.full(len(self.graph) + 1, self.at_start, np.int64)
        levels[1:] += np.cumsum(self.allocated - self.released)
        return levels

    def _sums(self, moments: Ints, counted: range) -> Ints:
        """Bytes of the storages here by their moment, for the moments ``counted``."""
        import numpy as np

        sums = np.zeros(len(self.graph) + 3, np.int64)
        np.add.at(sums, moments[self._here] + 1, self._lives.nbytes[self._here])
        return sums[counted.start + 1 : counted.stop + 1]

    @property
    def persistent_bytes(self) -> int:
        """Bytes resident throughout, which exist before the step and after it: model, optimizer state, inputs that the
        caller keeps, gradients that are accumulated into."""
        here, lives = self._here, self._lives
        throughout = (lives.births[here] < 0) & (lives.deaths[here] > len(self.graph))
        return int(lives.nbytes[here][throughout].sum())

    @property
    def at_start(self) -> int:
        """Bytes resident when the first op starts: of what exists before the step that which no ``zero_grad`` or the
        like releases first."""
        here, lives = self._here, self._lives
        return int(lives.nbytes[here][(lives.births[here] < 0) & (lives.deaths[here] > 0)].sum())

    @property
    def at_end(self) -> int:
        """Bytes resident just after the step."""
        here = self._here
        return int(self._lives.nbytes[here][self._lives.deaths[here] > len(self.graph)].sum())

    @functools.cached_property
    def devices(self) -> Mapping[str, Timeline]:
        """One Timeline per device of the graph, this one among them; the largest footprint first."""
        others = {
            device: timeline(
                self.graph,
                lifetimes=self.lifetimes,
                rounding=self.rounding,
                device=device,
                workspace=self._with_workspace,
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
        here, lives = self._here, self._lives
        columns = (here, lives.nbytes[here], lives.births[here], lives.deaths[here])
        return zip(*(column.tolist() for column in columns), strict=True)

    def alive(self, at: int | None = None, top: int | None = None) -> tuple[Resident, ...]:
        """Storages resident during op ``at`` (default: the peak), largest first, at most ``top`` of them.

        Their bytes sum to ``resident[at]`` less the workspace. Raises NoSuchOp if there is no op ``at``.
        """
        import numpy as np

        at = self.peak_op if at is None else at
        if not 0 <= at < len(self.graph):
            raise NoSuchOp(f"there is no op {at}: the step has {len(self.graph)} ops")
        births, deaths, nbytes = self._lives.births, self._lives.deaths, self._lives.nbytes
        here = self._here[(births[self._here] <= at) & (at < deaths[self._here])]
        here = here[np.argsort(-nbytes[here], kind="stable")][:top]
        paths = {module.path: i for i, module in enumerate(self.graph.modules)}
        return tuple(resident(self.graph, i, int(nbytes[i]), int(deaths[i]), paths) for i in here.tolist())


def timeline(
    graph: Graph,
    *,
    lifetimes: Rule = "eager",
    rounding: Rounding | None = None,
    device: str | None = None,
    workspace: bool = True,
) -> Timeline:
    """Bytes resident on ``device`` during each op of ``graph``.

    ``lifetimes``: ``eager`` releases storages when the recorded step did; ``last_use`` right after their last use,
    as a compiler could (see ``memory.lifetimes``). ``rounding`` is the allocator's (default: bytes as requested).
    ``device``: default ``Index.main_device``; ``Timeline.devices`` has all. ``workspace`` adds what kernels are known
    to take inside an op (``memory.workspace``). Linear in ops and storages.

    Raises GraphError if the graph has no such device, or has loops.
    """
    device = graph.index.device(device)
    rounding = rounding or EXACT
    lives = lifetimes_of(graph, lifetimes)
    lives = Lifetimes(lives.births, lives.deaths, rounding.array(lives.nbytes))
    return Timeline(graph, lives, lifetimes, rounding, device, workspace)


def _series(lives: Lifetimes, which: Ints, count: int) -> Ints:
    """Bytes of the storages ``which`` that are resident during each of ``count`` ops."""
    import numpy as np

    change = np.zeros(count + 2, np.int64)
    np.add.at(change, np.maximum(lives.births[which], 0), lives.nbytes[which])
    np.subtract.at(change, lives.deaths[which], lives.nbytes[which])
    return np.cumsum(change)[:count]
