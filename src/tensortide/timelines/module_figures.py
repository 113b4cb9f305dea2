"""Figures of the modules of a step, each declared and computed once: all that show, compare or check them ask here.

A module's own figures are those of its own ops, and of its own tensors. Added up over all modules they are the step's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from inspect import get_annotations
from typing import Annotated, NamedTuple, Self

from msgspec.structs import replace

from tensortide.cost import Count, ModuleTotal, Total
from tensortide.differences import Amounts, Node
from tensortide.graph.model import OUTSIDE_PATH, ROOT_PATH, Role
from tensortide.shown import Show
from tensortide.timelines.resident import home_of, saved_storages, storage_homes
from tensortide.timelines.timeline import StorageTimeline


class Of(NamedTuple):
    """The use of a figure of modules: the ``metric`` that is its sum over modules, and its name in a sentence about a
    difference (``words``), for those that are shown beside each other."""

    metric: str = ""
    words: str = ""


class ModuleFigures(Amounts, frozen=True, omit_defaults=True):
    """Costs of a module's own ops, and its own tensors, in base units; those of several modules add up.

    ``saved_bytes`` are those that its ops make and the backward reads, ``peak_bytes`` those of its tensors, and of the
    workspace of its op, that are resident at the peak of the step. With ``unknown_ops``, which no rule prices, costs
    are lower bounds. ``time_ns`` is None without times.
    """

    flops: Annotated[int, Show("FLOPs"), Of("flops", "FLOPs")] = 0
    macs: Annotated[int, Show("MACs"), Of("macs")] = 0
    accessed_bytes: Annotated[int, Show("Bytes"), Of("bytes", "bytes accessed")] = 0
    ops: Annotated[int, Show("Ops"), Of("ops", "ops")] = 0
    unknown_ops: Annotated[int, Show("Ops without a rule"), Of("unknown_ops")] = 0
    recomputed_flops: Annotated[int, Show("Recomputed"), Of("recomputed_flops")] = 0
    recomputed_ops: Annotated[int, Show("Recomputed ops"), Of("recomputed_ops")] = 0
    parameters: Annotated[int, Show("Params", "amount"), Of("total_params", "parameters")] = 0
    parameter_bytes: Annotated[int, Show("Params"), Of("model_size")] = 0
    saved_bytes: Annotated[int, Show("Saved"), Of("saved_activations", "saved activations")] = 0
    peak_bytes: Annotated[int | None, Show("At peak"), Of("step_peak", "peak memory")] = 0
    time_ns: Annotated[int | None, Show("Time"), Of(words="time of the ops")] = None

    def nothing(self) -> Self:
        """Return the figures of what is missing: of its time nothing is known where no times are."""
        return type(self)(time_ns=None if self.time_ns is None else 0)

    @property
    def elementwise_flops(self) -> Annotated[int, Show("Elementwise"), Of("elementwise_flops")]:
        """FLOPs of what is no product of matrices."""
        return self.flops - 2 * self.macs


NONE = ModuleFigures()


def _declared() -> dict[str, Of]:
    kinds = get_annotations(ModuleFigures, eval_str=True)
    properties = ((name, one.fget) for name, one in vars(ModuleFigures).items() if isinstance(one, property))
    kinds |= {name: get_annotations(get, eval_str=True)["return"] for name, get in properties if get is not None}
    return {name: use for name, kind in kinds.items() for use in kind.__metadata__ if isinstance(use, Of)}


BY_MODULE: Mapping[str, str] = {use.metric: name for name, use in _declared().items() if use.metric}
"""Metrics that are sums over modules, and the field or property of figures that each is."""
WORDS: Mapping[str, str] = {name: use.words for name, use in _declared().items() if use.words}
"""Figures that are shown beside each other, and their names in a sentence."""


def costs_of(total: Total) -> dict[str, int]:
    """Return the costs of ops as fields of ModuleFigures."""
    costs = {"flops": int(total.flops), "macs": int(total.macs), "accessed_bytes": int(total.accessed_bytes)}
    return {**costs, "ops": total.ops, "unknown_ops": total.unknown_ops}


def module_trees(
    count: Count, memory: StorageTimeline, times_ns: Sequence[int] | None = None
) -> tuple[Node[ModuleFigures], ...]:
    """Return the trees of modules with the figures of each, in the order of the model; each module is ``of`` its type.

    The last tree is ``(outside)``, if anything is in no module. ``count`` and ``memory`` are of one Graph, and
    ``times_ns`` those of its ops.
    """
    own, nothing = _of_tensors(count, memory), ModuleFigures(time_ns=None if times_ns is None else 0)
    for (module, recompute), total in count.by(lambda op: (op.module, op.recompute)).items():
        of_module = own[count.graph.module_path(module)]
        of_module.update(costs_of(total))
        if recompute:
            of_module.update(recomputed_flops=int(total.flops), recomputed_ops=total.ops)
    for op, ns in zip(count.graph.ops, times_ns or (), strict=False):
        own[count.graph.module_path(op.module)].update(time_ns=ns)

    def node(total: ModuleTotal) -> Node[ModuleFigures]:
        path = total.path or ROOT_PATH
        figures = replace(nothing, **own[path])
        return Node(total.name, figures, tuple(map(node, total.children)), path, of=total.type)

    trees = [*count.modules]
    if any(own[OUTSIDE_PATH].values()) and all(tree.path != OUTSIDE_PATH for tree in trees):
        trees.append(ModuleTotal(OUTSIDE_PATH, "", Total(), Total()))
    return tuple(map(node, trees))


def figures_by_module(trees: Iterable[Node[ModuleFigures]]) -> dict[str, ModuleFigures]:
    """Return the own figures of each module that has some, by its path."""
    return {node.path: node.own for tree in trees for node in tree.walk() if node.own}


def _of_tensors(count: Count, memory: StorageTimeline) -> defaultdict[str, Counter[str]]:
    """Sum the tensors that each module owns, by its path. Tied parameters count where they are named first."""
    graph, found = count.graph, defaultdict[str, Counter[str]](Counter)
    known = {module.path: index for index, module in enumerate(graph.modules)}
    named = {one.tensor: one.name for one in reversed(graph.named) if one.role is Role.PARAMETER}
    for index, name in named.items():
        tensor, home = graph.tensors[index], graph.module_path(home_of(name, known))
        found[home].update(parameters=tensor.numel, parameter_bytes=tensor.nbytes)
    homes = [graph.module_path(home) for home in storage_homes(graph)]
    for index in saved_storages(graph):
        found[homes[index]].update(saved_bytes=graph.storages[index].nbytes)
    at = max(0, memory.peak_op)
    for index, nbytes, birth, death in memory.storages():
        if birth <= at < death:
            found[homes[index]].update(peak_bytes=nbytes)
    if len(graph):
        found[graph.module_path(graph.ops[at].module)].update(peak_bytes=int(memory.workspace[at]))
    return found
