"""A step that experiments are made with: its simulators, its figures, and what identifies it."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tensortide.plans.remat.choice import policy, source_digest
from tensortide.replays.remat.outcome import Deallocation
from tensortide.replays.remat.simulator import Simulator
from tensortide.studies.remat.results import Cell, Run, Step

if TYPE_CHECKING:
    from tensortide.plans.remat.recording import Recording
    from tensortide.plans.remat.schedule import Schedule

__all__ = ["Subject"]


class Subject:
    """``recording`` under a name, to be played with any deallocation; see ``Simulator`` for the options."""

    def __init__(
        self, name: str, recording: Recording, *, compat: bool = False, workspace: bool = True, device: str = ""
    ) -> None:
        self.name, self.recording, self.compat, self.workspace, self.device = name, recording, compat, workspace, device
        self._simulators: dict[Deallocation, Simulator] = {}

    def __getstate__(self) -> dict[str, object]:
        """Pickle for another process, without what can be derived again in it."""
        kept = ("name", "recording", "compat", "workspace", "device")
        return {**{name: getattr(self, name) for name in kept}, "_simulators": {}}

    def simulator(self, deallocation: Deallocation = "eager") -> Simulator:
        """The step, ready to be played."""
        if deallocation not in self._simulators:
            self._simulators[deallocation] = Simulator(
                self.recording,
                compat=self.compat,
                deallocation=deallocation,
                workspace=self.workspace,
                device=self.device,
            )
        return self._simulators[deallocation]

    @functools.cached_property
    def baseline_bytes(self) -> int:
        """Peak without a budget."""
        return self.simulator().baseline_bytes

    @functools.cached_property
    def step(self) -> Step:
        """Facts about the step, known before any run."""
        schedule = self.simulator().schedule
        return Step(
            name=self.name,
            device=schedule.device,
            ops=len(self.recording.graph),
            durations=self.recording.source,
            compat=self.compat,
            model_ns=schedule.model_ns,
            baseline_bytes=self.baseline_bytes,
            constant_bytes=schedule.constant_bytes,
            bottleneck_bytes=_bottleneck(schedule, self.compat),
        )

    def is_compiled(self, cell: Cell) -> bool:
        """Return whether the compiled engine plays ``cell``."""
        return self.simulator(cell.deallocation).has_kernel(policy(cell.policy))

    def play(self, cell: Cell) -> Run:
        """The run that ``cell`` describes."""
        simulation = self.simulator(cell.deallocation).run(
            cell.policy, cell.budget_bytes, overhead_limit=cell.overhead_limit, exhaustive=cell.exhaustive
        )
        seen = simulation.outcome.evaluations + simulation.outcome.accesses
        return Run(
            status=simulation.status,
            overhead=simulation.overhead,
            clock_ns=simulation.clock_ns,
            remat_ns=simulation.remat_ns,
            peak_bytes=simulation.peak_bytes,
            evictions=simulation.evictions,
            recomputations=simulation.recomputations,
            evaluations=simulation.outcome.evaluations,
            accesses=seen if self.is_compiled(cell) else None,
            eviction_hash=simulation.eviction_hash,
        )

    def key(self, cell: Cell) -> str:
        """Hexadecimal digest of all that decides what comes of ``cell``: the step, the rules, and the program."""
        own = source_digest(cell.policy)
        parts = (self._identity, _program(), self.is_compiled(cell), cell, *([own] if own else []))
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]

    @functools.cached_property
    def _identity(self) -> str:
        schedule = self.simulator().schedule
        digest = hashlib.sha256(f"{self.compat} {schedule.device}".encode())
        for name in schedule.__dataclass_fields__:
            column = getattr(schedule, name)
            if hasattr(column, "tobytes"):
                digest.update(f"{name} {len(column)}".encode())
                digest.update(column.tobytes())
        return digest.hexdigest()


@functools.cache
def _program() -> str:
    """Digest of the sources of policies and engines: another version may come to other results."""
    digest = hashlib.sha256()
    for path in program_files():
        digest.update(path.read_bytes())
    return digest.hexdigest()


def program_files() -> list[Path]:
    """The sources that results depend on: policies, engines and this room."""
    room = Path(__file__).parent
    package = room.parent.parent
    folders = (package / "plans" / "remat", package / "replays" / "remat", package / "replays" / "remat" / "fast", room)
    return [path for folder in folders for path in sorted(folder.glob("*.py"))]


def _bottleneck(schedule: Schedule, compat: bool) -> int:
    """The most bytes that an op needs at once for what it reads and makes.

    As DTR's simulator counts, everything that it reads counts where it was made, views as nothing; else storages count
    in full and once, and constants do not: they are there anyway.
    """
    nbytes, storage = schedule.nbytes.tolist(), schedule.storage.tolist()
    sizes, fixed = schedule.storage_bytes.tolist(), schedule.fixed.tolist()
    ends, makes = schedule.input_ends.tolist(), schedule.output_ends.tolist()
    extra, inputs = schedule.extra_bytes.tolist(), schedule.inputs.tolist()
    most = 0
    for op in range(len(extra)):
        read = inputs[ends[op] : ends[op + 1]]
        needed = extra[op] + sum(nbytes[makes[op] : makes[op + 1]])
        if compat:
            needed += sum(nbytes[value] for value in read)
        else:
            needed += sum(sizes[s] for s in {storage[value] for value in read} if not fixed[s])
        most = max(most, needed)
    return most
