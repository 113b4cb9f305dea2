"""Plans to execute a Graph: for each lane a sequence of steps, as frozen data; their file; and their check.

Meaning of the steps, for every player:

- Steps of a lane run one after the other; lanes run side by side.
- An op finds every storage it touches resident and in the state that the recorded step had it in; its outputs and its
  inputs are resident together while it runs.
- Memory is released implicitly, by the rule ``last_use`` of ``memory.lifetimes``: a storage that no later
  step of the plan touches, and that the step does not leave behind, is released right after the last step that touches
  it. A plan of ``Compute`` steps alone is an order, and that is all it has to say.
- ``Evict`` releases a resident storage at this very moment, even after its implicit release would be due. If it is
  touched again, its contents must be restored first: the ops that wrote them are recomputed, the allocating op
  first, then every op that wrote into it. An op may therefore be computed any number of times, but once at least.
- A recomputed op allocates only outputs that are not resident; a second copy of a resident output is released at
  once. It does not repeat updates that its outputs do not depend on, such as those of running statistics
  (``graph.effects.blind_slots``), and draws the random numbers that it drew first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from tensortide.errors import PlanError, PlanFileError
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.versioned import Format
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


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Plan to execute the Graph whose ``Index.digest`` it carries.

    ``home``: the link to the tier on which a persistent storage is before and after the step; it is the device for
    those that are absent.
    """

    graph: str
    lanes: tuple[Lane, ...]
    home: dict[int, str] = {}

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
    source="write one with `tensortide plan order TARGET --plan FILE`",
)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    format: str = FORMAT.tag
    version: int = FORMAT.version
    plan: Plan


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> Path:
    """Write ``plan`` to ``path``, all or nothing. Raises OutputError if it cannot be written."""
    return write_file(path, msgspec.json.encode(_File(plan=plan)) + b"\n")


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a Plan. Raises PlanFileError if the file is missing, foreign, damaged or of another version."""
    return FORMAT.load(path, _File).plan


_BEFORE = -1
"""The state of a storage that exists before the step and was not written yet."""


def validate(plan: Plan, graph: Graph) -> None:
    """Check that ``plan`` executes ``graph``; raises PlanError that says which step is wrong.

    Every op is computed at least once, and finds each storage it touches resident and last written by the op that last
    wrote it in the recorded step: that covers dependencies, the order of writes and reads, and recomputation of what
    was evicted. A recomputed op allocates only what is not resident, and skips the updates that no output
    depends on (``graph.effects.blind_slots``). A plan of a graph with loops refers to the loops written out
    (``graph.unrolled``). Covers plans of one lane whose steps are ``Compute`` and ``Evict``.
    """
    graph = unrolled(graph)
    if plan.graph != graph.index.digest:
        raise PlanError("the plan was made for another graph")
    if len(plan.lanes) != 1:
        raise PlanError(f"a plan of {len(plan.lanes)} lanes cannot be checked yet")
    facts, expected = graph.index, list(_expected(graph))
    states = {i: _BEFORE for i, storage in enumerate(graph.storages) if storage.birth is None}
    made: set[int] = set()
    computed: set[int] = set()
    for number, step in enumerate(plan.lanes[0].steps):
        if isinstance(step, Evict):
            if states.pop(step.storage, None) is None:
                raise PlanError(f"step {number} evicts storage {step.storage}, which is not resident")
            continue
        if not isinstance(step, Compute):
            raise PlanError(f"step {number} is {step}, which cannot be checked yet")
        if not 0 <= step.op < len(graph):
            raise PlanError(f"step {number} computes op {step.op} of {len(graph)}")
        found, tensors = expected[step.op]
        recompute, blind = step.op in computed, facts.blind[step.op]
        for storage, state in found.items():
            if states.get(storage) != state and not (recompute and storage in blind):
                raise PlanError(_wrong(graph, number, step.op, storage, states.get(storage), state))
        if not made >= tensors:
            tensor = min(tensors - made)
            raise PlanError(f"step {number} computes op {step.op} before the op that makes its input tensor {tensor}")
        kept = {*states.keys() & facts.allocated[step.op], *blind} if recompute else ()
        states.update({s: step.op for s in facts.writes[step.op] if s not in kept})
        made.update(graph.ops[step.op].outputs)
        computed.add(step.op)
    if len(computed) < len(graph):
        absent = next(i for i in range(len(graph)) if i not in computed)
        raise PlanError(f"op {absent} ({graph[absent].name}) is never computed")


def _expected(graph: Graph) -> Iterator[tuple[dict[int, int], set[int]]]:
    """For each op of the recorded step the last writer of each storage that it touches, those that it allocates aside;
    and its input tensors that ops make."""
    facts = graph.index
    written = {i: _BEFORE for i, storage in enumerate(graph.storages) if storage.birth is None}
    made: set[int] = set()
    for index, op in enumerate(graph.ops):
        writes, allocated = facts.writes[index], {*facts.allocated[index]}
        found = {s: written[s] for s in (*facts.reads[index], *writes) if s not in allocated}
        yield found, made.intersection(op.inputs)
        written.update(dict.fromkeys(writes, index))
        made.update(op.outputs)


def _wrong(graph: Graph, step: int, op: int, storage: int, state: int | None, expected: int) -> str:
    what = f"step {step} computes op {op} ({graph[op].name}), which needs storage {storage}"
    if state is None:
        return f"{what}; it is not resident"
    writers = ["before the step" if at == _BEFORE else f"by op {at} ({graph[at].name})" for at in (expected, state)]
    return f"{what} as written {writers[0]}; it was last written {writers[1]}"
