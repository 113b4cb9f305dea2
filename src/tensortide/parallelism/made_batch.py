"""A batch that the step makes itself, drawn, read or stacked before the model sees it: the step with it as an input.

A training script that draws its batch in the loop has no inputs. What it draws is no part of the model: a rank has its
part of the batch from a loader of its own. The batch is found by what becomes of it, not by a name: the axis that meets
most parameters, of those whose elements no op mixes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tensortide.graph.effects import draws_random
from tensortide.graph.model import Graph, Named, Phase, Role
from tensortide.parallelism.analysis import Analysis
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.batch import axes_met, inputs_of
from tensortide.parallelism.divided_step import RankStep
from tensortide.parallelism.draft import Draft, compacted, replace
from tensortide.parallelism.own_samples import by_part
from tensortide.parallelism.sites import located

_NAME = "batch"
_GIVEN = (Role.INPUT, Role.OUTPUT)
"""Roles of a batch that exists before the step: one that the step before has made is an output of it."""
_NEXT = "The step also makes the batch of the next one: the ops that do are left out."


class _Made(NamedTuple):
    """A batch that the step makes: the ops that are ``left_out``, its ``tensors``, and a remark on what was taken."""

    left_out: set[int]
    tensors: Sequence[int]
    remark: str


def given_batch(analysis: Analysis) -> RankStep:
    """The step of ``analysis`` with its batch among the inputs: as it is, unless it makes the batch itself.

    Its remark then says what was taken as the batch, and ``making`` has the ops that are left out, if they make all of
    it in this step."""
    graph, made = analysis.graph, _made(analysis)
    if made is None:
        return RankStep(graph)
    produced = {t for index in made.left_out for t in graph.ops[index].outputs}
    making = None
    if made.tensors and produced.issuperset(made.tensors) and not _for_later(graph, _apart(graph)):
        making = _part(graph, set(range(len(graph.ops))) - made.left_out, made.tensors, given=False)
    return RankStep(_part(graph, made.left_out, made.tensors), remarks=(made.remark,), making=making)


def _made(analysis: Analysis) -> _Made | None:
    """The batch that the step of ``analysis`` makes, of this step or of the next; None if it is an input alone."""
    graph = analysis.graph
    apart = _apart(graph)
    met = axes_met(analysis)
    if _samples(analysis, inputs_of(graph), met, apart):
        later = _for_later(graph, apart)
        return _Made(later, (), _NEXT) if later else None
    unnamed = _unnamed(graph)
    owner, known = graph.index.owner, {graph.tensors[t].storage for t in (*inputs_of(graph), *unnamed)}
    fresh = [t for op in sorted(apart) for t in graph.ops[op].outputs if owner[t] not in known]
    found = _samples(analysis, [*unnamed, *fresh], met, apart)
    if not found:
        return None
    axis = found[0]
    sources = _sources(analysis, apart, axis)
    left_out = _left_out(analysis, apart, sources, axis) | _for_later(graph, apart)
    tensors = [t for t in unnamed if axis in analysis.all_leaves(t)]
    tensors += [t for index in sources for t in graph.ops[index].outputs]
    begin = max((t for t in tensors if axis in analysis.all_leaves(t)), key=lambda t: int(graph.tensors[t].numel))
    dimension = next(d for d, own in enumerate(analysis.dims[begin]) if axis in analysis.axes.leaves([own]))
    shape = " x ".join(map(str, graph.tensors[begin].shape))
    first = next(i for i, op in enumerate(graph.ops) if begin in (*op.outputs, *op.inputs))
    does = (
        "reads"
        if begin in unnamed
        else "makes; each rank is given its part of it, and the ops that make it are left out"
    )
    remark = f"The batch is dimension {dimension} of the {shape} that {located(graph, first)} {does}."
    return _Made(left_out, tensors, remark)


def _draws(graph: Graph, index: int) -> bool:
    return draws_random(graph.calls[graph.ops[index].call])


def _unnamed(graph: Graph) -> list[int]:
    """The largest tensor of each storage that the step is given by nothing that has a name, such as a loader."""
    named = {graph.tensors[tensor].storage for tensor in inputs_of(graph)}
    found: dict[int, int] = {}
    for tensor in dict.fromkeys(t for op in graph.ops for t in op.inputs):
        view = graph.tensors[tensor]
        storage = graph.storages[view.storage]
        if storage.birth is None and storage.role in _GIVEN and view.storage not in named:
            known = found.setdefault(view.storage, tensor)
            if graph.tensors[known].numel < view.numel:
                found[view.storage] = tensor
    return list(found.values())


def _apart(graph: Graph) -> frozenset[int]:
    """The forward ops that depend on no parameter, buffer or state: on inputs and numbers alone."""
    storages = graph.storages
    free = {number for number, each in enumerate(storages) if each.birth is None and each.role in _GIVEN}
    found = set()
    for index, op in enumerate(graph.ops):
        reads, writes = set(graph.index.reads[index]), set(graph.index.writes[index])
        made = {storage for storage in writes if storages[storage].birth == index}
        if op.phase is Phase.FORWARD and free.issuperset(reads | (writes - made)):
            found.add(index)
            free |= made
        else:
            free -= writes
    return frozenset(found)


def _samples(analysis: Analysis, tensors: list[int], met: Counter[Axis], apart: frozenset[int]) -> list[Axis]:
    """The outermost axes of ``tensors`` that may be the batch: they meet parameters, and no op but those that are
    ``apart`` mixes their elements. Those that meet most come first."""
    axes = analysis.axes
    outermost = (axes.leaves([axis])[:1] for tensor in tensors for axis in analysis.dims[tensor])
    found = dict.fromkeys(axis for leaves in outermost for axis in leaves if met[axis])
    needs = analysis.axes.all_needs
    legal = [
        axis
        for axis in found
        if all(op in apart or (op >= 0 and by_part(analysis.graph, op)) for op in needs.get(axis, ()))
    ]
    return sorted(legal, key=lambda axis: -met[axis])


def _leads(analysis: Analysis, tensor: int, axis: Axis) -> bool:
    """Return whether ``axis`` is the outermost of a dimension: a part is not of the whole that it is taken from."""
    return any(analysis.axes.leaves([own])[:1] == [axis] for own in analysis.dims[tensor])


def _sources(analysis: Analysis, apart: frozenset[int], axis: Axis) -> list[int]:
    """The ops with which the batch begins: they draw it, or put it together of what has no such ``axis``. Tensors of
    one number are left to the ranks, unless there is nothing else."""
    graph = analysis.graph
    begins = [
        index
        for index in sorted(apart)
        if any(_leads(analysis, t, axis) for t in graph.ops[index].outputs)
        and not any(_leads(analysis, t, axis) for t in graph.ops[index].inputs)
    ]
    needs = analysis.axes.needs(axis)
    drawn = {storage for i in apart if _draws(graph, i) for storage in graph.index.writes[i]}
    values = [i for i in begins if i in needs or graph.ops[i].inputs or not drawn.isdisjoint(graph.index.allocated[i])]
    return values or begins


def _part(graph: Graph, left_out: set[int], tensors: Sequence[int], *, given: bool = True) -> Graph:
    """``graph`` without the ops ``left_out`` and what only they read; ``tensors`` are its batch, by name, and inputs if
    they are ``given``."""
    draft = Draft(graph)
    draft.replaced.update({index: [] for index in left_out})
    unused = {
        number
        for number, storage in enumerate(graph.storages)
        if storage.birth is None and (users := graph.index.users[number]) and left_out.issuperset(users)
    }
    renamed = unused | {graph.tensors[tensor].storage for tensor in tensors}
    named = [entry for entry in graph.named if graph.tensors[entry.tensor].storage not in renamed]
    for number, tensor in enumerate(tensors):
        storage = graph.tensors[tensor].storage
        name = f"{_NAME}.{number}" if number else _NAME
        if given:
            draft.storages[storage] = replace(draft.storages[storage], birth=None, death=None)
        draft.storages[storage] = replace(draft.storages[storage], role=Role.INPUT, name=name)
        named.append(Named(name, Role.INPUT, tensor))
    finished = draft.finished(named=tuple(named))
    kept = {s for s, storage in enumerate(finished.storages) if storage.birth is None} - unused
    return compacted(finished, kept)


def _for_later(graph: Graph, apart: frozenset[int]) -> set[int]:
    """The ops that make a batch for the next step: what they make outlives this one, and nothing else reads it."""
    readers = _readers(graph)
    found: set[int] = set()
    for index in sorted(apart, reverse=True):
        after = {i for t in graph.ops[index].outputs for i in readers.get(graph.index.owner[t], ()) if i > index}
        if found.issuperset(after):
            found.add(index)
    outlives = any(graph.storages[s].death is None for index in found for s in graph.index.allocated[index])
    return found if outlives else set()


def _left_out(analysis: Analysis, apart: frozenset[int], sources: list[int], axis: Axis) -> set[int]:
    """``sources``, and the ops whose results only they read. What reads a tensor with the ``axis`` reads the batch,
    though its memory may be that of more, such as a permutation of which a part is taken."""
    graph = analysis.graph
    of_batch = frozenset(t for op in graph.ops for t in op.inputs if _leads(analysis, t, axis))
    readers = _readers(graph, of_batch)
    begun = {graph.index.owner[t] for index in sources for t in graph.ops[index].outputs}
    found = {*sources, *(i for i in apart if _draws(graph, i) and not begun.isdisjoint(graph.index.writes[i]))}
    for index in sorted(apart, reverse=True):
        outputs = graph.ops[index].outputs
        after = {i for t in outputs for i in readers.get(graph.index.owner[t], ()) if i > index}
        reads_value = not outputs  # by the host, as the number at which a slice begins
        is_used = bool(after) or reads_value
        if is_used and found.issuperset(after) and not graph.calls[graph.ops[index].call].mutated:
            found.add(index)
    return found


def _readers(graph: Graph, without: frozenset[int] = frozenset()) -> dict[int, set[int]]:
    """The ops that read each storage, as another tensor than those ``without``."""
    found: dict[int, set[int]] = {}
    for index, op in enumerate(graph.ops):
        for tensor in set(op.inputs) - without:
            found.setdefault(graph.index.owner[tensor], set()).add(index)
    return found
