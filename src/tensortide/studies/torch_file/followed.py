"""The captured step of a written file as a Plan of the step that it was written for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensortide.errors import PlanError
from tensortide.graph.model import Graph, Op, Role
from tensortide.plans.instance import Instance
from tensortide.plans.model import Compute, Fetch, Offload, Step
from tensortide.plans.under_budget.sequence import steps_of
from tensortide.plans.under_budget.tables import tables
from tensortide.studies.torch_file.regions import CAST, Region

_NEAR = 400
"""How many ops ahead the same op is looked for."""
_DETACH = "aten.detach.default"
"""An op that checkpoints add and leave out as they please."""

_CAT = "aten.cat.default"
"""The op by which caches grow: once more in a recomputation."""

_ADDED = (_DETACH, "aten.clone.default")
"""Ops of the code of a file: checkpoints, and copies of running statistics."""


@dataclass(frozen=True)
class Followed:
    """The ops of ``sequence`` in the order in which the file runs them. For each op of the captured graph ``base`` is
    the op of the step that it is (-1: one that the file adds, which moves or renames), ``places`` how many of the
    sequence run before it. ``changed``: modules whose recomputation is not what ran first, each with the difference."""

    sequence: tuple[int, ...]
    base: tuple[int, ...]
    places: tuple[int, ...]
    changed: tuple[tuple[str, str], ...] = ()


def followed(
    graph: Graph, captured: Graph, regions: Mapping[str, Region], kept: Mapping[str, frozenset[int]]
) -> Followed:
    """Find the ops of ``graph`` in the step ``captured`` of a file that checkpoints ``regions``.

    Raises PlanError if an op of the step does not run.
    """
    base = [-1] * len(captured)
    renamed = _first_runs(graph, captured, base)
    firsts = {op: number for number, op in enumerate(base) if op >= 0}
    for block in _blocks(captured):
        _again(graph, captured, base, block, regions, kept)
    counted = _counted(graph)
    again = set[int]()
    sequence: list[int] = []
    places = []
    for number, found in enumerate((*base, -1)):
        places.append(len(sequence))
        for op in (*renamed.get(number, ()), found):
            if op >= 0 and not (op in again and op in counted):
                sequence.append(op)
                again.add(op)
    return Followed(tuple(sequence), tuple(base), tuple(places[:-1]), tuple(_changed(graph, captured, base, firsts)))


def _changed(
    graph: Graph, captured: Graph, base: Sequence[int], firsts: Mapping[int, int]
) -> Iterator[tuple[str, str]]:
    """Yield the modules that run other ops or other arguments in their recomputation, as what Python computes differs
    then."""
    path = ""
    for number, op in enumerate(captured.ops):
        if not op.recompute or captured.calls[op.call].op in _ADDED:
            continue
        name = captured.calls[op.call].op
        if base[number] < 0:
            given = captured.storages[captured.tensors[op.inputs[0]].storage] if op.inputs else None
            if name == CAST and given is not None and given.role is Role.PARAMETER:
                continue  # autocast kept the cast parameter of an earlier module until the forward pass ended
            cache = " (if it fills a cache of keys and values: use_cache=False)" if name == _CAT else ""
            yield path, f"{name} runs in its recomputation alone{cache}"
            continue
        module = graph.ops[base[number]].module
        path = graph.modules[module].path if module >= 0 else path
        if base[number] in firsts and (other := _other_argument(captured, number, firsts[base[number]])):
            yield path, f"{name} has another argument when it runs again, {other}"


def _other_argument(captured: Graph, again: int, first: int) -> str:
    """Name an argument that differs between two runs of an op; empty if none does."""
    runs = (captured.calls[captured.ops[number].call].arguments for number in (again, first))
    for (name, value), (_, before) in zip(*runs, strict=False):
        if repr(value) != repr(before):  # nan is not equal to itself
            return f"{name}={value} after {before}"
    return ""


def _key(graph: Graph, op: Op) -> Hashable:
    """Return what is the same in both graphs."""
    tensors = tuple((graph.tensors[t].dtype, graph.tensors[t].shape) for t in (*op.inputs, *op.outputs))
    return graph.calls[op.call].op, tensors


def _first_runs(graph: Graph, captured: Graph, base: list[int]) -> dict[int, list[int]]:
    """Enter the first run of each op into ``base``. Returns, by op of the captured step, ops that only rename memory
    and that the file's step leaves out before it."""
    place, renamed = 0, dict[int, list[int]]()
    once = [number for number, op in enumerate(captured.ops) if not op.recompute]
    mine = [number for number, op in enumerate(graph.ops) if not op.recompute]
    keys = [_key(captured, captured.ops[number]) for number in once]
    for number in mine:
        key = _key(graph, graph.ops[number])
        near = 1 if graph.calls[graph.ops[number].call].op == _DETACH else _NEAR
        ahead = next((at for at in range(place, min(place + near, len(keys))) if keys[at] == key), None)
        if ahead is None:
            if graph.index.allocated[number] or graph.calls[graph.ops[number].call].mutated:
                raise PlanError(
                    f"op {number} ({graph.calls[graph.ops[number].call].op}) does not run in the file's step"
                )
            renamed.setdefault(once[place] if place < len(once) else len(base), []).append(number)
            continue
        base[once[ahead]] = number
        place = ahead + 1
    return renamed


def _blocks(captured: Graph) -> Iterator[range]:
    """Runs of ops that are recomputed one after the other."""
    start = None
    for number, op in enumerate((*captured.ops, None)):
        is_again = op is not None and op.recompute
        if is_again and start is None:
            start = number
        elif not is_again and start is not None:
            yield range(start, number)
            start = None


def _again(
    graph: Graph,
    captured: Graph,
    base: list[int],
    block: range,
    regions: Mapping[str, Region],
    kept: Mapping[str, frozenset[int]],
) -> None:
    """The ops of ``block`` are those of the forward pass whose gradients follow, and then of modules inside it."""
    following = next((base[n] for n in range(block.stop, len(base)) if base[n] >= 0), len(graph))
    ran = {captured.modules[captured.ops[n].module].path for n in block if captured.ops[n].module >= 0}
    # Recomputation precedes the first gradient op that uses a result of it: it may start for a parameter's view.
    calls = [
        (not all(map(region.covers, ran)), call.first < following, abs(call.first - following), path, call)
        for path, region in regions.items()
        for call in region.calls
    ]
    if not calls:
        return
    *_, path, call = min(calls, key=lambda each: each[:-1])
    ops = [op for op in call.ops if op not in kept.get(path, ())]
    inner = [one for region in regions.values() if region.ops < regions[path].ops for one in region.calls]
    rest = _matched(graph, captured, base, block, ops)
    for one in sorted((one for one in inner if one.ops[0] in call.ops), key=lambda one: abs(one.first - following)):
        rest = _matched(graph, captured, base, rest, one.ops)


def _matched(graph: Graph, captured: Graph, base: list[int], block: Iterable[int], mine: Sequence[int]) -> list[int]:
    """Enter ops of ``block`` that are ``mine``, which run in this order. Returns the others."""
    keys = [_key(graph, graph.ops[op]) for op in mine]
    place, others = 0, []
    for number in block:
        if captured.calls[captured.ops[number].call].op == _DETACH:
            continue
        key = _key(captured, captured.ops[number])
        ahead = next((at for at in range(place, min(place + _NEAR, len(keys))) if keys[at] == key), None)
        if ahead is None:
            others.append(number)
        else:
            base[number] = mine[ahead]
            place = ahead + 1
    return others


def _counted(graph: Graph) -> set[int]:
    """Ops that change what existed before the step: recomputation leaves it alone."""
    facts, storages = graph.index, graph.storages
    return {
        op
        for op in range(len(graph))
        if any(storages[s].birth is None and s not in facts.blind[op] for s in facts.writes[op])
    }


@dataclass(frozen=True)
class Transfer:
    """A storage of the step that leaves after the run at ``out`` of a sequence, and is fetched before that at
    ``back``."""

    storage: int
    out: int
    back: int


def steps(problem: Instance, sequence: Sequence[int], transfers: Sequence[Transfer], link: str) -> tuple[Step, ...]:
    """The steps of a plan that runs ``sequence`` and moves storages over ``link``."""
    leave: dict[int, list[int]] = {}
    arrive: dict[int, list[int]] = {}
    for each in transfers:
        leave.setdefault(each.out, []).append(each.storage)
        arrive.setdefault(each.back, []).append(each.storage)
    found: list[Step] = []
    place = -1
    for step in steps_of(tables(problem), map(Compute, sequence)):
        if isinstance(step, Compute):
            if place >= 0:
                found += [Offload(storage, link) for storage in leave.get(place, ())]
            place += 1
            found += [Fetch(storage, link) for storage in arrive.get(place, ())]
        found.append(step)
    return tuple(found)
