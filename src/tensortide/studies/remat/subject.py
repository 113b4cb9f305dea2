"""A step that experiments are made with: its simulators, its figures, and what identifies it."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tensortide.plans.remat.choice import policy, source_digest
from tensortide.replays.remat.simulation import Deallocation
from tensortide.replays.remat.simulator import Simulator, op_bytes
from tensortide.studies.remat.results import Cell, Run, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensortide.plans.remat.schedule import Recording


class Subject:
    """``recording`` under a name, to be played with any deallocation; see ``Simulator`` for the options."""

    def __init__(self, name: str, recording: Recording, *, compat: bool = False, device: str = "") -> None:
        self.name, self.recording, self.compat, self.device = name, recording, compat, device

    def __reduce__(self) -> tuple[Callable[..., Subject], tuple[str, Recording]]:
        """Pickle for another process, without what can be derived again in it."""
        return functools.partial(type(self), compat=self.compat, device=self.device), (self.name, self.recording)

    @functools.cached_property
    def _eager(self) -> Simulator:
        return Simulator(self.recording, compat=self.compat, device=self.device)

    def simulator(self, deallocation: Deallocation = "eager") -> Simulator:
        """The step, ready to be played."""
        return self._eager.by(deallocation)

    @property
    def baseline_bytes(self) -> int:
        """Peak without a budget."""
        return self._eager.baseline_bytes

    @functools.cached_property
    def step(self) -> Step:
        """Facts about the step, known before any run."""
        schedule = self._eager.schedule
        return Step(
            name=self.name,
            device=schedule.device,
            ops=len(self.recording.graph),
            durations=self.recording.source or "unknown",
            compat=self.compat,
            model_ns=schedule.model_ns,
            baseline_bytes=self.baseline_bytes,
            constant_bytes=schedule.constant_bytes,
            bottleneck_bytes=max(op_bytes(schedule, self.compat, constants=False), default=0),
        )

    def is_compiled(self, cell: Cell) -> bool:
        """Return whether the compiled engine plays ``cell``."""
        return self.simulator(cell.deallocation).has_kernel(policy(cell.policy))

    def play(self, cell: Cell) -> Run:
        """The run that ``cell`` describes."""
        simulation = self.simulator(cell.deallocation).run(
            cell.policy, cell.budget_bytes, overhead_limit=cell.overhead_limit, exhaustive=cell.exhaustive
        )
        seen = simulation.evaluations + simulation.accesses if self.is_compiled(cell) else None
        figures = {name: getattr(simulation, name) for name in Run.__struct_fields__}
        return Run(**{**figures, "accesses": seen})

    def key(self, cell: Cell) -> str:
        """Hexadecimal digest of all that decides what comes of ``cell``: the step, the rules, and the program."""
        own = source_digest(cell.policy)
        parts = (self._identity, _program(), self.is_compiled(cell), cell, *([own] if own else []))
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]

    @functools.cached_property
    def _identity(self) -> str:
        schedule = self._eager.schedule
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
    folders = (room.parent.parent / "plans" / "remat", room.parent.parent / "replays" / "remat", room)
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]
