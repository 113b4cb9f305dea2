"""Plans to execute a Graph: for each lane a sequence of steps, as frozen data; and their file.

Meaning of the steps, for every player (``plans.events`` has the times):

- Steps of a lane are issued one after the other; lanes run side by side.
- An op finds every storage it touches resident and in the state that the recorded step had it in; its outputs and its
  inputs are resident together while it runs.
- Memory is released implicitly, by the rule ``last_use`` of ``memory.lifetimes``: a storage that no later
  step of the plan touches, and that the step does not leave behind, is released right after the last step that touches
  it. A plan of ``Compute`` steps alone is an order, and that is all it has to say.
- ``Evict`` releases a resident storage at this very moment, even after its implicit release would be due. If it is
  touched again, its contents must be restored first: fetched from a tier, or made again: the ops that wrote them are
  recomputed, the allocating op first, then every op that wrote into it. An op may therefore be computed any number of
  times, but once at least.
- A recomputed op allocates only outputs that are not resident; a second copy of a resident output is released at
  once. It does not repeat updates that its outputs do not depend on, such as those of running statistics
  (``graph.effects.blind_slots``), and draws the random numbers that it drew first.
- ``Copy`` writes the present contents of a storage to the tier behind a link, whose copy of it they replace. ``Fetch``
  brings back a storage that is not resident, as the tier holds it. ``Drop`` makes the tier forget it; so does the end
  of its last use, unless the tier is its home.
- After the plan, persistent storages are at home and what the step leaves behind is on the device, as last written.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec

from tensortide.errors import PlanError, PlanFileError
from tensortide.graph.model import Graph
from tensortide.version import VERSION
from tensortide.versioned import Format, written_by
from tensortide.write import write_file


class Compute(msgspec.Struct, frozen=True, array_like=True, tag="compute", gc=False):
    """Run an op of the Graph, or recompute it if it ran before."""

    op: int


class Evict(msgspec.Struct, frozen=True, array_like=True, tag="evict", gc=False):
    """Release a resident storage and lose its contents."""

    storage: int


class Copy(msgspec.Struct, frozen=True, array_like=True, tag="copy", gc=False):
    """Copy the present contents of a resident storage to the tier behind ``link``; it stays resident."""

    storage: int
    link: str


class Offload(msgspec.Struct, frozen=True, array_like=True, tag="offload", gc=False):
    """``Copy`` a storage and, next, ``Evict`` it."""

    storage: int
    link: str = "host"


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag="fetch", gc=False):
    """Bring back what the last ``Copy`` of a storage over ``link``, or its home there, holds."""

    storage: int
    link: str = "host"


class Drop(msgspec.Struct, frozen=True, array_like=True, tag="drop", gc=False):
    """The tier behind ``link`` forgets its copy of a storage."""

    storage: int
    link: str


class Send(msgspec.Struct, frozen=True, array_like=True, tag="send", gc=False):
    """Copy a storage to the lane number ``lane``; it stays resident here."""

    storage: int
    lane: int


class Receive(msgspec.Struct, frozen=True, array_like=True, tag="receive", gc=False):
    """Wait for a storage that the lane number ``lane`` sends; it is resident here from then on."""

    storage: int
    lane: int


Step: TypeAlias = Compute | Evict | Copy | Offload | Fetch | Drop | Send | Receive


class Lane(msgspec.Struct, frozen=True):
    """A queue of steps issued on ``device``. Ops on tensors of other devices may be issued from it, as PyTorch does."""

    device: str
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        counts = Counter(type(step).__name__.lower() for step in self.steps)
        return f"<Lane {self.device}: {', '.join(f'{count:,} {kind}' for kind, count in counts.items()) or 'empty'}>"


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Plan to execute the Graph whose ``Index.digest`` it carries.

    ``home``: the link to the tier on which a persistent storage is before and after the step; it is the device for
    those that are absent.
    """

    graph: str
    lanes: tuple[Lane, ...]
    home: dict[int, str] = {}

    def __repr__(self) -> str:
        return f"<Plan of graph {self.graph[:12]}: {', '.join(map(repr, self.lanes))}>"

    @property
    def order(self) -> tuple[int, ...]:
        """The ops in the order in which a plan of one lane and of nothing but ``Compute`` runs them.

        Raises PlanError for any other plan.
        """
        if len(self.lanes) != 1:
            raise PlanError(f"a plan of {len(self.lanes)} lanes is not an order of ops")
        steps = self.lanes[0].steps
        found = tuple(step.op for step in steps if isinstance(step, Compute))
        if len(found) < len(steps):
            other = next(step for step in steps if not isinstance(step, Compute))
            raise PlanError(f"a plan with the step {other} is not an order of ops")
        return found


def in_order(graph: Graph, order: Iterable[int], device: str) -> Plan:
    """The Plan that runs the ops of ``graph`` one after the other in ``order``."""
    return Plan(graph.index.digest, (Lane(device, tuple(map(Compute, order))),))


FORMAT = Format(
    *("plan", "tensortide plan", (1,), PlanFileError, "make it again"),
    source="write one with `tensortide plan TARGET --budget 8GiB --plan FILE`",
)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    format: str = FORMAT.tag
    version: int = FORMAT.version
    tensortide: str = ""
    plan: Plan


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> Path:
    """Write ``plan`` to ``path``, all or nothing. Raises OutputError if it cannot be written."""
    return write_file(path, msgspec.json.encode(_File(tensortide=VERSION, plan=plan)) + b"\n")


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a Plan. Raises PlanFileError if the file is missing, foreign, damaged or of another version."""
    return FORMAT.load(path, _File).plan


def plan_writer(path: str | os.PathLike[str]) -> str:
    """Words for the release that wrote the Plan at ``path``, for messages of Plans of another Graph; none if it is this
    one, or if there is no such file. Raises as ``load_plan``."""
    return "" if not Path(path).is_file() else written_by(FORMAT.check_head(path, FORMAT.read(path)))
