"""Tensor parallelism in two levels: ranks of a sub-group share heads of keys and values, sub-groups have others.

With fewer heads of keys than ranks the step is divided among sub-groups first, by heads among other axes, then among
the ranks of each, by the queries of a head. What both levels sum is reduced once, over all ranks, where nothing lies
between; gradients of keys and values are summed within the sub-group.
"""

from __future__ import annotations

import math

from tensortide.graph.communication import PROCESS_GROUP
from tensortide.graph.model import Const, Graph, Role
from tensortide.parallelism.analysis import Analysis
from tensortide.parallelism.draft import Draft, compacted, replace
from tensortide.parallelism.sites import with_values

WITHIN, ACROSS = "tensor_within", "tensor_across"
"""Names of the groups of ranks that share heads, and of those in the same place of each sub-group."""


def group_sizes(analysis: Analysis, ranks: int) -> tuple[int, ...]:
    """Sizes of sub-groups in which ``ranks`` that do not divide the heads of keys can share them: as small as they
    can be, and dividing the queries of a head.

    Queries have in one dimension of a parameter what keys have in another's (heads, elements of a head), and more.
    """
    axes = analysis.axes
    trained = {each.tensor for each in analysis.graph.named if each.role is Role.PARAMETER and each.trainable}
    dims = {frozenset(axes.leaves([dim])).difference(axes.cuts) for tensor in trained for dim in analysis.dims[tensor]}
    found = set[int]()
    for keys in filter(None, dims):
        for more in [queries - keys for queries in dims if keys < queries]:
            sizes = [ranks // math.gcd(axes.size[heads], ranks) for heads in keys.difference(axes.wholes)]
            found.update(g for g in sizes if any(axes.size[axis] % g == 0 for axis in more))
    return tuple(sorted(found - {1, ranks}))


def merged(graph: Graph, group: str) -> Graph:
    """``graph`` with one all-reduce over all ranks, those of ``group``, for each over a sub-group that another over the
    same place of all sub-groups follows before anything else touches its tensor."""
    draft = Draft(graph)
    waiting: dict[int, tuple[int, int, object]] = {}
    owner = graph.index.owner
    for index, op in enumerate(graph.ops):
        call = graph.calls[op.call]
        given = dict(call.arguments)
        among = given.get("process_group")
        name = among.value.removeprefix(PROCESS_GROUP) if isinstance(among, Const) else ""
        before = [waiting.pop(s) for s in {owner[t] for t in (*op.inputs, *op.outputs)} if s in waiting]
        if name == WITHIN:
            waiting[owner[op.inputs[0]]] = index, op.inputs[0], given["reduce_op"]
        elif name == ACROSS and before and before[0][1:] == (op.inputs[0], given["reduce_op"]):
            changed = with_values(call, {"process_group": Const("opaque", f"{PROCESS_GROUP}{group}")})
            draft.replaced[before[0][0]] = []
            draft.replaced[index] = [replace(op, call=draft.call(changed))]
    return compacted(draft.finished())
