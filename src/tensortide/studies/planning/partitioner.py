"""PyTorch's min-cut partitioner as a maker of plans: what it saves stays, all else is recomputed where it is needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from tensortide.errors import PlanError, TorchUnavailable
from tensortide.graph.model import Graph
from tensortide.plans.instance import BEFORE, Instance
from tensortide.plans.under_budget.known import Known
from tensortide.plans.under_budget.tables import Restorable, Tables, Value
from tensortide.search_limit import Look, attended, interruptible, no_look

if TYPE_CHECKING:
    from tensortide.recorder.partition import Partitioner

NAME = "PyTorch's partitioner"
SETTINGS = (0.4, 0.9, 0.1)
"""Memory budgets that the partitioner is given, as parts of what it saves by default: one that fits where others do
not, the fastest, and the smallest."""


def sequences(
    graph: Graph, instance: Instance, t: Tables, settings: Iterable[float] = SETTINGS, look: Look = no_look
) -> Iterator[Known]:
    """Yield the plan of the partitioner at each of ``settings``, without those that save the same; the reason why there
    is none, if there is none. ``instance`` and ``t`` are of ``graph``. ``look`` is called now and then; it may raise.
    """
    if not graph.meta.framework.startswith("torch"):
        yield Known(NAME, "partitioner", reason="the step was not captured from PyTorch")
        return
    seen = set()
    try:
        partitioner = interruptible(partial(attended(_imported, look), graph), look)
        for setting in settings:
            found = interruptible(partial(partitioner.partition, setting), look)
            if (key := frozenset(found.saved.items())) not in seen:
                seen.add(key)
                rest = Restorable(instance, t), found.saved, found.forward
                yield interruptible(partial(_known, setting, instance, *rest), look)
    except (PlanError, TorchUnavailable) as error:
        yield Known(NAME, "partitioner", reason=str(error))


def _imported() -> type[Partitioner]:
    """The class that calls PyTorch's partitioner, once all of it is imported: an import that is cut short fails ever
    after."""
    from tensortide.recorder.partition import Partitioner
    from tensortide.recorder.torch_compat import partitioner

    partitioner()
    return Partitioner


def _known(
    setting: float,
    instance: Instance,
    restorable: Restorable,
    saved: Mapping[int, frozenset[int]],
    forward: Mapping[int, int],
) -> Known:
    released = {
        middle: _released(instance, restorable, range(forward[middle], middle), kept) for middle, kept in saved.items()
    }
    name = f"{NAME} at {setting:g}"
    try:
        return Known(name, "partitioner", on_demand(instance, restorable, released))
    except PlanError as error:
        return Known(name, "partitioner", reason=str(error))


def _released(
    instance: Instance, restorable: Restorable, forward: Iterable[int], saved: Collection[int]
) -> frozenset[int]:
    """Storages that the ``forward`` ops make and that are not ``saved``, if they can be restored whenever they are
    used."""
    made = {s for op in forward for s in instance.ops[op].makes if s not in saved}
    lasting = {s for s in made if instance.storages[s].stays or instance.storages[s].pinned}
    for op, needed in enumerate(instance.states[:-1]):
        lasting.update(s for s in made.intersection(needed) if restorable.until(Value(s, needed[s])) < op)
    return frozenset(made - lasting)


def on_demand(instance: Instance, restorable: Restorable, released: Mapping[int, Collection[int]]) -> list[int]:
    """The ops in recorded order, each after those that restore what it needs. Before the op of a number in ``released``
    its storages go. What is restored stays for later uses.

    Raises PlanError if something cannot be restored.
    """
    present = {storage: BEFORE for storage, record in enumerate(instance.storages) if record.given}
    sequence: list[int] = []
    for number, op in enumerate(instance.ops):
        for storage in released.get(number, ()):
            present.pop(storage, None)
        for again in sorted(_makers(restorable, number, present)):
            record = instance.ops[again]
            sequence.append(again)
            present.update({s: again for s in record.writes if s not in record.blind})
            for storage in record.makes:
                present.setdefault(storage, again)
        sequence.append(number)
        present.update(dict.fromkeys((*op.writes, *op.makes), number))
    return sequence


def _makers(restorable: Restorable, op: int, present: dict[int, int]) -> set[int]:
    """Ops that run again so that ``op`` finds all it touches; what is ``present`` in a later state is given up."""
    found: set[int] = set()
    waiting = [value for value in restorable.reads[op] if present.get(value.storage) != value.state]
    while waiting:
        value = waiting.pop()
        if present.get(value.storage) == value.state:
            continue
        if restorable.is_fixed(value):
            raise PlanError(f"op {op} needs storage {value.storage} as it was, which nothing can restore")
        chain = restorable.makers(value)
        if (state := present.get(value.storage)) in chain:
            chain = chain[chain.index(state) + 1 :]
        else:
            present.pop(value.storage, None)
        for maker in set(chain) - found:
            waiting += [other for other in restorable.reads[maker] if other.storage != value.storage]
        found.update(chain)
    return found
